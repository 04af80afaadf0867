"""One partition that is being read: what was fetched of it, and how far its records were handed out."""

from __future__ import annotations

import uuid
from typing import NamedTuple

from fencepost.client.commit_order.options import CommitOrder
from fencepost.client.commit_order.partition import PartitionInCommitOrder
from fencepost.client.commit_order.position import Position, position_of
from fencepost.client.records import ConsumerRecord, records_of
from fencepost.client.transactional_id import OffsetAndMetadata, with_metadata
from fencepost.protocol.types import ZERO_UUID, TopicPartition


class Fetched(NamedTuple):
    """What came for one partition: raw batches from `position` on.  `came_at` is by the event loop's clock."""

    position: int
    data: memoryview
    aborted: list[tuple[int, int]] | None
    came_at: float


class Followed:
    """One partition that is being read, from a position on.

    A position is an offset, in commit order one with metadata.  Raises PositionMetadataError.
    """

    __slots__ = (
        *("_position", "at", "chunk", "fetched", "had_some", "in_commit_order", "in_flight"),
        *("paused", "ready", "seeks", "topic_id"),
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
        """Of the topic that the position is in; zero: not known."""
        begun = with_metadata(position)
        self.in_commit_order: PartitionInCommitOrder | None = None
        if order is not None:
            self.in_commit_order = order.partition(at, position_of(at, begun))
        self._position = begun.offset
        """Offset of the next record to hand out, in offset order."""
        self.fetched: Fetched | None = None
        """The next data, not looked into yet."""
        self.ready: list[ConsumerRecord] = []
        self.chunk = begun.offset
        """Where to go on fetching."""
        self.in_flight = False
        self.had_some = True
        """Whether the last answer had records, so that there may be more at once."""
        self.paused = False
        self.seeks = 0
        """How often it was said where to go on."""

    def seek(self, position: int | OffsetAndMetadata) -> None:
        """Go on there.  Raises PositionMetadataError; then nothing is changed."""
        begun = with_metadata(position)
        if self.in_commit_order is not None:
            self.in_commit_order.begin(position_of(self.at, begun))
        self.seeks += 1
        self._position = self.chunk = begun.offset
        self.ready, self.fetched = [], None

    def let_go(self) -> None:
        """It is read no more: what is kept of open transactions is dropped."""
        if self.in_commit_order is not None:
            self.in_commit_order.begin(self.in_commit_order.position())

    @property
    def position(self) -> int:
        """Offset of the next record to hand out; in commit order where the oldest open transaction begins."""
        return self._position if self.in_commit_order is None else self.in_commit_order.position().start

    @property
    def fetch_offset(self) -> int:
        return self.chunk

    def decode(self) -> None:
        """Look into what was fetched, if nothing is ready.  Raises ProtocolError for what is damaged, SpillError."""
        self.decode_on()
        if self.ready or self.fetched is None:
            return
        fetched, self.fetched = self.fetched, None
        if fetched.position != self.chunk:
            return
        if self.in_commit_order is not None:
            self.in_commit_order.feed(fetched.data, fetched.came_at)
            self.decode_on()
            return
        topic, partition = self.at
        found, self.chunk = records_of(topic, partition, fetched.data, fetched.aborted, self.chunk)
        found.reverse()
        self.ready = found
        if not found:
            self._position = self.chunk

    def decode_on(self) -> None:
        """The same, but only what was fetched together with what was handed out last."""
        if self.ready or self.in_commit_order is None:
            return
        try:
            self.ready = self.in_commit_order.more()
        finally:
            self.chunk = self.in_commit_order.fetch_offset
        self.ready.reverse()

    @property
    def has_more(self) -> bool:
        """Whether something that was fetched is not handed out, or not looked into."""
        if self.ready or self.fetched is not None:
            return True
        return self.in_commit_order is not None and self.in_commit_order.has_more

    def handed_out(self, offset: int) -> None:
        """The record of that offset was the last one that was taken from `ready`."""
        if self.in_commit_order is None:
            self._position = offset + 1 if self.ready else self.chunk
        else:
            self.in_commit_order.handed_out(offset, not self.ready)

    def next_offset(self) -> int | OffsetAndMetadata:
        """The position after everything that was handed out, and after what nobody is shown."""
        if self.in_commit_order is None:
            return self._position
        return self.in_commit_order.position().committed()

    def before_ready(self) -> int | Position:
        """The position before the next record that is ready."""
        return self.ready[-1].offset if self.in_commit_order is None else self.in_commit_order.position()
