"""All partitions of one node in one directory, and their way back after a crash.

The layout is Apache Kafka's (`<topic>-<partition>/<offset>.log` and so on), so that its tools read the directory; the
commit log stands beside it in `commit-log/`.
"""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import partial
from pathlib import Path
from typing import Final

from fencepost.log import data_directory, deletion, opening
from fencepost.log.checkpoint import write_down
from fencepost.log.checkpointing import Checkpoints
from fencepost.log.commit_log import EXTENT_THRESHOLD, CommitLog, StorageFailed
from fencepost.log.commit_log_entries import NamedFile
from fencepost.log.commit_log_files import CommitLogDamaged
from fencepost.log.data_directory import DeletedTopic
from fencepost.log.data_directory import DirectoryUnusable as DirectoryUnusable
from fencepost.log.disk import Disk, NothingLeft
from fencepost.log.interruption import Interruption
from fencepost.log.offline import OfflinePartition
from fencepost.log.open_files import USUAL, OpenFiles
from fencepost.log.opening import Aside
from fencepost.log.partition import Partition
from fencepost.log.removal import Removals
from fencepost.log.replay import Replay
from fencepost.log.segment import Segment
from fencepost.log.settings import LogSettings
from fencepost.log.space import Space
from fencepost.node_log import get_logger
from fencepost.protocol.errors import ErrorCode
from fencepost.protocol.types import FIRST_LEADER_EPOCH, NO_LSN, Buffer, LeaderEpoch, Lsn, Milliseconds, Offset
from fencepost.runtime import Clock, Slices, Work

logger = get_logger(__name__)

_ADVANCED_AT_ONCE: Final = 200  # partitions whose high watermark follows a sync in one turn of the event loop


