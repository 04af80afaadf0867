"""What was compiled is used where it belongs to the source beside it and is whole, and nowhere else."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from tests.twins import need_compiled

from fencepost.compiled import files as compiled_files
from fencepost.compiled.files import FORCE_PURE, SOURCES, SUFFIX, built, file_name, find, source_digest
from fencepost.compiled.in_use import IN_USE, compiled

PACKAGE = Path(compiled_files.__file__).parents[1] / "protocol"
CONTENT = b"what a compiler made"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """The source, and nothing compiled."""
    for name in SOURCES:
        shutil.copy(PACKAGE / name, tmp_path)
    return tmp_path


def put(folder: Path, content: bytes = CONTENT) -> Path:
    path = folder / file_name(source_digest(folder), content)
    path.write_bytes(content)
    return path


def test_without_anything_compiled_python_does_the_work(folder: Path) -> None:
    found = find(folder, {})
    assert (found.module, found.amiss) == (None, False)
    assert "nothing was compiled" in found.why


def loaded(folder: Path, **environ: str) -> str:
    """What a new process says of that folder, which has a package of the whole of the source in it."""
    code = (
        "import sys, pathlib; from fencepost.compiled.files import find; "
        f"found = find(pathlib.Path(sys.argv[1]), {environ!r}); "
        "print(found.module is not None, found.amiss, found.why); "
        "found.module and print(found.module.murmur2(b'21'))"
    )
    return subprocess.run([sys.executable, "-c", code, str(folder)], capture_output=True, text=True, check=True).stdout


@pytest.fixture
def whole(folder: Path) -> Path:
    """The source with what was compiled of it."""
    found = built(PACKAGE)
    if not found:
        pytest.skip("nothing was compiled on this machine")
    for path in found:
        shutil.copy(path, folder)
    return folder


def test_what_was_compiled_of_the_source_beside_it_is_used(whole: Path) -> None:
    assert loaded(whole) == "True False compiled code does the work on records\n3321034988\n"


def test_an_environment_variable_forces_python(whole: Path) -> None:
    found = find(whole, {FORCE_PURE: "1"})
    assert (found.module, found.amiss) == (None, False)
    assert FORCE_PURE in found.why
    assert loaded(whole, **{FORCE_PURE: ""}).startswith("True")


@pytest.mark.parametrize("name", SOURCES)
def test_after_any_change_of_the_source_it_is_not_used_and_that_is_said(whole: Path, name: str) -> None:
    """An edit, a patch, another commit checked out: each is another text."""
    with (whole / name).open("a") as file:
        file.write("# changed\n")
    found = find(whole, {})
    assert (found.module, found.amiss) == (None, True)
    assert "another source" in found.why and "make setup" in found.why


def test_every_text_that_it_stands_in_for_has_a_part_in_its_name(tmp_path: Path) -> None:
    """So that what is built of one text is never found beside another, whichever of them changes."""
    for name in SOURCES:
        (tmp_path / name).write_text(name)
    seen = {source_digest(tmp_path)}
    for name in SOURCES:
        (tmp_path / name).write_text(f"{name} changed")
        seen.add(source_digest(tmp_path))
    assert len(seen) == len(SOURCES) + 1


@pytest.mark.parametrize("left", [0, 1, 4096, -4096, -1])
def test_a_file_that_was_cut_short_is_not_even_loaded(whole: Path, left: int) -> None:
    """To load a library whose end is missing may end the process."""
    (path,) = built(whole)
    path.write_bytes(path.read_bytes()[:left])
    found = find(whole, {})
    assert (found.module, found.amiss) == (None, True)
    assert path.name in found.why and "cut short" in found.why


def test_a_changed_byte_is_noticed(whole: Path) -> None:
    (path,) = built(whole)
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 1
    path.write_bytes(content)
    assert find(whole, {}).module is None


def test_what_cannot_be_loaded_is_named(folder: Path) -> None:
    path = put(folder)
    found = find(folder, {})
    assert (found.module, found.amiss) == (None, True)
    assert path.name in found.why and "cannot be loaded" in found.why


@pytest.mark.parametrize("digit", "0f")
def test_a_damaged_one_does_not_hide_a_whole_one(whole: Path, digit: str) -> None:
    """Wherever it stands in the order of their names, which end with a digest."""
    path = put(whole)
    digest = path.name.removesuffix(SUFFIX).rpartition("_")[2]
    path.rename(path.with_name(path.name.replace(digest, digit * len(digest)))).write_bytes(b"damaged")
    assert len(built(whole)) == 2
    assert loaded(whole).startswith("True False")


@pytest.mark.parametrize("suffix", [".cpython-27-m68k-linux-gnu.so", ".cp399-win_amd64.pyd", ".building"])
def test_what_was_compiled_for_others_is_nothing_to_this_python(folder: Path, suffix: str) -> None:
    path = put(folder)
    path.rename(path.with_name(path.name.removesuffix(SUFFIX) + suffix))
    found = find(folder, {})
    assert (found.module, found.amiss) == (None, False)


def test_a_package_that_is_not_in_a_folder_is_python_only(tmp_path: Path) -> None:
    """As on Spark's executors, where it may be in an archive."""
    archive = tmp_path / "fencepost.zip"
    archive.write_bytes(b"")
    assert find(archive / "fencepost" / "protocol", {}).amiss is False


def test_a_compiled_function_is_the_one_of_its_name() -> None:
    need_compiled()
    from fencepost.protocol import record_kernel

    form = compiled(record_kernel.murmur2)
    assert form is not None and form is not record_kernel.murmur2
    assert form(b"21") == record_kernel.murmur2(b"21")


def test_nothing_compiled_is_in_use_that_is_not_of_this_source() -> None:
    """Of this very process."""
    if IN_USE.module is not None:
        name = Path(str(IN_USE.module.__file__)).name
        assert name == file_name(source_digest(PACKAGE), (PACKAGE / name).read_bytes())


def test_a_stale_one_is_warned_of_where_a_person_sees_it(tmp_path: Path) -> None:
    copy = tmp_path / "fencepost"
    shutil.copytree(PACKAGE.parent, copy, ignore=shutil.ignore_patterns("*.so", "__pycache__"))
    put(copy / "protocol")
    (copy / "protocol" / "records.py").write_text((PACKAGE / "records.py").read_text() + "\n")
    run = [sys.executable, "-c", "from fencepost.protocol.records import encode_batch"]
    done = subprocess.run(run, cwd=tmp_path, capture_output=True, text=True, check=True)
    assert "RuntimeWarning" in done.stderr and "make setup" in done.stderr
    assert str(tmp_path) in done.stderr, "it is the copy that runs"
