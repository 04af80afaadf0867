"""Deleting a partition, so that a crash at any step leaves it to be finished by the next start, or undone by nobody.

Whoever keeps the topics notes durably that the topic id is deleted.  Then each directory gets a name that says so, the
parent directory is synced, and the commit log is told; when that is durable the files go.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple

from fencepost.log import data_directory
from fencepost.log.commit_log import CommitLog
from fencepost.log.data_directory import Survey, deleted_name, is_of, remove_partition
from fencepost.log.disk import Disk
from fencepost.log.file_names import numbered
from fencepost.log.offline import OfflinePartition
from fencepost.log.partition import Partition
from fencepost.node_log import get_logger
from fencepost.protocol.types import FIRST_OFFSET, Lsn

logger = get_logger(__name__)


class Deletion(NamedTuple):
    """A partition that is being deleted."""

    lsn: Lsn
    """The lsn of the deletion: when this is durable in the commit log..."""
    finish: Callable[[], None]
    """... this removes the files."""
    renamed: bool
    """Whether the name of its directory says what it is."""


def begin(disk: Disk, log: CommitLog, partition: Partition | OfflinePartition) -> Deletion:
    """Tell the commit log, and rename the directory.  What is there of an offline partition goes if it is its own."""
    directory = partition.directory
    for name in _segments(disk, partition):
        log.add_remove(f"{directory.name}/{name}")
    lsn = log.add_start(FIRST_OFFSET, directory.name)
    gone = directory.with_name(deleted_name(directory.name, partition.topic_id.bytes))
    ours = isinstance(partition, Partition) or is_of(disk, directory, partition.topic_id.bytes)
    renamed = ours and _rename(disk, directory, gone)
    if not ours:
        assert isinstance(partition, OfflinePartition)
        logger.warning("what is in %s stays, although the topic is deleted: %s", directory, partition.reason)

    def finish() -> None:
        if isinstance(partition, Partition):
            for segment in partition.segments:
                segment.close()
        if renamed:
            remove_named(disk, gone)

    return Deletion(lsn, finish, renamed or not ours)


def _segments(disk: Disk, partition: Partition | OfflinePartition) -> Iterator[str]:
    if isinstance(partition, Partition):
        yield from (segment.path.name for segment in partition.segments)
    else:
        yield from (name for name, _ in numbered(disk.list(partition.directory), ".log"))


def _rename(disk: Disk, directory: Path, gone: Path) -> bool:
    try:
        disk.rename(directory, gone)
    except OSError as error:
        logger.warning("%s of a deleted topic is left until the next start: %s", directory, error)
        return False
    return True


def remove_named(disk: Disk, directory: Path) -> None:
    """Remove the files of a deleted partition, and say what stays."""
    why = remove_partition(disk, directory)
    if why:
        logger.warning("%s", why)


def finish(disk: Disk, root: Path, found: Survey) -> None:
    """Remove, at the start, what was not removed before the node ended, and name what nobody knows."""
    for name in found.deleted:
        remove_named(disk, root / name)
    if found.deleted:
        disk.sync_directory(root)
    if found.strays:
        logger.warning("%s", data_directory.strays_sentence(root, found.strays))