class Storage:
    """The partitions of a node: makes, finds, recovers and deletes them, and syncs what is appended.

    `failed` is called when a sync fails: whoever owns the process must end it then.
    `open_files`: descriptors that it may hold.  `interruption`: what may cut a start off, until it is done.
    `recover_from_segments`: where the commit log is damaged, go on with what the segments hold.
    `slices`: those that all long work of the node is done in.
    """

    def __init__(
        self,
        disk: Disk,
        path: Path,
        settings: LogSettings,
        clock: Clock,
        *,
        flush: str = "durable",
        failed: Callable[[StorageFailed], None] | None = None,
        open_files: int = USUAL,
        recover_from_segments: bool = False,
        slices: Slices | None = None,
        interruption: Interruption | None = None,
    ) -> None:
        if flush not in ("durable", "os"):
            raise ValueError(f"flush is {flush!r}: it must be 'durable' or 'os'")
        self.disk = self._disk = disk = OpenFiles(disk, open_files, interruption)
        self.path, self.settings = path, settings
        self.now: Callable[[], Milliseconds] = clock.now
        self.flush_to_os = flush == "os"
        self._failed = failed or self._raise
        self._recover_from_segments = recover_from_segments
        self._partitions: dict[tuple[str, int], Partition] = {}
        self._shown: dict[tuple[str, int], Partition] = {}
        """Partitions that anybody may use: not what is half made, nor what is being deleted."""
        self.shown_version = 0
        """Another number whenever `partition` and `refusal` may answer something else."""
        self.offline: dict[tuple[str, int], OfflinePartition] = {}
        """Partitions that are known but could not be opened."""
        self.deleted: Mapping[uuid.UUID, DeletedTopic] = {}
        """Topics that are known to be deleted, by their ids: what is there of them is removed at the start."""
        self.space = Space(disk, path, clock)
        self.commit_log = self._log = CommitLog(disk, path / data_directory.COMMIT_LOG, self.fail, self.space)
        self.durability = self._log.durability
        self._dirty: dict[Partition, None] = {}
        self._taken: dict[Partition, Offset] = {}
        self._new_files: dict[Partition, None] = {}
        """Partitions with files whose directory entry may not be synced yet."""
        self._next_number, self._flush_scheduled = 0, False
        self._release: Callable[[], None] | None = None
        self._replay, self.removals = Replay(), Removals(disk, self.space)
        self._checkpoints = Checkpoints(
            disk,
            path,
            self._log,
            self._partitions,
            Aside(self._replay, (), (), self._number),
            appended_to=lambda: self._dirty,
            removals=self.removals,
            space=self.space,
            slices=slices or Slices(),
            limit=settings.checkpoint_bytes,
            sizes_kept=not self.flush_to_os,
            flush=self._schedule_flush,
            failed=self.fail,
            is_alive=lambda: self.failure is None,
        )
        self.failure: StorageFailed | None = None

    @staticmethod
    def _raise(failure: StorageFailed) -> None:
        raise failure

    def fail(self, failure: StorageFailed) -> None:
        """Acknowledge nothing more, for the disk did not take something: whoever owns the process ends it."""
        if self.failure is None:
            self.failure = failure
            self._log.stop()
            self._failed(failure)

    # Opening and closing

    def take(self) -> None:
        """Take the directory; no segment is read or changed.  Raises DirectoryUnusable, as `data_directory.take`."""
        self._release = data_directory.take(self._disk, self.path, self.commit_log.directory)
        self.space.open()

    def recover(self) -> bool:
        """Bring every segment to what was durable; whether records may be gone even so.  Raises DirectoryUnusable."""
        try:
            self._replay.read(self._disk, self._log, self._recover_from_segments)
        except CommitLogDamaged as damaged:
            raise DirectoryUnusable(str(damaged)) from damaged
        self._replay.apply(self._disk, self.path)
        return not self._replay.complete and (self._replay.newest > 0 or self.has_partitions)

    def start(self) -> None:
        """Begin this start's generation, after the partitions were opened, and remove the older ones now or soon."""
        self.disk.interruption = None
        self.space.attempt(partial(data_directory.mark, self._disk, self.path))
        in_use = {partition.directory.name for partition in self._partitions.values()}
        offline = {offline.directory.name for offline in self.offline.values()}
        found = data_directory.survey(self._disk, self.path, in_use | offline, self.deleted)
        aside = Aside(self._replay, offline, found.strays, self._number)
        self._checkpoints.at_start(self._replay, aside, waits=not found.deleted and self.space.is_ample(len(in_use)))
        self._replay.tell(self.commit_log.directory)
        self._replay = Replay()
        deletion.finish(self._disk, self.path, found)
        opening.say(self.offline.values())
        self.space.hold(len(in_use))

    def close(self) -> None:
        """A clean stop: everything is synced, the next start has nothing to redo.  Nothing may be under way."""
        self._checkpoints.give_up()
        if self.failure is None:
            self._log.flush_now()
            for partition in self._partitions.values():
                partition.advance(partition.log_end_offset)
            try:
                self.space.attempt(lambda: self._checkpoints.now(self._log.generation + 1))
            except NothingLeft as error:
                logger.warning("%s is left without a last checkpoint: the next start makes it (%s)", self.path, error)
            if not self._log.idle:
                self._log.flush_now()
            self._log.seal()
        self.abandon()

    def abandon(self) -> None:
        """Let go of every file as a crash does: nothing is written, only the reserve is filled up if there is room."""
        self._checkpoints.give_up()
        self.removals.give_up()
        self._log.close()
        for partition in self._partitions.values():
            for segment in partition.segments:
                segment.close()
        self.space.close()  # when what was removed while it was open has given back its space
        self.shown_version += 1
        for known in (self._partitions, self.offline, self._shown):
            known.clear()
        if self._release is not None:
            self._release()
            self._release = None

    # Partitions

    def partition(self, topic: str, index: int) -> Partition | None:
        return self._shown.get((topic, index))

    def refusal(self, topic: str, index: int) -> ErrorCode:
        """The error for whoever wants a partition that `partition` does not give."""
        offline = (topic, index) in self.offline
        return ErrorCode.KAFKA_STORAGE_ERROR if offline else ErrorCode.UNKNOWN_TOPIC_OR_PARTITION

    def exists(self, topic: str, index: int) -> bool:
        """Whether there is such a partition, be it offline."""
        return (topic, index) in self._shown or (topic, index) in self.offline

    def partitions(self) -> Iterator[Partition]:
        """Every partition that is not offline, sorted by topic and number."""
        yield from [self._shown[key] for key in sorted(self._shown)]

    def create_partition(
        self,
        topic: str,
        topic_id: uuid.UUID,
        index: int,
        settings: LogSettings | None = None,
        leader_epoch: LeaderEpoch = FIRST_LEADER_EPOCH,
        shown: bool = True,
    ) -> Partition | OfflinePartition:
        """Open a partition, of an earlier run or new; offline if that is not possible.  `show` it unless `shown`."""
        known = self._partitions.get((topic, index)) or self.offline.get((topic, index))
        if known is not None:
            return known
        directory, settings = self.path / f"{topic}-{index}", settings or self.settings
        partition = Partition(self, self._disk, directory, topic, index, topic_id, settings, leader_epoch)
        try:
            opened = opening.open_partition(partition, self._replay, self._number, self.now())
        except OSError as error:
            if self._log.generation and not isinstance(error, NothingLeft):
                # While the node runs nobody above would end it for a failed sync.
                self.fail(StorageFailed(f"the disk did not take {directory}: {error}"))
            raise
        if isinstance(opened, OfflinePartition):
            self.offline[topic, index] = opened
            self.shown_version += 1
            return opened
        if not partition.segments:
            partition.roll()
        self._partitions[topic, index] = partition
        self._new_files[partition] = None
        self.show([partition] if shown else [])
        return partition

    def adopt(self) -> list[data_directory.FoundPartition]:
        """The partitions in the directory.  From now on those that the commit log does not know are read, too."""
        self._replay.adopting = True
        return data_directory.partitions_in(self._disk, self.path, self._replay.topic_ids())

    @property
    def has_partitions(self) -> bool:
        """Whether there are directories of partitions, opened or not."""
        return bool(data_directory.partitions_in(self._disk, self.path, {}))

    def in_the_way(self, topic: str, index: int) -> Path | None:
        """The path of what is there already in the place of a partition that is to be made; None if nothing is."""
        path = self.path / f"{topic}-{index}"
        return path if self._disk.exists(path) else None

    def show(self, partitions: Iterable[Partition | OfflinePartition]) -> None:
        """Let others find and use them."""
        self.shown_version += 1
        self._shown |= {(each.topic, each.index): each for each in partitions if isinstance(each, Partition)}

    def hide(self, partitions: Iterable[Partition | OfflinePartition]) -> None:
        """Let nobody find them any more; who has one at hand is told by `delete_partition`."""
        self.shown_version += 1
        for each in partitions:
            self._shown.pop((each.topic, each.index), None)
            self.offline.pop((each.topic, each.index), None)

    def delete_partition(self, partition: Partition | OfflinePartition) -> bool:
        """Remove a partition; its files go when the removal is durable in the commit log.

        False if it is still there under its own name: whoever knows that it is deleted must not forget.
        """
        self.hide([partition])
        self._checkpoints.aside.forget(partition.directory.name)
        if isinstance(partition, Partition):
            del self._partitions[partition.topic, partition.index]
            self._dirty.pop(partition, None)
            self._new_files.pop(partition, None)
        begun = deletion.begin(self._disk, self._log, partition)
        self._schedule_flush()
        remove = partial(self.removals.after, partition.settings.file_delete_delay_ms, begun.finish)
        self.durability.when(begun.lsn, remove)
        if isinstance(partition, Partition):
            partition.wake()
        return begun.renamed

    def deleted_durably(self) -> None:
        """Sync the deletions, so that partitions that are made next do not find old ones after a power loss."""
        self._sync_directories(self.path)

    def _number(self) -> int:
        self._next_number += 1
        return self._next_number

    # What partitions call (partition.Journal)

    @property
    def lsn(self) -> Lsn:
        return NO_LSN if self.flush_to_os else self._log.appended

    def reserve(self, count: int) -> None:
        if not self.space.is_whole:
            self.space.must_be_left()
        self.space.written(count if self.flush_to_os else 2 * count)
        if not self.flush_to_os:
            self._log.reserve(count if count < EXTENT_THRESHOLD else 0)

    def new_segment(self, partition: Partition, base_offset: Offset) -> Segment:
        if partition.segments:
            write_down(self._disk, partition)
        number, interval = self._number(), partition.settings.index_interval_bytes
        segment = Segment(self._disk, partition.directory, base_offset, number, interval)
        path = f"{partition.directory.name}/{segment.path.name}"
        self._log.add_file(NamedFile(number, 0, base_offset, partition.topic_id.bytes, path))
        self._new_files[partition] = None
        self._schedule_flush()
        return segment

    def appended(self, partition: Partition, segment: Segment, position: int, data: Buffer) -> Lsn:
        if self.flush_to_os:
            return NO_LSN
        if segment.number not in self._log.named:
            # As it was before this append, since the entry of that follows.
            path = f"{partition.directory.name}/{segment.path.name}"
            end = partition.log_end_offset
            self._log.add_file(NamedFile(segment.number, position, end, partition.topic_id.bytes, path))
        if len(data) < EXTENT_THRESHOLD:
            lsn = self._log.add_bytes(segment.number, position, data)
        else:
            # After a power loss a file can be made again from the commit log, but not what only the file has.
            if partition in self._new_files:
                self._sync_directory(partition)
            lsn = self._log.add_extent(segment.number, position, data, segment.file)
        self._dirty[partition] = None
        self._schedule_flush()
        return lsn

    def append_failed(self, partition: Partition, error: Exception) -> None:
        """Fail: a batch is in the file of a partition, and not everything that follows from it in memory."""
        self.fail(StorageFailed(f"a batch was written to {partition.directory} and not accounted for: {error!r}"))

    def _sync_directory(self, partition: Partition) -> None:
        del self._new_files[partition]
        self._sync_directories(partition.directory, self.path)

    def _sync_directories(self, *paths: Path) -> None:
        for path in paths:
            try:
                self._disk.sync_directory(path)
            except OSError as error:
                self.fail(StorageFailed(f"the disk did not take a sync of {path}: {error}"))

    def segment_removed(self, partition: Partition, segment: Segment) -> None:
        partition.reader.forget()
        lsn = self._log.add_remove(f"{partition.directory.name}/{segment.path.name}")
        self._schedule_flush()
        at, delay = (partition.topic, partition.index), partition.settings.file_delete_delay_ms
        take = partial(self.removals.take_segment, partition.directory, segment, delay)
        self.durability.when(lsn, lambda: take(lambda: self._partitions.get(at) is partition))

    def start_moved(self, partition: Partition) -> Lsn:
        lsn = self._log.add_start(partition.log_start_offset, partition.directory.name)
        self._schedule_flush()
        return lsn

    # Durability

    @property
    def last_appended(self) -> Lsn:
        """The lsn of the newest append."""
        return self._log.appended

    async def settle(self) -> None:
        """Wait until no sync and no checkpoint is under way, so that `close` may be called."""
        while self.failure is None and (self._checkpoints.is_under_way or not self._log.idle):  # noqa: ASYNC110 - only when the node stops
            await asyncio.sleep(0.001)

    def _schedule_flush(self) -> None:
        if not self._flush_scheduled:
            self._flush_scheduled = True
            asyncio.get_running_loop().call_soon(self._flush)

    def _flush(self) -> None:
        self._flush_scheduled = False
        if self.failure is None:
            try:
                self._log.flush(self._take_dirty, self._advance, self._synced)
            except Exception as error:
                self.fail(StorageFailed(f"the commit log could not be written: {error!r}"))
                raise

    def _take_dirty(self) -> None:
        self._taken = {partition: partition.log_end_offset for partition in self._dirty}
        self._dirty = {}

    def _advance(self) -> Work[None]:
        """Move the high watermark of each partition to what the last sync made durable, some in each step."""
        taken, self._taken = self._taken, {}
        for number, (partition, end) in enumerate(taken.items(), 1):
            partition.advance(end)
            if number % _ADVANCED_AT_ONCE == 0:
                yield

    def _synced(self) -> None:
        self._checkpoints.begin_if_due()
        if not self._log.idle:
            self._schedule_flush()

    # Checkpoints

    def checkpoint_soon(self, least: int = 0) -> None:
        """Begin a checkpoint when the syncs under way are done, if it frees `least` bytes of commit log."""
        self._checkpoints.soon(least)

    def is_settled(self, partition: Partition, segment: Segment) -> bool:
        """Whether nothing of a segment is ever written again, not even after a crash."""
        return segment.base_offset < partition.unsynced_from and not self._log.names(segment.number)
