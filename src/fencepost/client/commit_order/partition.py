"""Reads one partition in commit order."""

from __future__ import annotations

from math import inf
from typing import NamedTuple

from fencepost.client.commit_order.buffers import TransactionBuffer, TransactionBuffers
from fencepost.client.commit_order.decisions import (
    STEPS,
    Step,
    due_again,
    first_wanted,
    is_surely_open,
    kind_of,
    last_hole,
    may_have_passed_its_end,
)
from fencepost.client.commit_order.position import Position
from fencepost.client.errors import SpillError
from fencepost.client.read_epoch import ReadEpoch
from fencepost.client.records import ConsumerRecord
from fencepost.protocol.batch import BatchHeader, crc_matches, headers, read_header
from fencepost.protocol.control import read_control_record
from fencepost.protocol.errors import ProtocolError
from fencepost.protocol.records import decode_batch
from fencepost.protocol.types import Buffer, Epoch, Milliseconds, Offset, ProducerId, TopicPartition


class OpenTransaction(NamedTuple):
    """A transaction whose end a consumer in commit order has not read yet.  Sizes are in bytes."""

    partition: TopicPartition
    producer_id: ProducerId
    producer_epoch: Epoch
    first_offset: Offset
    """The offset of its first record that this consumer has read."""
    open_for_ms: Milliseconds
    """The time since this consumer has read that record."""
    in_memory: int
    on_disk: int


class _Open:
    """A transaction whose first records were read, and whose end was not."""

    __slots__ = ("begun_at", "buffer", "epoch", "first", "is_behind_log_start", "producer_id", "said")

    def __init__(self, header: BatchHeader, first: int, begun_at: float, buffer: TransactionBuffer) -> None:
        self.producer_id = header.producer_id
        self.epoch = header.producer_epoch
        self.first = first
        self.begun_at = begun_at
        self.buffer = buffer
        self.said = 0
        """How many log lines said that it has been open for long."""
        self.is_behind_log_start = False

    def __str__(self) -> str:
        return f"producer_id={self.producer_id} producer_epoch={self.epoch} that began at offset {self.first}"


