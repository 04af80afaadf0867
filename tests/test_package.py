"""What is installed, and what is passed on as source, carries its licence."""

from __future__ import annotations

import re
import tarfile
import zipfile
from pathlib import Path

import pytest
from hatchling.builders.sdist import SdistBuilder
from hatchling.builders.wheel import WheelBuilder
from tests.source_trees import EVERYWHERE, ROOT

from fencepost import __version__

LICENSE = (ROOT / "LICENSE").read_bytes()


@pytest.fixture(autouse=True)
def at_the_root(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(ROOT)


def test_the_wheel_has_the_licence_and_is_typed(tmp_path: Path) -> None:
    (built,) = WheelBuilder(str(ROOT)).build(directory=str(tmp_path), versions=["standard"])
    with zipfile.ZipFile(built) as wheel:
        names = wheel.namelist()
        assert [wheel.read(name) for name in names if name.endswith("/LICENSE")] == [LICENSE]
        assert "fencepost/py.typed" in names


def test_the_source_has_the_licence(tmp_path: Path) -> None:
    (built,) = SdistBuilder(str(ROOT)).build(directory=str(tmp_path))
    with tarfile.open(built) as source:
        (licence,) = [name for name in source.getnames() if name.count("/") == 1 and name.endswith("/LICENSE")]
        found = source.extractfile(licence)
        assert found is not None
        assert found.read() == LICENSE


def test_the_version_stands_in_one_place() -> None:
    """The build and the site read it there."""
    sources = [file for folder in (*EVERYWHERE, "docs") for file in (ROOT / folder).rglob("*.py")]
    written = re.compile(rf"""(?<![\w.]){re.escape(__version__)}(?![\w.])""")
    found = [file for file in [ROOT / "pyproject.toml", *sources] if written.search(file.read_text())]
    assert found == [ROOT / "src" / "fencepost" / "__init__.py"]
