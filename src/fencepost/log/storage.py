"""All partitions of one node in one directory, and their way back after a crash.

The layout is Apache Kafka's (`<topic>-<partition>/<offset>.log` and so on), so that its tools read the directory; the
commit log stands beside it in `commit-log/`.
"""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple

from fencepost.log import checkpoint_files
from fencepost.log.commit_log import EXTENT_THRESHOLD, CommitLog, StorageFailed
from fencepost.log.disk import DirectoryInUse, Disk, File
from fencepost.log.partition import Partition
from fencepost.log.producer_snapshot import remove_snapshot, snapshot_offsets, write_snapshot
from fencepost.log.recovery import recover
from fencepost.log.replay import Replay
from fencepost.log.segment import Segment
from fencepost.log.settings import LogSettings
from fencepost.protocol.types import Buffer
from fencepost.runtime import Clock

FORMAT_VERSION = 1


class DirectoryUnusable(Exception):
    """The data directory cannot be used; the message says why and what to do."""


class _Checkpoint(NamedTuple):
    """A partition as it was written down, and the files to close once they are synced."""

    partition: Partition
    offset: int
    closing: list[File]


class Storage:
    """See the module.  `failed` is called when a sync fails: whoever owns the process must end it then."""

    def __init__(
        self,
        disk: Disk,
        path: Path,
        settings: LogSettings,
        clock: Clock,
        flush: str = "durable",
        failed: Callable[[StorageFailed], None] | None = None,
    ) -> None:
        if flush not in ("durable", "os"):
            raise ValueError(f"flush is {flush!r}: it must be 'durable' or 'os'")
        self._disk = disk
        self.path = path
        self.settings = settings
        self._clock = clock
        self.flush_to_os = flush == "os"
        self._failed = failed or self._raise
        self._partitions: dict[tuple[str, int], Partition] = {}
        self._log = CommitLog(disk, path / "commit-log", self._fail)
        self._dirty: dict[Partition, None] = {}
        self._taken: dict[Partition, int] = {}
        self._new_files: dict[Partition, None] = {}
        """Partitions with segments whose directory entry is not synced yet."""
        self._next_number = 0
        self._flush_scheduled = False
        self._release: Callable[[], None] | None = None
        self._replay = Replay()
        self._checkpointing = False
        self.failure: StorageFailed | None = None

    @staticmethod
    def _raise(failure: StorageFailed) -> None:
        raise failure

    def _fail(self, failure: StorageFailed) -> None:
        self.failure = failure
        self._failed(failure)

    # Opening and closing

    def open(self) -> None:
        """Take the directory and bring every segment to what was durable.  Partitions are then opened one by one.

        Raises DirectoryUnusable: locked by a live process, unreadable, or of a newer format.
        """
        try:
            self._disk.make_directory(self.path)
            self._disk.make_directory(self._log.path(0).parent)
            self._release = self._disk.lock(self.path / ".lock")
        except DirectoryInUse:
            raise DirectoryUnusable(
                f"the data directory {self.path} is used by another running broker: stop it, or choose another --data"
            ) from None
        except OSError as error:
            raise DirectoryUnusable(
                f"the data directory {self.path} cannot be used: {error.strerror or error}"
            ) from error
        self._disk.sync_directory(self.path)
        checkpoint_files.check_version(self._disk, self.path, FORMAT_VERSION, DirectoryUnusable)
        self._replay = Replay()
        self._replay.read(self._disk, self._log)
        if not self.flush_to_os:
            self._replay.apply(self._disk, self.path)

    def start(self) -> None:
        """After the partitions were opened: begin a generation of our own and forget the older ones."""
        older = self._log.generations()
        self._log.begin(self._replay.newest + 1)
        self._checkpoint_files_now()
        for generation in older:
            self._disk.remove(self._log.path(generation))
        self._disk.sync_directory(self._log.path(0).parent)
        self._replay = Replay()
        self._remove_strays()

    def _remove_strays(self) -> None:
        """Remove what deleted topics left behind when the node ended in between."""
        ours = {partition.directory.name for partition in self._partitions.values()}
        for name in self._disk.list(self.path):
            if name not in ours and self._disk.exists(self.path / name / "partition.metadata"):
                self._disk.remove_tree(self.path / name)

    def _checkpoint_files_now(self) -> None:
        files, snapshots = self._write_checkpoint()
        self._disk.sync_now(files)
        self._log.name_files(self._known_files())
        for partition in self._partitions.values():
            if partition.log_start_offset:
                self._log.add_start(partition.log_start_offset, partition.directory.name)
        self._log.flush_now()
        self._finish_checkpoint(snapshots)

    def close(self) -> None:
        """A clean stop: everything is synced, the next start has nothing to redo.  Nothing may be under way."""
        if self.failure is None:
            self._log.flush_now()
            for partition in self._partitions.values():
                partition.advance(partition.log_end_offset)
            older = self._log.generations()
            self._log.begin(self._log.generation + 1)
            self._checkpoint_files_now()
            for generation in older:
                self._disk.remove(self._log.path(generation))
        self.abandon()

    def abandon(self) -> None:
        """Let go of every file without writing anything, as a crash does."""
        self._log.close()
        for partition in self._partitions.values():
            for segment in partition.segments:
                segment.close()
        self._partitions.clear()
        if self._release is not None:
            self._release()
            self._release = None

    # Partitions

    def partition(self, topic: str, index: int) -> Partition | None:
        return self._partitions.get((topic, index))

    def partitions(self) -> Iterator[Partition]:
        """Every partition, sorted by topic and number."""
        for key in sorted(self._partitions):
            yield self._partitions[key]

    def create_partition(
        self,
        topic: str,
        topic_id: uuid.UUID,
        index: int,
        settings: LogSettings | None = None,
        leader_epoch: int = 0,
    ) -> Partition:
        """Open the partition, which may be there from an earlier run, or make it."""
        known = self._partitions.get((topic, index))
        if known is not None:
            return known
        directory = self.path / f"{topic}-{index}"
        if checkpoint_files.read_topic_id(self._disk, directory) not in (None, topic_id):
            # A topic of this name was deleted and made again; what is left here is the old one's.
            self._disk.remove_tree(directory)
        partition = Partition(
            self, self._disk, directory, topic, index, topic_id, settings or self.settings, leader_epoch
        )
        if not self._disk.exists(directory / "partition.metadata"):
            self._disk.make_directory(directory)
            checkpoint_files.write_partition_metadata(self._disk, directory, topic_id)
        recover(partition, self._replay, self._number, self.flush_to_os)
        if not partition.segments:
            partition.roll()
        self._partitions[topic, index] = partition
        return partition

    def delete_topic(self, topic: str) -> None:
        """Remove every partition of a topic; the files go when their removal is durable in the commit log."""
        for key in [key for key in self._partitions if key[0] == topic]:
            partition = self._partitions.pop(key)
            self._dirty.pop(partition, None)
            self._new_files.pop(partition, None)
            lsn = 0
            for segment in partition.segments:
                lsn = self._log.add_remove(segment.number)
                segment.close()
            lsn = self._log.add_start(0, partition.directory.name)
            gone = self.path / f"{uuid.uuid5(partition.topic_id, str(key))}.delete"
            self._disk.rename(partition.directory, gone)
            self._schedule_flush()
            self.when_durable(lsn, lambda gone=gone: self._disk.remove_tree(gone))  # type: ignore[misc]

    def _number(self) -> int:
        self._next_number += 1
        return self._next_number

    # What partitions call (partition.Journal)

    def now(self) -> int:
        return self._clock.now()

    @property
    def lsn(self) -> int:
        return 0 if self.flush_to_os else self._log.appended

    def reserve(self, count: int) -> None:
        if not self.flush_to_os:
            self._log.reserve(count if count < EXTENT_THRESHOLD else 0)

    def new_segment(self, partition: Partition, base_offset: int) -> Segment:
        if partition.segments:
            entries = list(partition.producers.entries.values())
            files = write_snapshot(self._disk, partition.directory, base_offset, entries)
            for file in files + partition.segments[-1].write_indexes(sealed=True):
                file.close()
        number, interval = self._number(), partition.settings.index_interval_bytes
        segment = Segment(self._disk, partition.directory, base_offset, number, interval)
        self._log.add_file(number, 0, base_offset, f"{partition.directory.name}/{segment.path.name}")
        self._new_files[partition] = None
        return segment

    def appended(self, partition: Partition, segment: Segment, position: int, data: Buffer) -> int:
        if self.flush_to_os:
            return 0
        if len(data) < EXTENT_THRESHOLD:
            lsn = self._log.add_bytes(segment.number, position, data)
        else:
            # After a power loss a file can be made again from the commit log, but not what only the file has.
            if partition in self._new_files:
                self._sync_directory(partition)
            lsn = self._log.add_extent(segment.number, position, data, segment.file)
        self._dirty[partition] = None
        if not self._flush_scheduled:
            self._schedule_flush()
        return lsn

    def _sync_directory(self, partition: Partition) -> None:
        del self._new_files[partition]
        self._disk.sync_directory(partition.directory)
        self._disk.sync_directory(self.path)

    def segment_removed(self, partition: Partition, segment: Segment) -> None:
        partition.reader.forget()
        lsn = self._log.add_remove(segment.number)
        self._schedule_flush()

        def remove() -> None:
            segment.remove()
            remove_snapshot(self._disk, partition.directory, segment.base_offset)

        self.when_durable(lsn, remove)

    def start_moved(self, partition: Partition) -> int:
        lsn = self._log.add_start(partition.log_start_offset, partition.directory.name)
        self._schedule_flush()
        return lsn

    # Durability

    @property
    def durable(self) -> int:
        """Everything up to this lsn survives a power loss."""
        return self._log.durable

    @property
    def last_appended(self) -> int:
        """The lsn of the newest append."""
        return self._log.appended

    def when_durable(self, lsn: int, callback: Callable[[], None]) -> None:
        """Call back, in the order of the lsns, when everything up to `lsn` is durable: now if it is."""
        self._log.when_durable(lsn, callback)

    async def wait_durable(self, lsn: int) -> None:
        if lsn > self._log.durable:
            waiter = asyncio.get_running_loop().create_future()

            def wake() -> None:
                if not waiter.done():
                    waiter.set_result(None)

            self.when_durable(lsn, wake)
            await waiter

    def _schedule_flush(self) -> None:
        if not self._flush_scheduled:
            self._flush_scheduled = True
            asyncio.get_running_loop().call_soon(self._flush)

    def _flush(self) -> None:
        self._flush_scheduled = False
        if self.failure is None:
            self._log.flush(self._take_dirty, self._synced)

    def _take_dirty(self) -> None:
        self._taken = {partition: partition.log_end_offset for partition in self._dirty}
        self._dirty = {}

    def _synced(self) -> None:
        taken, self._taken = self._taken, {}
        for partition, end in taken.items():
            partition.advance(end)
        if self._log.size > self.settings.checkpoint_bytes and not self._checkpointing:
            self._checkpoint()
        if not self._log.idle:
            self._schedule_flush()

    # Checkpoints

    def _checkpoint(self) -> None:
        """Start a new generation, sync everything of the older ones elsewhere, then remove them."""
        self._checkpointing = True
        older = self._log.generations()
        files, snapshots = self._write_checkpoint()
        self._log.begin(self._log.generation + 1)
        self._log.name_files(self._known_files())
        for partition in self._partitions.values():
            if partition.log_start_offset:
                self._log.add_start(partition.log_start_offset, partition.directory.name)
        lsn = self._log.appended
        self._schedule_flush()

        def synced(error: OSError | None) -> None:
            if error is not None:
                self._fail(StorageFailed(f"the disk did not take a checkpoint: {error}"))
            elif self.failure is None:
                self.when_durable(lsn, finish)

        def finish() -> None:
            for generation in older:
                self._disk.remove(self._log.path(generation))
            self._finish_checkpoint(snapshots)
            self._checkpointing = False

        self._disk.sync(files, synced)

    def _write_checkpoint(self) -> tuple[list[File], list[_Checkpoint]]:
        """Write indexes and snapshots of all that has changed: the files to sync, and what then is checkpointed."""
        files: list[File] = []
        checkpoints = []
        for partition in self._partitions.values():
            if not partition.changed:
                continue
            closing: list[File] = []
            for segment in partition.unsynced_segments():
                closing += segment.write_indexes(sealed=segment is not partition.segments[-1])
                files.append(segment.file)
            entries = list(partition.producers.entries.values())
            closing += write_snapshot(self._disk, partition.directory, partition.log_end_offset, entries)
            files += closing
            checkpoints.append(_Checkpoint(partition, partition.log_end_offset, closing))
            if partition in self._new_files:
                self._sync_directory(partition)
        return files, checkpoints

    def _finish_checkpoint(self, checkpoints: list[_Checkpoint]) -> None:
        for partition, offset, closing in checkpoints:
            for file in closing:
                file.close()
            partition.checkpointed(offset)
            keep = {offset, *partition.bases}
            for old in snapshot_offsets(self._disk, partition.directory):
                if old not in keep and old < offset:
                    remove_snapshot(self._disk, partition.directory, old)

    def _known_files(self) -> list[tuple[int, int, int, str]]:
        return [
            (segment.number, segment.size, partition.log_end_offset, f"{partition.directory.name}/{segment.path.name}")
            for partition in self._partitions.values()
            for segment in partition.segments[-1:]
        ]

    def tick(self, now: int) -> None:
        """Retention and expiry; call it every few minutes."""
        for partition in self._partitions.values():
            partition.retain(now)
            partition.producers.expire(now, partition.settings.producer_id_expiration_ms)