class PartitionInCommitOrder:
    """Reads one partition: takes fetched batches, and gives their records in the order in which they were committed.

    It looks at no batch before what comes earlier was handed out: `position` is that of the caller at any time.
    Times are in seconds by the clock of the event loop.
    """

    def __init__(self, at: TopicPartition, begun: Position, buffers: TransactionBuffers, bound: float) -> None:
        """`bound`: a transaction that is open for more seconds than this is reported."""
        self.at = at
        self._buffers = buffers
        self._bound = bound
        self._open: dict[int, _Open] = {}
        """The open transactions by producer id, in the order of their first offsets."""
        self._data = memoryview(b"")
        """The fetched batches; from `_place` on they are not looked at yet."""
        self._place = 0
        self._fed_at = 0.0
        self._at_end_at = -inf
        """When an answer reached the end of the log last, in seconds."""
        self._last_hole = -1
        """The last offset in front of which records or a marker were missing; -1: none."""
        self._again = 0
        """How often it began again since then, as ends of transactions may have been removed."""
        self._begun = begun
        self.fetch_offset = begun.start
        """The offset to fetch next."""
        self.epoch = ReadEpoch()
        """The leader epoch of the batch before `fetch_offset`."""
        self._next = begun.start
        """All batches before this offset were looked at, and their records handed out if they are not to be kept."""
        self._after_batch = begun.start
        self._ending: _Open | None = None
        """The transaction that is being delivered; its marker is at `_next`."""
        self._inside = -1
        """The offset of the last record of it that was delivered; -1: none was."""

    def begin(self, position: Position) -> None:
        """Read on at `position`; batches and open transactions from before are dropped."""
        for transaction in self._open.values():
            transaction.buffer.drop()
        self._open.clear()
        self._data, self._place = memoryview(b""), 0
        self._begun = position
        self.fetch_offset = self._next = self._after_batch = position.start
        self._ending, self._inside = None, -1
        self.epoch.begin()

    def position(self) -> Position:
        """The position after the records handed out, and after the control and aborted records that follow them."""
        oldest = next(iter(self._open.values()), None)
        start = self._next if oldest is None else oldest.first
        if self._ending is not None:
            return Position(start, self._next, self._inside if self._inside >= start else -1)
        begun = self._begun
        if self._next > begun.delivered:
            return Position(start, self._next)
        return Position(start, begun.delivered, begun.inside if begun.inside >= start else -1)

    # Batches in, records out

    def feed(self, data: Buffer, now: float, high_watermark: Offset) -> None:
        """Take whole batches from `fetch_offset` on, fetched at `now`, when `more` has nothing left.

        They are dropped, and `fetch_offset` moves back to the beginning of the oldest open transaction, if compaction
        may have removed the end of that.  Raises ProtocolError if they are no batches; none is taken then.
        """
        assert self._place == len(self._data), "what was fed before is looked at first"
        fed = memoryview(data)
        batches = [header for _, header in headers(fed)]
        hole = last_hole(batches, self.fetch_offset)
        self._last_hole = self._last_hole if hole is None else hole
        if self._may_have_passed_an_end(now):
            self._again += 1
            self.begin(self.position())
            return
        following = max((header.last_offset + 1 for header in batches), default=self.fetch_offset)
        self._data, self._place, self._fed_at = fed, 0, now
        self.fetch_offset = max(self.fetch_offset, following)
        for header in batches:
            self.epoch.read(header.partition_leader_epoch, header.base_offset)
        self.answered(now, high_watermark)

    def _may_have_passed_an_end(self, now: float) -> bool:
        oldest = next(iter(self._open.values()), None)
        if oldest is None or self._last_hole <= oldest.first:
            return False
        return may_have_passed_its_end(max(oldest.begun_at, self._at_end_at), now, self._again)

    def answered(self, now: float, high_watermark: Offset) -> None:
        """Note the high watermark of an answer, received at `now`, that had no records from `fetch_offset` on."""
        if self.fetch_offset >= high_watermark:
            self._at_end_at, self._again = now, 0

    def more(self) -> list[ConsumerRecord]:
        """The next records: of one batch, in order; none if more is to be fetched first.

        `handed_out` is to be called for all of them before the next call.  Raises ProtocolError for what is damaged and
        SpillError if the temporary file cannot be written or read.  Then it may be called again: what was lost by that
        is fetched again.
        """
        while True:
            if self._ending is not None:
                found = self._more_of(self._ending)
            else:
                batch = next(headers(self._data, self._place), None)
                if batch is None:
                    self._data, self._place = memoryview(b""), 0
                    return []
                found = self._look_at(*batch)
            if found:
                return found

    @property
    def has_more(self) -> bool:
        """Whether batches are left that `more` has not looked at."""
        return self._ending is not None or self._place < len(self._data)

    def handed_out(self, offset: int, all_of_the_batch: bool) -> None:
        """Note that the record at `offset` was handed out, and with it all before it that `more` gave."""
        if self._ending is None:
            self._next = self._after_batch if all_of_the_batch else offset + 1
            return
        self._inside = offset
        if all_of_the_batch and self._ending.buffer.is_empty:
            self._end(self._ending)

    def _look_at(self, place: int, header: BatchHeader) -> list[ConsumerRecord]:
        """Buffer, deliver or drop a batch; the records to be handed out before the next one.  Raises as `more`."""
        batch = self._data[place : place + header.size]
        try:
            found = self._take_step(batch, header) if header.last_offset >= self._next else []
        except ProtocolError:
            self._data, self._place, self.fetch_offset = memoryview(b""), 0, self._next
            self.epoch.begin()
            raise
        self._place = place + header.size
        return found

    def _take_step(self, batch: memoryview, header: BatchHeader) -> list[ConsumerRecord]:
        if not crc_matches(batch, 0, header):
            raise ProtocolError(f"the batch at offset {header.base_offset} is damaged: its checksum does not match")
        found: list[ConsumerRecord] = []
        control = read_control_record(batch, 0, header) if header.is_control else None
        transaction = self._open.get(header.producer_id)
        match STEPS[kind_of(header, control), transaction is not None]:
            case Step.DELIVER:
                found = self._records(batch, header, max(self._next, self._begun.delivered))
            case Step.BEGIN:
                self._begin(batch, header)
            case Step.KEEP if transaction is not None:
                transaction.buffer.append(batch)
            case Step.DROP if transaction is not None:
                self._drop(transaction)
            case Step.DELIVER_TRANSACTION if transaction is not None:
                self._commit(transaction, header.base_offset)
        self._after_batch = header.last_offset + 1
        if not found and self._ending is None:
            self._next = self._after_batch
        return found

    def _begin(self, batch: memoryview, header: BatchHeader) -> None:
        first = max(header.base_offset, self._next)
        transaction = _Open(header, first, self._fed_at, self._buffers.begin())
        transaction.buffer.append(batch)
        self._open[header.producer_id] = transaction

    def _drop(self, transaction: _Open) -> None:
        del self._open[transaction.producer_id]
        transaction.buffer.drop()

    def _commit(self, transaction: _Open, marker: int) -> None:
        wanted = first_wanted(self._begun, marker)
        if wanted is None:
            self._drop(transaction)
        else:
            self._next, self._ending, self._inside = marker, transaction, wanted - 1

    def _more_of(self, transaction: _Open) -> list[ConsumerRecord]:
        """The next records of a transaction that is committed; after the last ones it is over."""
        if transaction.buffer.is_empty:
            self._end(transaction)
            return []
        try:
            batch = transaction.buffer.pop()
            header = read_header(batch)
            return self._records(batch, header, max(transaction.first, self._inside + 1))
        except (ProtocolError, SpillError):
            self.begin(self.position())
            raise

    def _end(self, transaction: _Open) -> None:
        self._drop(transaction)
        self._next, self._ending, self._inside = self._after_batch, None, -1

    def _records(self, batch: Buffer, header: BatchHeader, first: int) -> list[ConsumerRecord]:
        """The records of a batch from offset `first` on."""
        topic, partition = self.at
        return [
            ConsumerRecord(topic, partition, *record)
            for record in decode_batch(batch, 0, header)
            if record.offset >= first
        ]

    # What the user is told

    def open_transactions(self, now: float) -> list[OpenTransaction]:
        """The transactions that have begun and not ended, the oldest first."""
        return [
            OpenTransaction(
                self.at,
                each.producer_id,
                each.epoch,
                Offset(each.first),
                Milliseconds(int(1000 * (now - each.begun_at))),
                each.buffer.in_memory,
                each.buffer.on_disk,
            )
            for each in self._open.values()
            if each is not self._ending
        ]

    def warnings(self, now: float, high_watermark: Offset, last_stable_offset: Offset, log_start: int) -> list[str]:
        """The log lines about transactions that are open for long, or begin before the log; none is repeated.

        `log_start` and the two offsets before it: of the leader's newest answer.

        They are warnings and no errors, because a transaction that does not end is to hold nobody up.
        """
        said: list[str] = []
        for each in self._open.values():
            if each is self._ending:
                continue
            open_for = now - each.begun_at
            if each.first >= log_start and open_for < self._bound:
                break  # and so are all that began later
            if each.first < log_start and not each.is_behind_log_start:
                each.is_behind_log_start = True
                said.append(
                    f"{self.at}: the first records of an open transaction have been deleted from the log, which begins "
                    f"at {log_start} now: {each}. This consumer has them, and delivers all if it is committed; one "
                    "that takes over, or starts again, cannot have them"
                )
            if due_again(open_for, self._bound, each.said) and is_surely_open(
                each.first, self._next, high_watermark, last_stable_offset
            ):
                each.said += 1
                said.append(
                    f"{self.at}: a transaction has been open for {open_for:.0f} s: {each}. Others are delivered, but "
                    f"{each.buffer.in_memory} bytes of memory and {each.buffer.on_disk} of disk are held for it, and "
                    "reading begins there after a restart. If its producer is gone, a new one with its transactional "
                    "id ends it; where no coordinator has it any more, `fencepost transactions abort --topic "
                    f"{self.at.topic} --partition {self.at.partition} --start-offset {each.first}` does"
                )
        return said
