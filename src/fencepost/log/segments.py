"""The segments of one partition: the partition and its cleaner change them, readers go over them."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator, Sequence
from typing import overload

from fencepost.log.damage import FileDamaged
from fencepost.log.segment import Segment
from fencepost.log.transaction_index import AbortedTransaction
from fencepost.protocol.types import Offset


class Segments(Sequence[Segment]):
    """Segments in the order of their offsets; the last one is written to.  None until the partition is opened."""

    def __init__(self) -> None:
        #: Like the base offsets for who reads often; changed here only.
        self.ordered: list[Segment] = []
        self.bases: list[Offset] = []
        self.is_left = False
        """Whether nothing more is written to the newest one: it is damaged, and a copy in its place would lack that."""

    def __len__(self) -> int:
        return len(self.ordered)

    def __iter__(self) -> Iterator[Segment]:
        return iter(self.ordered)

    @overload
    def __getitem__(self, number: int) -> Segment: ...

    @overload
    def __getitem__(self, number: slice) -> list[Segment]: ...

    def __getitem__(self, number: int | slice) -> Segment | list[Segment]:
        return self.ordered[number]

    # Where offsets are

    def number_of(self, offset: Offset) -> int:
        """Number of the segment that holds an offset, or would; the first one for an offset before all of them."""
        return max(bisect_right(self.bases, offset) - 1, 0)

    def holding(self, offset: Offset) -> list[Segment]:
        """The segment that holds an offset, or would, and those behind it."""
        return self.ordered[self.number_of(offset) :]

    def end_of(self, segment: Segment, log_end_offset: Offset) -> Offset:
        """The offset at which the next segment begins, or else the log ends."""
        if segment is self.ordered[-1]:
            return log_end_offset
        number = self.number_of(segment.base_offset) + 1
        return self.bases[number] if number < len(self.bases) else log_end_offset

    def aborted_transactions(self, offset: Offset, upper_bound: Offset) -> list[AbortedTransaction]:
        """The aborted transactions that touch [offset, upper_bound)."""
        found: list[AbortedTransaction] = []
        for segment in self.holding(offset):
            if segment.transactions.collect(offset, upper_bound, found):
                break
        return found

    # Changes

    def check_newest(self) -> None:
        """Raises FileDamaged if the one that is written to has become shorter."""
        if self.ordered:
            self.ordered[-1].check_length()

    def leave(self, damaged: FileDamaged) -> None:
        """Stop writing to the newest segment if `damaged` is its file: the next append begins another one."""
        self.is_left = self.is_left or damaged.path == self.ordered[-1].path

    def append(self, segment: Segment) -> None:
        """Add a newer segment, which is written to from here on."""
        assert not self.bases or segment.base_offset > self.bases[-1], "segments are in the order of their offsets"
        self.ordered.append(segment)
        self.bases.append(segment.base_offset)
        self.is_left = False

    def remove(self, segment: Segment) -> None:
        """Leave out a segment that is not there any more."""
        number = self.ordered.index(segment)
        del self.ordered[number], self.bases[number]

    def replace(self, sources: Sequence[Segment], fresh: Segment) -> None:
        """Put one segment in the place of some that stand one behind the other."""
        first = self.ordered.index(sources[0])
        behind = first + len(sources)
        assert self.ordered[first:behind] == list(sources), "what is replaced stands together"
        self.ordered[first:behind] = [fresh]
        self.bases[first:behind] = [fresh.base_offset]
