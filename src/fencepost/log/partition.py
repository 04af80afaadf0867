"""One partition: what is appended to it and read from it.  Made by `Storage`.

Everything here is synchronous and in memory plus page cache.  An append answers with the lsn it becomes durable with;
the high watermark follows when it is, so a reader never sees what a power loss could take back.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Protocol

from fencepost.log import reading
from fencepost.log.batch_check import Checked, check_batch
from fencepost.log.callbacks import call_each
from fencepost.log.damage import DamageNotes, FileDamaged, not_written
from fencepost.log.disk import Disk, NothingLeft
from fencepost.log.leader_epochs import end_offset_for_epoch
from fencepost.log.outcome import Appended, Refused, explained
from fencepost.log.producer_state import Origin, VerificationGuard
from fencepost.log.producers import ActiveProducer, Ending, Producers
from fencepost.log.recompression import in_codec_of_topic
from fencepost.log.retention import WORTH_A_ROLL, new_start
from fencepost.log.segment import Segment
from fencepost.log.segments import Segments
from fencepost.log.settings import LogSettings
from fencepost.log.space import Space
from fencepost.protocol.batch import (
    HEADER_SIZE,
    LOG_APPEND_TIME,
    BatchHeader,
    clear_log_append_time,
    read_header,
    set_max_timestamp,
    stamp,
    with_max_timestamp,
)
from fencepost.protocol.control import COMMIT, ControlRecord, read_control_record
from fencepost.protocol.errors import ErrorCode, ProtocolError
from fencepost.protocol.steps import Pace, Steps, finish
from fencepost.protocol.types import Buffer, Epoch, Isolation, LeaderEpoch, Lsn, Milliseconds, Offset, ProducerId

__all__ = ["Appended", "Journal", "Partition", "Refused"]


class Journal(Protocol):
    """The part of the storage that a partition uses."""

    flush_to_os: bool
    space: Space

    def new_segment(self, partition: Partition, base_offset: Offset) -> Segment: ...

    def appended(self, partition: Partition, segment: Segment, position: int, data: Buffer) -> Lsn: ...

    def append_failed(self, partition: Partition, error: Exception) -> None: ...

    def reserve(self, count: int) -> None: ...

    def segment_removed(self, partition: Partition, segment: Segment) -> None: ...

    def start_moved(self, partition: Partition) -> Lsn: ...

    @property
    def lsn(self) -> Lsn: ...


class Partition:
    """One partition of a topic.  `index`: its number; `leader_epoch`: what its batches are stamped with."""

    def __init__(
        self,
        journal: Journal,
        disk: Disk,
        directory: Path,
        topic: str,
        index: int,
        topic_id: uuid.UUID,
        settings: LogSettings,
        leader_epoch: LeaderEpoch,
    ) -> None:
        self._journal = journal
        self.disk = disk
        self.directory = directory
        self.topic, self.index, self.topic_id = topic, index, topic_id
        self.settings = settings
        self.leader_epoch = leader_epoch
        self.epoch_starts: list[tuple[LeaderEpoch, Offset]] = []
        """(leader epoch, first offset), ascending: the leader-epoch-checkpoint."""
        self.producers = Producers()
        self.segments = Segments()
        self.log_start_offset = Offset(0)
        self.log_end_offset = Offset(0)
        self.high_watermark = Offset(0)
        self.checkpoint_offset = Offset(0)
        """As of this offset indexes and a producer snapshot are on disk."""
        self.unsynced_from = 0
        """Segments from this base offset on have been written to since the last checkpoint."""
        self._waiters: dict[int, Callable[[], None]] = {}
        self._next_waiter = 0
        self._damage = DamageNotes()
        self.scans = 0
        self.is_held = False
        """Whether no segment may be removed now."""
        self._read: reading.Places = {}

    @property
    def reader(self) -> reading.Reader:
        """A reader of the partition, for one read: a kept one would hold a deleted partition in memory."""
        return reading.Reader(self.segments, self, self._read)

    @property
    def last_stable_offset(self) -> Offset:
        """The offset at which a read_committed reader stops (facts §6.8)."""
        unstable = self.producers.first_unstable_offset
        if unstable is None or unstable > self.high_watermark:
            return self.high_watermark
        # What is open may have begun before the records that are left.
        return max(unstable, self.log_start_offset)

    def bound(self, isolation: Isolation) -> Offset:
        """The offset up to which a reader of this isolation may read."""
        return self.last_stable_offset if isolation is Isolation.READ_COMMITTED else self.high_watermark

    # Appending

    def start_verification(
        self, producer_id: ProducerId, producer_epoch: Epoch, base_sequence: int, epoch_bump: bool, now: Milliseconds
    ) -> VerificationGuard | Refused | None:
        """Begin to verify a transactional write (facts §6.6): a guard; None if its transaction is open here."""
        found = self.producers.start_verification(producer_id, producer_epoch, base_sequence, epoch_bump, now)
        if isinstance(found, ErrorCode):
            return Refused(found, "a newer producer has written here with this producer id")
        return found

    def check(self, batch: Buffer, header: BatchHeader, now: Milliseconds, pace: Pace) -> Steps[Checked]:
        """Check a client's batch, as far as the batch itself tells, before `append`, which else does so in one step."""
        return check_batch(batch, header, self.settings, now, pace)

    def append(
        self,
        batch: Buffer,
        origin: Origin,
        now: Milliseconds,
        *,
        guard: VerificationGuard | None = None,
        marker_transaction_version: int = 0,
        control: ControlRecord | None = None,
        checked: Checked | None = None,
    ) -> Appended | Refused:
        """Check one batch against the rules of facts §5.3 and §6.3-§6.5 and append it.  `now`: when it is appended.

        A writable view is stamped in its place: whoever gives one does not use the batch again.  `control`: what a
        marker says, if its writer knows; else it is read.  Never awaits: check and append are one step.
        """
        if checked is not None and checked.settings is self.settings:
            header = checked.header
        else:
            try:
                header = read_header(batch)
            except ProtocolError as unreadable:
                return Refused(ErrorCode.INVALID_RECORD, str(unreadable))
            checked = finish(self.check(batch, header, now, Pace())) if origin is Origin.CLIENT else None
        if checked is not None:
            if checked.refused is not None:
                return self._refused(checked.refused)
            if checked.anew is not None:
                batch, header = checked.anew, read_header(checked.anew)
            elif checked.max_timestamp != header.max_timestamp:
                batch, header = with_max_timestamp(batch, header, checked.max_timestamp)
        elif header.is_control:
            return self._append_marker(batch, header, now, marker_transaction_version, control)
        wanted = self.settings.compression
        if wanted is not None and wanted != header.attributes & 7:
            batch, header = in_codec_of_topic(batch, header, wanted, self.settings)
        if header.size > self.settings.segment_bytes:
            why = f"the batch has {header.size} bytes, a segment {self.settings.segment_bytes} at most (segment.bytes)"
            return Refused(ErrorCode.RECORD_LIST_TOO_LARGE, why)
        answered = self._check_producer(header, origin, guard) if header.producer_id >= 0 else None
        return self._write(batch, header, now) if answered is None else answered

    def _check_producer(
        self, header: BatchHeader, origin: Origin, guard: VerificationGuard | None
    ) -> Appended | Refused | None:
        """The outcome of a batch that its producer's state keeps out (facts §6.3-§6.5); None if it may be appended."""
        if origin is Origin.CLIENT:
            known = self.producers.duplicate_of(header)
            if known is not None:
                lsn, start = self._journal.lsn, self.log_start_offset
                return Appended(known.first_offset, known.last_offset, known.timestamp, start, lsn, duplicate=True)
        error = self.producers.check_data(header, guard, origin, self.settings.verification_enabled)
        if error is None:
            return None
        why = explained(error, header, f"{self.topic}-{self.index}", self.producers.epoch_of(header.producer_id))
        return Refused(error, why, self.log_start_offset)

    def _refused(self, wrong: Refused) -> Refused:
        """The refusal of a batch that is wrong in itself; only some errors tell where the log starts."""
        silent = wrong.error in (ErrorCode.CORRUPT_MESSAGE, ErrorCode.MESSAGE_TOO_LARGE)
        return wrong if silent else replace(wrong, log_start_offset=self.log_start_offset)

    def _append_marker(
        self, batch: Buffer, header: BatchHeader, now: Milliseconds, version: int, control: ControlRecord | None
    ) -> Appended | Refused:
        record = control or read_control_record(batch, 0, header)
        if record is None or record.coordinator_epoch is None:
            return Refused(ErrorCode.INVALID_RECORD, "a control batch without a transaction marker")
        if not header.names_a_producer:
            return Refused(ErrorCode.UNKNOWN_SERVER_ERROR, "a marker needs a producer id and an epoch")
        if header.has_producer_id:
            error = self.producers.check_marker(header, record.coordinator_epoch, version)
            if error is not None:
                return Refused(error)
        return self._write(batch, header, now, (record.coordinator_epoch, record.type == COMMIT))

    def _write(
        self, batch: Buffer, header: BatchHeader, now: Milliseconds, marker: Ending | None = None
    ) -> Appended | Refused:
        journal, base_offset = self._journal, self.log_end_offset
        # A copy of a large batch costs as much as all the rest.
        data = batch if isinstance(batch, memoryview) and not batch.readonly else bytearray(batch)
        log_append_time = -1
        if self.settings.message_timestamp_type == "LogAppendTime" and marker is None:
            header, log_append_time = set_max_timestamp(data, 0, header, now), now
        elif header.attributes & LOG_APPEND_TIME:
            header = clear_log_append_time(data, 0, header)
        stamp(data, 0, base_offset, self.leader_epoch)
        try:
            journal.reserve(HEADER_SIZE + len(data))
            segment = self._active_segment(len(data), header, now)
            position = segment.append(data, header, base_offset)
        except NothingLeft as error:
            journal.space.refused(error)
            return Refused(ErrorCode.KAFKA_STORAGE_ERROR, f"{self.directory} takes nothing now: {error}")
        except (FileDamaged, OSError) as error:
            return self.refusal(not_written(self.directory, error))
        last_offset = Offset(base_offset + header.last_offset_delta)
        try:
            lsn = journal.appended(self, segment, position, data)
            if segment.created < 0:
                segment.created = now
            self.log_end_offset = Offset(last_offset + 1)
            self.applied(header, base_offset, segment, marker, now)
        except Exception as error:
            # The file has the batch, and memory only half of what follows from it: nothing may be built on that.
            journal.append_failed(self, error)
            raise
        if journal.flush_to_os:
            self.advance(self.log_end_offset)
        return Appended(base_offset, last_offset, log_append_time, self.log_start_offset, lsn)

    def applied(
        self, header: BatchHeader, offset: Offset, segment: Segment, marker: Ending | None, now: Milliseconds
    ) -> None:
        """Note in the producer state what a batch in the log means; also when the log is read again.

        A control batch that is no marker (of another system, or emptied by compaction) means nothing.
        """
        if header.producer_id < 0 or (header.is_control and marker is None):
            return
        if marker is None:
            self.producers.data_appended(header, offset, now)
            return
        coordinator_epoch, committed = marker
        completed = self.producers.marker_appended(header, offset, coordinator_epoch, committed, now)
        if completed is not None and not committed:
            segment.transactions.append(self.producers.aborted(completed))

    def _active_segment(self, count: int, header: BatchHeader, now: Milliseconds) -> Segment:
        segment, settings = self.segments.ordered[-1], self.settings
        if segment.size and (
            self.segments.is_left
            or segment.size + count > settings.segment_bytes
            or (segment.created >= 0 and now - segment.created >= settings.longest_segment_ms)
            or self.log_end_offset + header.last_offset_delta - segment.base_offset > 0x7FFFFFFF
        ):
            return self.roll()
        return segment

    def roll(self) -> Segment:
        """Begin a new segment at the log end; something must be in the one before it.  Raises FileDamaged."""
        self.segments.check_newest()  # else a gap would lie within the log
        self.segments.append(segment := self._journal.new_segment(self, self.log_end_offset))
        return segment

    def advance(self, high_watermark: Offset) -> None:
        """Let readers have everything before this offset, which is durable."""
        if high_watermark <= self.high_watermark:
            return
        self.high_watermark = high_watermark
        self.producers.high_watermark_advanced(high_watermark)
        self.wake()

    def wake(self) -> None:
        """Call back whoever waits for news: there is something to read, the log starts elsewhere, or it is deleted."""
        if self._waiters:
            waiters, self._waiters = self._waiters, {}
            call_each(waiters.values())

    @property
    def changed(self) -> bool:
        """Whether there is anything that the last checkpoint does not have, be it the end of a segment."""
        return self.log_end_offset != self.checkpoint_offset or self.unsynced_from < self.segments.bases[-1]

    def unsynced_segments(self) -> list[Segment]:
        return [segment for segment in self.segments if segment.base_offset >= self.unsynced_from]

    def checkpointed(self, offset: Offset) -> None:
        """Note that everything as of `offset` is synced."""
        self.checkpoint_offset = offset
        self.unsynced_from = self.segments[self.segments.number_of(offset)].base_offset
        self.drop_segments()

    # Reading

    def read(
        self, offset: Offset, max_bytes: int, isolation: Isolation, at_least_one: bool = True
    ) -> reading.Fetched | Refused:
        """Whole batches from the one that holds `offset` on, up to what the isolation lets a reader see."""
        if offset < self.log_start_offset or offset > self.log_end_offset:
            return Refused(ErrorCode.OFFSET_OUT_OF_RANGE)
        stable, committed = self.last_stable_offset, isolation is Isolation.READ_COMMITTED
        bound = stable if committed else self.high_watermark
        try:
            records, following, cost = self.reader.batches(offset, bound, max_bytes, at_least_one)
        except FileDamaged as damaged:
            return self.refusal(damaged)
        aborted = None
        # Where not even the first batch has room Apache Kafka says nothing of aborted transactions either.
        if committed and (records or offset >= bound or max_bytes == 0):
            found = self.segments.aborted_transactions(offset, following) if records else []
            aborted = [(entry.producer_id, entry.first_offset) for entry in found]
        return reading.Fetched(records, self.high_watermark, stable, self.log_start_offset, aborted, cost)

    def refusal(self, damaged: FileDamaged) -> Refused:
        """The refusal of a read that meets a damaged file, which is logged."""
        self._damage.say(damaged)
        self.segments.leave(damaged)
        return Refused(damaged.error, str(damaged))

    def when_readable(self, callback: Callable[[], None]) -> Callable[[], None]:
        """Call back once when the high watermark or the log's start next moves or it is deleted; what undoes this."""
        # Nothing else changes what a reader is given: the last stable offset moves with one of these.
        number = self._next_waiter
        self._next_waiter += 1
        self._waiters[number] = callback
        return lambda: self._waiters.pop(number, None) and None

    def scan(self, offset: Offset = Offset(0)) -> Iterator[tuple[BatchHeader, memoryview]]:
        """Every batch from the one that holds `offset` to the log end, durable or not: for coordinators that load."""
        self.scans += 1
        try:
            for segment in self.segments.holding(offset):
                position = segment.locate_at_once(offset) if offset > segment.base_offset else 0
                if position is not None:
                    for _, header, data in segment.walk(position):
                        yield header, data
        finally:
            self.scans -= 1

    def active_producers(self) -> Iterator[ActiveProducer]:
        return self.producers.active()

    def end_offset_for_epoch(self, epoch: LeaderEpoch) -> tuple[LeaderEpoch, Offset]:
        """The largest known leader epoch that is at most `epoch`, and where it ended; (-1, -1) for one yet to come."""
        ends = self.log_start_offset, self.log_end_offset
        return end_offset_for_epoch(epoch, self.leader_epoch, self.epoch_starts, *ends)

    # Removing

    def delete_records(self, before: Offset) -> Lsn | Refused:
        """Move the start of the log to `before` (-1: the high watermark); the lsn of it.  Producers are kept."""
        target = self.high_watermark if before == -1 else before
        if target < 0 or target > self.high_watermark:
            return Refused(ErrorCode.OFFSET_OUT_OF_RANGE)
        if target <= self.log_start_offset:
            return self._journal.lsn
        self.log_start_offset = target
        if target == self.log_end_offset and self.segments[-1].size >= WORTH_A_ROLL:
            self._manages_to_roll()  # else it stays for as long as its next record does
        lsn = self._journal.start_moved(self)
        self.drop_segments()
        self.wake()
        return lsn

    def _manages_to_roll(self) -> bool:
        return self._damage.manages(self.directory, lambda: self._journal.space.manages(self.roll))

    @property
    def has_segments_to_drop(self) -> bool:
        """Whether there are any that end before the start of the log."""
        return len(self.segments) > 1 and self.segments[1].base_offset <= self.log_start_offset

    def drop_segments(self) -> None:
        """Remove the segments that end before the start of the log.

        Not before they are checkpointed: until then they are what the producer state is made from again.
        """
        while not self.is_held and self.has_segments_to_drop and self.segments[0].base_offset < self.unsynced_from:
            self.segments.remove(segment := self.segments[0])
            self._journal.segment_removed(self, segment)

    def retain(self, now: Milliseconds) -> None:
        """Remove whole segments that are too old or too many, but never an open transaction."""
        newest = self.segments[-1]
        for segment in (each for each in self.segments if each.size and each.created < 0):
            segment.created = now
        limit = self.last_stable_offset
        start = new_start(self.segments, self.log_start_offset, self.log_end_offset, limit, self.settings, now)
        # Not where DeleteRecords has only passed some of it.
        if start == self.log_end_offset > newest.base_offset and not self._manages_to_roll():
            start = newest.base_offset
        if start > self.log_start_offset:
            self.log_start_offset = start
            self._journal.start_moved(self)
            self.drop_segments()
            self.wake()
