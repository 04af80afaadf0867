"""Tells which of the commit log's files on disk count.

A removal can be undone by a power loss, that of one generation without that of the next.  So only those count that
follow each other without a gap: what is before one was to go.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Final

from fencepost.log.commit_log_entries import GENERATION, MAGIC
from fencepost.log.commit_log_reading import read_generation
from fencepost.log.disk import Disk
from fencepost.log.outcome import StorageFailed

_LARGEST: Final = 1 << 62
"""No node begins as many generations."""


class CommitLogDamaged(StorageFailed):
    """The disk has damaged what it had synced of the commit log; nothing was changed."""


def those_that_count(disk: Disk, path: Callable[[int], Path], generations: Sequence[int]) -> Sequence[int]:
    """The generations that count, in order.  `path`: gives the file of a generation.

    Raises CommitLogDamaged if the newest file is none of ours: it would have all others count for nothing.  OSError.
    """
    if not generations:
        return ()
    newest = first = generations[-1]
    while first - 1 in generations:
        first -= 1
    if newest > _LARGEST or (first == newest and len(generations) > 1 and not _is_begun(disk, path(newest), newest)):
        raise CommitLogDamaged(
            f"{path(newest)} is no file that a node wrote: the one with the number before is not there. Nothing was "
            "changed. Move it away, then start again"
        )
    return range(first, newest + 1)


def _is_begun(disk: Disk, path: Path, generation: int) -> bool:
    """Whether anything in the file is of that generation: those before it could go only when it was begun."""
    file = disk.open(path)
    try:
        data = file.pread(file.size(), 0)
    finally:
        file.close()
    return data.startswith(MAGIC + GENERATION.pack(generation)) or read_generation(data, generation, True).marked
