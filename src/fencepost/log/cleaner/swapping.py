"""A cleaned segment takes the place of the segments it was made from, whole or not at all, whenever the node ends.

For the segments with the bases 0, 100 and 200, the next one being 300:

    written and synced     0.log.cleaned, 0.index.cleaned, 0.timeindex.cleaned, 0.txnindex.cleaned,
                           0.checksums.cleaned
    decided                0.log.cleaned renamed to 0.300.swap, the directory synced
    carried out            100.* and 200.* removed, the indexes renamed over 0.index and so on, the directory synced,
                           then 0.300.swap renamed over 0.log

A start that finds a `.swap` carries it out from wherever it had come; what is left of `.cleaned` after that was never
decided, and is removed.  None of these segments may be named in a commit log that is still there, or its bytes would be
written into the new one.  (Bases and ends have 20 digits.)
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Final

from fencepost.log.disk import Disk
from fencepost.log.file_names import numbered, numbered_path
from fencepost.log.segment_sums import SUFFIX
from fencepost.protocol.types import Offset

CLEANED: Final = ".cleaned"
INDEXES: Final = (".index", ".timeindex", ".txnindex", SUFFIX)
_SWAP: Final = re.compile(r"([0-9]{20})\.([0-9]{20})\.swap")


def _file(directory: Path, base: Offset, suffix: str) -> Path:
    return numbered_path(directory, base, suffix)


def discard(disk: Disk, directory: Path) -> None:
    """Remove the files of a cleaned segment whose swap was not decided."""
    for name, _ in numbered(disk.list(directory), *(suffix + CLEANED for suffix in (".log", *INDEXES))):
        disk.remove(directory / name)


def decide(disk: Disk, directory: Path, base: Offset, end: Offset) -> None:
    """Decide the swap of a cleaned segment, whole and synced: once the directory is synced, it will be carried out."""
    disk.rename(_file(directory, base, ".log" + CLEANED), directory / f"{base:020d}.{end:020d}.swap")


def carry_out(disk: Disk, directory: Path, base: Offset, end: Offset) -> None:
    """Put the cleaned segment in the place of all segments from `base` up to `end`.  May have been begun before."""
    names = disk.list(directory)
    for name, at in numbered(names, ".log", *INDEXES):
        if base < at < end:
            disk.remove(directory / name)
    for suffix in INDEXES:
        fresh = _file(directory, base, suffix + CLEANED)
        if fresh.name in names:
            disk.rename(fresh, _file(directory, base, suffix))
    # Without this the new segment might come to stand beside some that it was made from.
    disk.sync_directory(directory)
    disk.rename(directory / f"{base:020d}.{end:020d}.swap", _file(directory, base, ".log"))


def finish(disk: Disk, directory: Path) -> None:
    """At the start: carry out the swaps that were decided, forget those that were not."""
    names = disk.list(directory)
    decided = list(filter(None, map(_SWAP.fullmatch, names)))
    if decided:
        # After a kill the decision may be in the page cache only: it must not be lost once it is acted upon.
        disk.sync_directory(directory)
    for found in decided:
        carry_out(disk, directory, Offset(int(found[1])), Offset(int(found[2])))
    if any(name.endswith((CLEANED, ".swap")) for name in names):
        discard(disk, directory)
        disk.sync_directory(directory)
