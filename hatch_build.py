"""Compile the work on records, where there is a compiler; where there is none the package is Python only.

    python hatch_build.py    # into src/, for an editable install: does nothing where that is done

Installing calls it too, as a build hook of hatchling.  It never fails: what it could not do it says in a sentence, and
everything works without it, more slowly.  What is compiled appears whole or not at all, under a name that tells its
source (`fencepost.compiled.files`): two that build at once do not meet, and nothing old is taken for new.
"""

from __future__ import annotations

import contextlib
import importlib.util
import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from types import ModuleType
from typing import Any, Final, NamedTuple

from hatchling.builders.hooks.plugin.interface import BuildHookInterface

ROOT: Final = Path(__file__).resolve().parent
FOLDER: Final = ROOT / "src" / "fencepost" / "protocol"
_KERNEL: Final = "record_kernel"
_DIRECTIVES: Final = {
    "language_level": 3,
    "boundscheck": True,
    "wraparound": False,
    "annotation_typing": False,
    "binding": False,
    "infer_types": False,
}
_SECONDS: Final = 300


class Outcome(NamedTuple):
    """What became of it."""

    path: Path | None
    """Where the compiled code is; None: there is none."""
    told: str
    """What to say; nothing if nothing was done."""


def build(folder: Path = FOLDER) -> Outcome:
    """See that what is compiled of the source in that folder is there, and nothing older.  Never raises."""
    files = _files()
    if os.environ.get(files.FORCE_PURE):
        return Outcome(None, f"Python does the work on records: {files.FORCE_PURE} is set")
    source = files.source_digest(folder)
    for path in files.built(folder):
        with contextlib.suppress(OSError):
            if path.name == files.file_name(source, path.read_bytes()):
                return Outcome(path, "")
    try:
        content = _compile(folder, files.MODULE)
        path = folder / files.file_name(source, content)
        _put(path, content)
    except _Impossible as impossible:
        return Outcome(None, f"Python does the work on records: {impossible}. Everything works, more slowly")
    except OSError as error:
        return Outcome(None, f"Python does the work on records: {folder} cannot be written to ({error.strerror})")
    for old in files.built(folder):
        if old.name != path.name:
            with contextlib.suppress(OSError):
                old.unlink()
    return Outcome(path, "the work on records is compiled")


class _Impossible(Exception):
    """There is nothing to compile with; the message says what is missing."""


def _files() -> ModuleType:
    """`fencepost.compiled.files`, without the package and all that it needs."""
    spec = importlib.util.spec_from_file_location("files_of_the_build", FOLDER.parent / "compiled" / "files.py")
    assert spec is not None and spec.loader is not None, "it is there as source"
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module  # named tuples look their module up
    spec.loader.exec_module(module)
    return module


def _compile(folder: Path, name: str) -> bytes:
    """The bytes of the compiled module.  Raises _Impossible, OSError."""
    with tempfile.TemporaryDirectory() as made:
        work = Path(made)
        for kind in ("py", "pxd"):
            shutil.copyfile(folder / f"{_KERNEL}.{kind}", work / f"{name}.{kind}")
        # In a process of its own: neither leaves anything behind here, nor says anything to whoever installs.
        command = [sys.executable, str(Path(__file__).resolve()), "--compile", name]
        try:
            done = subprocess.run(command, cwd=work, capture_output=True, text=True, timeout=_SECONDS)
        except subprocess.TimeoutExpired:
            raise _Impossible(f"compiling took longer than {_SECONDS} s") from None
        found = [path for path in work.glob(f"{name}.*") if path.suffix in (".so", ".pyd")]
        if done.returncode or not found:
            said = [line.strip() for line in done.stderr.splitlines() if line.strip()]
            raise _Impossible(f"it could not be compiled ({said[-1] if said else 'it says nothing'})")
        return found[0].read_bytes()


def _compile_here(name: str) -> None:
    """From Python to a module of C, in the working directory."""
    try:
        from Cython.Build import cythonize
        from setuptools import Distribution, Extension
    except ImportError as error:
        sys.exit(f"{error.name} is not installed")
    extension = Extension(name, [f"{name}.py"], extra_compile_args=[] if os.name == "nt" else ["-O2", "-g0"])
    compile_to_c: Any = cythonize
    modules = compile_to_c([extension], compiler_directives=_DIRECTIVES, quiet=True)
    command = Distribution({"ext_modules": modules}).get_command_obj("build_ext")
    command.inplace = True
    command.ensure_finalized()
    command.run()


def _put(path: Path, content: bytes) -> None:
    """Make a file that is whole from the first moment that it has its name."""
    handle, name = tempfile.mkstemp(dir=path.parent, prefix=".building-")
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        os.chmod(name, 0o644)
        os.replace(name, path)
    except BaseException:
        os.unlink(name)
        raise


class CompiledRecords(BuildHookInterface[Any]):
    """Puts what could be compiled into a wheel, which then is one for this Python on this kind of machine."""

    PLUGIN_NAME = "custom"

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        if self.target_name != "wheel":
            return
        path, told = build(Path(self.root) / FOLDER.relative_to(ROOT))
        if told:
            self.app.display_info(told)
        if path is not None and version == "standard":
            build_data["pure_python"] = False
            build_data["infer_tag"] = True
            build_data["force_include"][str(path)] = f"fencepost/protocol/{path.name}"


def main() -> None:
    if sys.argv[1:2] == ["--compile"]:
        _compile_here(sys.argv[2])
        return
    told = build().told
    if told:
        print(f"setup: {told}", flush=True)


if __name__ == "__main__":
    main()
