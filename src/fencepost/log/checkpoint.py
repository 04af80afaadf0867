"""Writing down the indexes and producers of every partition that has changed, so that older generations may go."""

from __future__ import annotations

from collections.abc import Container, Iterable, Iterator
from pathlib import Path

from fencepost.log.commit_log import NamedFile
from fencepost.log.damage import FileDamaged
from fencepost.log.disk import Disk, File, NothingLeft
from fencepost.log.partition import Partition
from fencepost.log.producer_snapshot import remove_snapshot, snapshot_exists, snapshot_offsets, write_snapshot
from fencepost.node_log import get_logger

logger = get_logger(__name__)


def named_files(partitions: Iterable[Partition], pending: Container[int]) -> Iterator[NamedFile]:
    """What a generation begins with: every segment that is written to, and those that pending entries write to."""
    for partition in partitions:
        directory = partition.directory.name
        for segment in partition.segments:
            path = f"{directory}/{segment.path.name}"
            if segment is partition.segments[-1]:
                end = partition.log_end_offset
                yield NamedFile(segment.number, segment.size, end, partition.topic_id.bytes, path)
            elif segment.number in pending:
                yield NamedFile(segment.number, 0, -1, partition.topic_id.bytes, path)


def starts(partitions: Iterable[Partition], replayed: Container[str]) -> Iterator[tuple[str, int]]:
    """Directory and first offset of each partition where that has moved, or where an older generation said so."""
    for partition in partitions:
        if partition.log_start_offset or partition.directory.name in replayed:
            yield partition.directory.name, partition.log_start_offset


def write_down(disk: Disk, partition: Partition) -> None:
    """Before a segment is begun at the log end: the indexes of the one before, and the producers as of here."""
    files = partition.segments[-1].write_indexes()
    if not snapshot_exists(disk, partition.directory, partition.log_end_offset):
        # Else it is a checkpoint's, and being rewritten it might be lost.
        entries = list(partition.producers.entries.values())
        files += write_snapshot(disk, partition.directory, partition.log_end_offset, entries)
    for file in files:
        file.close()


class Checkpoint:
    """All partitions at one moment: written at once, complete when `files` are synced and `finish` is called.

    Raises NothingLeft; then nothing counts.
    """

    def __init__(self, disk: Disk, root: Path, partitions: list[Partition]) -> None:
        self._disk = disk
        self._opened: list[File] = [disk.open_directory(root)]
        self.files: list[File] = self._opened[:]
        """What must be synced."""
        self._offsets: dict[Partition, int] = {}
        try:
            for partition in partitions:
                self._write(partition)
        except NothingLeft:
            self.close()
            raise

    def _write(self, partition: Partition) -> None:
        segments = partition.unsynced_segments()
        self.files += [segment.file for segment in segments]
        opened: list[File] = []
        try:
            opened.append(self._disk.open_directory(partition.directory))
            for segment in segments:
                opened += segment.write_indexes()
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
            logger.error(
                "the indexes and producers of %s cannot be written, the next start makes them again: %s",
                partition.directory,
                error,
            )
            return
        self._opened += opened
        self.files += opened
        self._offsets[partition] = partition.log_end_offset

    def finish(self, alive: Container[Partition]) -> None:
        """Everything is synced: the partitions that are still there need nothing older."""
        self.close()
        for partition, offset in self._offsets.items():
            if partition not in alive:
                continue
            partition.checkpointed(offset)
            keep = {offset, *partition.bases}
            for old in snapshot_offsets(self._disk, partition.directory):
                if old not in keep and old < offset:
                    remove_snapshot(self._disk, partition.directory, old)

    def close(self) -> None:
        for file in self._opened:
            file.close()
