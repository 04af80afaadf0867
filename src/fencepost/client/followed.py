"""The state of one partition that is being read: its fetched batches, and how far their records were handed out."""

from __future__ import annotations

import uuid
from typing import NamedTuple

from fencepost.client.commit_order.options import CommitOrder
from fencepost.client.commit_order.partition import PartitionInCommitOrder
from fencepost.client.commit_order.position import Position, position_of
from fencepost.client.errors import damage_named
from fencepost.client.fetch_session import Wanted
from fencepost.client.partition_batch import PartitionBatch
from fencepost.client.read_epoch import ReadEpoch
from fencepost.client.records import ConsumerRecord, Opened, opened
from fencepost.client.transactional_id import OffsetAndMetadata, with_metadata
from fencepost.protocol.types import ZERO_UUID, Offset, TopicPartition


class Fetched(NamedTuple):
    """An answer of a leader for one partition: raw batches from `position` on.

    `aborted`: producer id and first offset of each aborted transaction, None: their records are read, too.
    `came_at` is in seconds of the event loop's clock.
    """

    position: int
    data: memoryview
    aborted: list[tuple[int, int]] | None
    came_at: float
    high_watermark: Offset


class Followed:
    """One partition that is being read, from a position on.

    A position is an offset, in commit order one with metadata.  Raises PositionMetadataError.
    """

    __slots__ = (
        *("_epoch", "_position", "at", "chunk", "fetched", "had_some", "opened"),
        *("in_commit_order", "in_flight", "paused", "ready", "seeks", "topic_id"),
    )

    def __init__(
        self,
        at: TopicPartition,
        position: int | OffsetAndMetadata,
        topic_id: uuid.UUID = ZERO_UUID,
        order: CommitOrder | None = None,
    ) -> None:
        self.at = at
        self.topic_id = topic_id
        """The id of the topic that the position is in; zero: not known."""
        begun = with_metadata(position)
        self.in_commit_order: PartitionInCommitOrder | None = None
        if order is not None:
            self.in_commit_order = order.partition(at, position_of(at, begun))
        self._position = begun.offset
        """Offset of the next record to hand out, in offset order."""
        self.fetched: Fetched | None = None
        """The next batches, not looked into yet."""
        self.ready: list[ConsumerRecord] = []
        """The decoded records that are to be handed out, the next one last."""
        self.opened: Opened | None = None
        """The batches that the ready records are from, in offset order; else None."""
        self.chunk = begun.offset
        """The offset to fetch next."""
        self._epoch = ReadEpoch(begun.leader_epoch)
        """The leader epoch of the batch before that, in offset order."""
        self.in_flight = False
        self.had_some = True
        """Whether the last answer had records, so that there may be more at once."""
        self.paused = False
        self.seeks = 0
        """The number of calls of `seek`."""

    def seek(self, position: int | OffsetAndMetadata) -> None:
        """Go on at `position`; what was fetched is dropped.  Raises PositionMetadataError; then nothing is changed."""
        begun = with_metadata(position)
        if self.in_commit_order is not None:
            self.in_commit_order.begin(position_of(self.at, begun))
        self.seeks += 1
        self._position = self.chunk = begun.offset
        self._epoch.begin(begun.leader_epoch)
        self.ready, self.fetched, self.opened = [], None, None

    def let_go(self) -> None:
        """Drop the kept records of open transactions, as the partition is read no more."""
        if self.in_commit_order is not None:
            self.in_commit_order.begin(self.in_commit_order.position())

    @property
    def position(self) -> int:
        """Offset of the next record to hand out; in commit order where the oldest open transaction begins."""
        return self._position if self.in_commit_order is None else self.in_commit_order.position().start

    @property
    def fetch_offset(self) -> int:
        return self.chunk

    @property
    def wanted(self) -> Wanted:
        """The topic id, the offset and the leader epoch to ask for in the next Fetch."""
        reader = self.in_commit_order
        return Wanted(self.topic_id, self.chunk, (self._epoch if reader is None else reader.epoch).known)

    def decode(self) -> None:
        """Make records ready of what was fetched, if none are.  Raises DamagedRecordsError, SpillError."""
        self.decode_on()
        if self.ready or self.fetched is None:
            return
        if self.in_commit_order is not None:
            fetched, self.fetched = self.fetched, None
            if fetched.position == self.chunk:
                with damage_named(self.at, self.chunk):
                    self.in_commit_order.feed(fetched.data, fetched.came_at, fetched.high_watermark)
                self.decode_on()
            return
        seen = self._open()
        if seen is None:
            return
        there, end = seen
        with damage_named(self.at, self.chunk):
            found, damaged = there.whole_records(self.at, self.chunk)
        found.reverse()
        self.ready, self.chunk = found, end if damaged is None else damaged
        if damaged is not None:
            self._epoch.begin()
        if found:
            self.opened = there if damaged is None else there.before(damaged)
        else:
            self._position = end

    def _open(self) -> tuple[Opened, int] | None:
        """The batches from the position on, and the position after them.  Raises as `decode`, and drops them then."""
        fetched, self.fetched = self.fetched, None
        if fetched is None or fetched.position != self.chunk:
            return None
        with damage_named(self.at, self.chunk):
            return opened(fetched.data, fetched.aborted, self.chunk, self._epoch)

    def take_batch(self) -> PartitionBatch | None:
        """All records that wait here, in one batch and handed out by that; None: none do.  Raises as `decode` does.

        In offset order records are not decoded for it.
        """
        if self.in_commit_order is not None:
            self.decode()
        if self.ready:
            records, self.ready = self.ready[::-1], []
            there = self.opened or records
            self.handed_out(records[-1].offset)
            return PartitionBatch(self.at, records[0].offset, self.next_offset(), there)
        seen = self._open() if self.in_commit_order is None else None
        if seen is None:
            return None
        first, (there, self.chunk) = self.chunk, seen
        self._position = self.chunk
        return PartitionBatch(self.at, first, self.chunk, there) if there.batches else None

    def decode_on(self) -> None:
        """In commit order, make records ready of the batches taken already, if none are.  Raises as `decode`."""
        if self.ready or self.in_commit_order is None:
            return
        try:
            with damage_named(self.at, self.in_commit_order.fetch_offset):
                self.ready = self.in_commit_order.more()
        finally:
            self.chunk = self.in_commit_order.fetch_offset
        self.ready.reverse()

    @property
    def has_more(self) -> bool:
        """Whether records that were fetched are not handed out, or not looked into."""
        if self.ready or self.fetched is not None:
            return True
        return self.in_commit_order is not None and self.in_commit_order.has_more

    def handed_out(self, offset: int) -> None:
        """Note that the record of that offset was the last one that was taken from `ready`."""
        if self.in_commit_order is None:
            self._position = offset + 1 if self.ready else self.chunk
            if not self.ready:
                self.opened = None
        else:
            self.in_commit_order.handed_out(offset, not self.ready)

    def lend(self, most: int) -> list[ConsumerRecord]:
        """Hand out up to `most` of the ready records, the next one last; in offset order only."""
        some = self.ready[-most:]
        del self.ready[-most:]
        self.handed_out(some[0].offset)
        return some

    def put_back(self, records: list[ConsumerRecord], position: int, there: Opened | None) -> None:
        """Take back records that were lent, the next one last, to hand them out again from `position` on.

        `there`: what `opened` was when they were lent.
        """
        self.ready += records
        self.opened = there
        self._position = position

    def next_offset(self) -> int | OffsetAndMetadata:
        """The position after the records handed out, and after the control and aborted records that follow them."""
        if self.in_commit_order is None:
            return self._position
        return self.in_commit_order.position().committed()

    def committed(self) -> OffsetAndMetadata:
        """The position of `next_offset` as it is committed, in offset order with the leader epoch before it (KIP-320).

        Where not all that was looked into is handed out it may be a later one, which parts from a log no sooner.
        """
        if self.in_commit_order is not None:
            return self.in_commit_order.position().committed()
        return OffsetAndMetadata(self._position, leader_epoch=self._epoch.known)

    def before_ready(self) -> int | Position:
        """The position before the record that is handed out next."""
        if self.in_commit_order is not None:
            return self.in_commit_order.position()
        return self.ready[-1].offset if self.ready else self._position
