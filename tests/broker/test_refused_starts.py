"""A start that is refused writes nothing, whatever the reason: not even a file that is missing is made again."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
from tests.broker.directories import node
from tests.broker.wire import batch, new_topic, produce

from fencepost.log.data_directory import DirectoryUnusable

SEGMENT = f"{0:020d}.log"


def _damage(path: Path, at: int) -> None:
    data = bytearray(path.read_bytes())
    data[at] ^= 1
    path.write_bytes(data)


def _newest_generation(data: Path) -> Path:
    return max((data / "commit-log").glob("*.log"))


def _copy_a_topic(data: Path) -> None:
    (data / "metadata.sqlite").unlink()
    shutil.rmtree(data / "commit-log")
    (data / "commit-log").mkdir()
    shutil.copytree(next(data.glob("*-0")), data / "a-copy-0")


#: What is wrong with a directory -> what makes it so; behind it whether --rebuild-metadata is given.
WRONG: dict[str, tuple[Callable[[Path], object], bool]] = {
    "of Apache Kafka": (lambda data: (data / "meta.properties").write_text("version=1"), False),
    "of a newer version": (lambda data: (data / "fencepost.version").write_text("99"), False),
    "a version that cannot be read": (lambda data: (data / "fencepost.version").write_text("?"), False),
    "no metadata": (lambda data: (data / "metadata.sqlite").unlink(), False),
    "damaged metadata": (lambda data: _damage(data / "metadata.sqlite", 30), False),
    "metadata that are no database": (lambda data: (data / "metadata.sqlite").write_bytes(b"x" * 5000), False),
    "metadata that are there": (lambda _: None, True),
    "a copy of a topic": (_copy_a_topic, True),
    "a damaged commit log": (lambda data: _damage(_newest_generation(data), 60), False),
    "a commit log of another start": (lambda data: (data / "commit-log" / "starts").write_text("0"), False),
    "a generation of nobody": (lambda data: (data / "commit-log" / f"{999:020d}.log").write_bytes(b"x" * 99), False),
    "of another cluster": (
        lambda data: (data / "fencepost.properties").write_text(f"version=1\ncluster.id={'x' * 22}\n"),
        False,
    ),
    "no cluster": (lambda data: (data / "fencepost.properties").write_text("?"), False),
}
#: Files that a start makes again where it goes on.
MADE_AGAIN = ["", "fencepost.version", "fencepost.properties"]


def _everything(data: Path) -> dict[str, bytes]:
    found = {}
    for directory, _, names in os.walk(data):
        found[directory] = b""
        found |= {path: Path(path).read_bytes() for path in (f"{directory}/{name}" for name in names)}
    return found


@pytest.fixture(scope="module")
def used(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The directory of a node that was started twice, and has a record."""
    data = tmp_path_factory.mktemp("used")
    for _ in range(2):
        with node(data) as client:
            assert produce(client, new_topic(client), batch("kept")).error_code == 0
    return data


@pytest.mark.parametrize("missing", MADE_AGAIN)
@pytest.mark.parametrize("wrong", WRONG)
def test_a_start_that_is_refused_writes_nothing(tmp_path: Path, used: Path, wrong: str, missing: str) -> None:
    data = tmp_path / "data"
    shutil.copytree(used, data)
    make_wrong, rebuild = WRONG[wrong]
    if missing:
        (data / missing).unlink()
    make_wrong(data)
    before = _everything(data)
    with pytest.raises(DirectoryUnusable), node(data, rebuild=rebuild):
        pass
    assert _everything(data) == before
