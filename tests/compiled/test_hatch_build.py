"""Compiling at installation: it is done where it can be, nothing fails where it cannot, and nothing old is left."""

from __future__ import annotations

import os
import shutil
import tempfile
import threading
import zipfile
from pathlib import Path
from typing import Any

import hatch_build
import pytest
from hatchling.builders.wheel import WheelBuilder

from fencepost.compiled import files as compiled_files
from fencepost.compiled.files import FORCE_PURE, SOURCES, built, file_name, find, source_digest

ROOT = Path(__file__).parents[2]


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The source, nothing compiled, and a compiler that takes no time."""
    monkeypatch.delenv(FORCE_PURE, raising=False)
    monkeypatch.setattr(hatch_build, "_compile", lambda _folder, _name: b"compiled")
    made = tmp_path / "protocol"
    made.mkdir()
    for name in SOURCES:
        shutil.copy(hatch_build.FOLDER / name, made)
    return made


def test_it_is_compiled_once_and_again_when_the_source_has_changed(folder: Path) -> None:
    first = hatch_build.build(folder)
    assert first.path == folder / file_name(source_digest(folder), b"compiled") and first.path.exists()
    assert first.told
    assert hatch_build.build(folder) == hatch_build.Outcome(first.path, "")
    (folder / "record_kernel.py").write_text("# another\n")
    second = hatch_build.build(folder)
    assert second.path != first.path and second.told
    assert built(folder) == [second.path], "the old one is gone"


def test_a_damaged_file_is_made_anew(folder: Path) -> None:
    path = hatch_build.build(folder).path
    assert path is not None
    path.write_bytes(b"comp")
    assert hatch_build.build(folder).path == path
    assert path.read_bytes() == b"compiled"


def test_two_at_once_leave_one_that_is_whole(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    together = threading.Barrier(4)

    def compile_together(_folder: Path, _name: str) -> bytes:
        together.wait()
        return b"compiled" * 1000

    monkeypatch.setattr(hatch_build, "_compile", compile_together)
    found: list[hatch_build.Outcome] = []
    threads = [threading.Thread(target=lambda: found.append(hatch_build.build(folder))) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    (path,) = built(folder)
    assert {outcome.path for outcome in found} == {path}
    assert path.read_bytes() == b"compiled" * 1000
    assert sorted(each.name for each in folder.iterdir()) == sorted([*SOURCES, path.name])


def test_without_a_compiler_it_is_python_only_and_says_what_is_missing(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.undo()
    monkeypatch.delenv(FORCE_PURE, raising=False)
    monkeypatch.setenv("CC", "no-such-compiler")
    outcome = hatch_build.build(folder)
    assert outcome.path is None
    assert "no-such-compiler" in outcome.told or "Cython is not installed" in outcome.told
    assert "Python does the work" in outcome.told
    assert built(folder) == []


def test_what_cannot_be_compiled_leaves_the_old_one_which_is_not_used(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    hatch_build.build(folder)
    (folder / "records.py").write_text("# another\n")

    def refuse(_folder: Path, _name: str) -> bytes:
        raise hatch_build._Impossible("there is no compiler")

    monkeypatch.setattr(hatch_build, "_compile", refuse)
    assert hatch_build.build(folder).path is None
    assert find(folder, {}).amiss


def test_a_folder_that_cannot_be_written_to_is_said(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(**_: Any) -> Any:
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(tempfile, "mkstemp", refuse)
    outcome = hatch_build.build(folder)
    assert outcome.path is None and "cannot be written to" in outcome.told


def test_a_disk_that_fills_up_leaves_nothing_half_written(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(_: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", refuse)
    assert hatch_build.build(folder).path is None
    assert sorted(each.name for each in folder.iterdir()) == sorted(SOURCES)


def test_python_can_be_asked_for(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(FORCE_PURE, "1")
    outcome = hatch_build.build(folder)
    assert outcome.path is None and FORCE_PURE in outcome.told
    assert built(folder) == []


@pytest.mark.parametrize("compiled", [True, False])
def test_a_wheel_says_for_whom_it_is(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, compiled: bool) -> None:
    monkeypatch.chdir(ROOT)
    path = tmp_path / f"record_kernel_1_2{compiled_files.SUFFIX}"
    path.write_bytes(b"compiled")
    outcome = hatch_build.Outcome(path if compiled else None, "told")
    hook = WheelBuilder(str(ROOT)).get_build_hooks(str(tmp_path))["custom"]
    monkeypatch.setitem(type(hook).initialize.__globals__, "build", lambda _: outcome)
    builder = WheelBuilder(str(ROOT))
    monkeypatch.setattr(builder, "get_build_hooks", lambda _: {"custom": hook})
    (made,) = builder.build(directory=str(tmp_path), versions=["standard"])
    with zipfile.ZipFile(made) as wheel:
        held = [name for name in wheel.namelist() if name.endswith(compiled_files.SUFFIX)]
        assert held == ([f"fencepost/protocol/{path.name}"] if compiled else [])
        assert {"fencepost/protocol/record_kernel.py", "fencepost/protocol/record_kernel.pxd"} <= set(wheel.namelist())
    assert made.endswith("-py3-none-any.whl") is not compiled
