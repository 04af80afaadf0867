"""Records that a thread takes one by one without asking the event loop for each."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Mapping
from typing import Final, TypeAlias

from fencepost.client.commit_order.position import Position
from fencepost.client.followed import Followed
from fencepost.client.records import ConsumerRecord, Opened
from fencepost.client.transactional_id import OffsetAndMetadata
from fencepost.protocol.types import TopicPartition

#: Seconds that they may be taken for: what a consumer does between two records (to tell its group that it asks, to join
#: it again, to commit by itself) is put off by no more.
LENT_FOR: Final = 0.05
MOST_LENT: Final = 512

Working: TypeAlias = dict[TopicPartition, int | Position | OffsetAndMetadata]
"""The position before the records handed out last, by partition: a new dict each time that some are handed out."""


class Lent:
    """Records of one partition behind `first`, which was handed out; `until` is by the event loop's clock, in seconds.

    The thread takes them from one end, in their order, and the event loop takes the rest back from the other end: so
    each is taken once, whenever one comes in between, and there is no lock.
    """

    def __init__(self, partition: Followed, first: int, records: Iterable[ConsumerRecord], until: float) -> None:
        """`first` is an offset; of `records` the next one is last."""
        self.partition = partition
        self.seeks = partition.seeks
        self._until = until
        self._left = deque(records)
        self._offsets = [first, *(record.offset for record in reversed(self._left))]

    def next(self, now: float) -> ConsumerRecord | None:
        """Take the next record; None: there is none, or their time is up.  `now` is as `until`."""
        try:
            return self._left.pop() if now < self._until else None
        except IndexError:
            return None

    def take_back(self) -> tuple[list[ConsumerRecord], int]:
        """The records that were not taken, the next one last, and the offset of the one that was taken last.

        After this the thread gets none any more.
        """
        rest = []
        try:
            while True:
                rest.append(self._left.popleft())
        except IndexError:
            return rest, self._offsets[-1 - len(rest)]


class Lending:
    """The records that one consumer has lent, and how many it lends next: more each time that all were taken."""

    def __init__(self) -> None:
        self._lent: Lent | None = None
        self._there: Opened | None = None
        """The batches that the lent records are from."""
        self._most = 0

    def lend(self, partition: Followed | None, taken: ConsumerRecord, now: float) -> Lent | None:
        """Lend the ready records behind `taken`, the last one taken of this partition; they are handed out then.

        None: there are none, or it is in commit order, whose positions are not only offsets.  What asks for positions,
        or changes them, has to `settle` first.
        """
        most, self._most = self._most, min(2 * self._most + 1, MOST_LENT)
        if not most or partition is None or partition.in_commit_order is not None or not partition.ready:
            return None
        self._there = partition.opened
        self._lent = Lent(partition, taken.offset, partition.lend(most), now + LENT_FOR)
        return self._lent

    def settle(self, followed: Mapping[TopicPartition, Followed], working: Working) -> None:
        """Take back the records that were not taken, as if no more had been handed out.

        `working`: gets the position before the record that was taken last, which the thread may be working on.
        """
        (lent, there), self._lent, self._there = (self._lent, self._there), None, None
        if lent is None:
            return
        (rest, last), partition = lent.take_back(), lent.partition
        if rest:
            self._most = 0
        if followed.get(partition.at) is partition and partition.seeks == lent.seeks:
            working[partition.at] = last
            if rest:
                partition.put_back(rest, last + 1, there)
