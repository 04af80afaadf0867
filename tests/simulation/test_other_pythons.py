"""A seed has the same history with every version of Python, as far as there are others on this machine."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
SOURCES = os.pathsep.join(map(str, (ROOT / "src", Path(__file__).parent / "stand_ins")))
"""The code, and what stands for the packages that it needs: others have been installed for this Python only."""
MINORS = (11, 12, 13)
KEPT = (".pyenv/versions/3.{}.*/bin/python3", ".local/share/uv/python/cpython-3.{}.*/bin/python3")
"""Where tools keep Pythons that no name leads to."""
SEEDS = (4, 48, 58)
"""Together they have every kind of client, and none compresses: what does that is not there for other Pythons."""


def other_python(minor: int) -> str | None:
    """One of that version that can be run."""
    return next((path for path in _candidates(minor) if _runs(path, minor)), None)


def _candidates(minor: int) -> Iterator[str]:
    if named := shutil.which(f"python3.{minor}"):
        yield named
    for pattern in KEPT:
        yield from map(str, sorted(Path.home().glob(pattern.format(minor))))


def _runs(path: str, minor: int) -> bool:
    says = subprocess.run([path, "-c", "import sys; print(sys.version_info[1])"], capture_output=True, check=False)
    return says.stdout.decode().strip() == str(minor)


def history(python: str, seed: int, path: Path) -> tuple[bytes, bytes]:
    """What is told of a run and what is saved of it, by that Python."""
    program = [python, "-m", "fencepost", "simulate", "--seed", str(seed), "--for", "300ms", "--history", str(path)]
    surroundings = {"PYTHONPATH": SOURCES, "PYTHONDONTWRITEBYTECODE": "1", "FENCEPOST_PURE": "1"}
    done = subprocess.run(program, env={**os.environ, **surroundings}, capture_output=True, check=False)
    assert done.returncode == 0, done.stderr.decode()
    return done.stdout, path.read_bytes()


@pytest.mark.parametrize("minor", [minor for minor in MINORS if minor != sys.version_info[1]])
def test_the_same_seed_gives_the_same_bytes_with_another_python(minor: int, tmp_path: Path) -> None:
    other = other_python(minor)
    if other is None:
        pytest.skip(f"there is no Python 3.{minor} here")
    for seed in SEEDS:
        ours, theirs = (history(each, seed, tmp_path / "history") for each in (sys.executable, other))
        assert ours == theirs, f"seed {seed}, Python 3.{minor}"
