"""The files that hold what was compiled of `fencepost.protocol.record_kernel`.

What is compiled lies beside the source that it was compiled of.  Its file says in its name which source that was, and
what its own bytes are; so that nothing runs but what belongs to the text beside it, whole.  After an edit, a checkout
or a patch, with another Python or on another kind of machine, Python does the work, with the same results, until it is
built anew (`make setup`, or the package installed again).
"""

from __future__ import annotations

import hashlib
import importlib.util
from collections.abc import Mapping
from importlib.machinery import EXTENSION_SUFFIXES, ExtensionFileLoader
from pathlib import Path
from types import ModuleType
from typing import Final, NamedTuple

#: What is compiled, and the modules whose functions it stands in for.
SOURCES: Final = (
    *("record_kernel.py", "record_kernel.pxd", "record_pieces.py", "record_tuples.py"),
    *("records.py", "record_decoding.py", "record_scan.py", "partitioning.py"),
)
MODULE: Final = "record_kernel_compiled"
"""Its name for itself."""
SUFFIX: Final = EXTENSION_SUFFIXES[0]
"""Says for which Python, which kind of processor and which system something was compiled."""
FORCE_PURE: Final = "FENCEPOST_PURE"
"""An environment variable: where it has any value, nothing is compiled, and nothing that was is used."""

_PREFIX: Final = "record_kernel_"
_DIGITS: Final = 16


class Found(NamedTuple):
    """What there is of compiled code."""

    module: ModuleType | None
    """None: Python does the work."""
    why: str
    """What does the work, and why, in a sentence."""
    amiss: bool = False
    """Whether something was compiled that cannot be used."""


def digest_of(data: bytes) -> str:
    """The digest of a source, in the 64 bits that a file name has of it."""
    return hashlib.sha256(data).hexdigest()[:_DIGITS]


def source_digest(folder: Path) -> str:
    """Of the text in that folder of which something is, or would be, compiled.  Raises OSError if it is not there."""
    return digest_of(b"".join(digest_of((folder / name).read_bytes()).encode() for name in SOURCES))


def file_name(source: str, content: bytes) -> str:
    """What the file is called whose bytes are these, compiled from the source with this digest."""
    return f"{_PREFIX}{source}_{digest_of(content)}{SUFFIX}"


def built(folder: Path) -> list[Path]:
    """All that was compiled for this Python there, of whatever source.  Raises OSError."""
    return sorted(path for path in folder.iterdir() if path.name.startswith(_PREFIX) and path.name.endswith(SUFFIX))


def find(folder: Path, environ: Mapping[str, str]) -> Found:
    """Load what was compiled of the source in that folder, if that is there, is whole, and is wanted."""
    if environ.get(FORCE_PURE):
        return Found(None, f"Python does the work on records: {FORCE_PURE} is set")
    try:
        candidates, source = built(folder), source_digest(folder)
    except OSError:
        return Found(None, "Python does the work on records: the package is not in a folder")
    if not candidates:
        return Found(None, "Python does the work on records: nothing was compiled for this Python on this machine")
    wrong = "what was compiled belongs to another source"
    for path in candidates:
        if not path.name.startswith(f"{_PREFIX}{source}_"):
            continue
        try:
            if path.name != file_name(source, path.read_bytes()):
                wrong = f"{path.name} is not what was compiled: it was cut short or changed"
                continue
            return Found(_load(path), "compiled code does the work on records")
        except (OSError, ImportError) as error:
            wrong = f"{path.name} cannot be loaded ({error})"
    return Found(
        None, f"Python does the work on records, more slowly: {wrong}. Run `make setup`, or install again", True
    )


def _load(path: Path) -> ModuleType:
    spec = importlib.util.spec_from_file_location(MODULE, path, loader=ExtensionFileLoader(MODULE, str(path)))
    assert spec is not None and spec.loader is not None, "a loader was given"
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module
