"""Writing down the indexes and producers of every partition that has changed, so that older generations may go."""

from __future__ import annotations

from collections.abc import Container, Iterable, Iterator, MutableMapping
from pathlib import Path
from typing import NamedTuple

from fencepost.log.checkpoint_files import PARTITION_METADATA
from fencepost.log.commit_log_entries import NamedFile
from fencepost.log.damage import FileDamaged
from fencepost.log.disk import Disk, File, NothingLeft, closed_on_failure
from fencepost.log.partition import Partition
from fencepost.log.producer_snapshot import (
    open_snapshot,
    remove_snapshot,
    snapshot_exists,
    snapshot_offsets,
    write_snapshot,
)
from fencepost.node_log import get_logger
from fencepost.protocol.types import NO_OFFSET, Offset

logger = get_logger(__name__)


def named_file(partition: Partition) -> NamedFile:
    """The segment of a partition that is written to, as a FILE entry names it now."""
    segment, end = partition.segments[-1], partition.log_end_offset
    path = f"{partition.directory.name}/{segment.path.name}"
    return NamedFile(segment.number, segment.size, end, partition.topic_id.bytes, path)


def pending_files(partitions: Iterable[Partition], pending: Container[int]) -> Iterator[NamedFile]:
    """The segments that pending entries write to: a generation begins with these."""
    for partition in partitions:
        for segment in partition.segments[:-1]:
            if segment.number in pending:
                path = f"{partition.directory.name}/{segment.path.name}"
                yield NamedFile(segment.number, 0, NO_OFFSET, partition.topic_id.bytes, path)
        if partition.segments[-1].number in pending:
            yield named_file(partition)


def write_down(disk: Disk, partition: Partition) -> None:
    """Write down the indexes of the last segment and the producers as of here, before a new segment begins."""
    with closed_on_failure() as files:
        files += partition.segments[-1].write_indexes()
        if not snapshot_exists(disk, partition.directory, partition.log_end_offset):
            # Else it is a checkpoint's, and being rewritten it might be lost.
            entries = list(partition.producers.entries.values())
            files += write_snapshot(disk, partition.directory, partition.log_end_offset, entries)
    for file in files:
        file.close()


class Checkpoint:
    """Writes some partitions down, each as of one moment: what is written counts when `files` are synced.

    `logged_reasons`: why some could not be written by earlier ones: the same is not logged again.
    `identified`: those whose id is synced.
    """

    def __init__(
        self, disk: Disk, logged_reasons: MutableMapping[Partition, str], identified: Container[Partition] = ()
    ) -> None:
        self._disk, self._logged_reasons, self._identified = disk, logged_reasons, identified
        self._opened: list[File] = []
        self.files: list[File] = []
        """The files that must be synced."""
        self.places: dict[Partition, Place] = {}
        self.named: set[Partition] = set()
        """Partitions whose newest segment the commit log names as it is at this place."""

    def add_directory(self, path: Path) -> None:
        """Have a directory synced: what was made in it, and removed from it.  Raises NothingLeft."""
        self._opened.append(self._disk.open_directory(path))
        self.files.append(self._opened[-1])

    def write(self, partition: Partition) -> None:
        """Write the indexes and producer snapshot of one partition.  Raises NothingLeft, which ends the checkpoint."""
        segments = partition.unsynced_segments()
        self.files += [segment.file for segment in segments]
        opened: list[File] = []
        try:
            self.add_directory(partition.directory)
            if partition not in self._identified:
                # Behind this nothing else may say whose the records are: not the commit log, once it is damaged.
                opened += self._identity(partition)
            for segment in segments:
                opened += segment.write_indexes()
                # Of what is before the log nothing else says who is known, if the newest one is not to be used.
                opened += open_snapshot(self._disk, partition.directory, segment.base_offset)
            end = partition.log_end_offset
            if end != partition.checkpoint_offset or not snapshot_exists(self._disk, partition.directory, end):
                # Else it is the last checkpoint's, and being rewritten it might be lost.
                entries = list(partition.producers.entries.values())
                opened += write_snapshot(self._disk, partition.directory, end, entries)
        except NothingLeft:
            self._opened += opened
            raise
        except (OSError, FileDamaged) as error:
            # Its records are synced all the same; the next start makes the rest again from them.
            self._opened += opened
            if self._logged_reasons.get(partition) != str(error):
                self._logged_reasons[partition] = str(error)
                logger.error(
                    "the indexes and producers of %s cannot be written, the next start makes them again: %s",
                    partition.directory,
                    error,
                )
            return
        self._logged_reasons.pop(partition, None)
        self._opened += opened
        self.files += opened
        newest = segments[-1]
        self.places[partition] = Place(newest.number, newest.size, end)

    def _identity(self, partition: Partition) -> Iterator[File]:
        path = partition.directory / PARTITION_METADATA
        if self._disk.exists(path):
            yield self._disk.open(path)

    def close(self) -> None:
        for file in self._opened:
            file.close()


class Place(NamedTuple):
    """Up to where a partition is written down: a size of its newest segment, and the offset that follows."""

    number: int
    """The number of that segment in the commit log."""
    size: int
    next_offset: Offset


def completed(disk: Disk, partition: Partition, offset: Offset) -> None:
    """Note that all before `offset` is synced; remove older producer snapshots, but not those at bases of segments."""
    partition.checkpointed(offset)
    keep = {offset, *partition.segments.bases}
    for old in snapshot_offsets(disk, partition.directory):
        if old not in keep and old < offset:
            try:
                remove_snapshot(disk, partition.directory, old)
            except OSError as error:
                # It is in nobody's way; the node goes on.
                logger.warning("an old producer snapshot cannot be removed, do it by hand: %s", error)
