"""The indexes of a segment that say where a batch stands, by offset and by time, and how they are made again."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Final, TypeVar

from fencepost.log.damage import FileDamaged
from fencepost.log.disk import Disk, File
from fencepost.log.index import OffsetIndex, TimeIndex
from fencepost.log.segment_sums import SegmentSums
from fencepost.node_log import get_logger
from fencepost.protocol.batch import BatchHeader
from fencepost.protocol.steps import Pace, Steps
from fencepost.protocol.types import NO_TIMESTAMP, Milliseconds, Offset

T = TypeVar("T")
logger = get_logger(__name__)

HEADERS_AT_ONCE: Final = 1000
"""The number of batches that are noted, or passed by, in one step."""


class SegmentIndexes:
    """Kept in memory until they are written: an entry every `interval` bytes, and the largest timestamp so far."""

    def __init__(self, disk: Disk, log: Path, base_offset: Offset, interval: int) -> None:
        self.offsets = OffsetIndex(disk, _beside(log, ".index"))
        self.times = TimeIndex(disk, _beside(log, ".timeindex"))
        self._base_offset = base_offset
        self._interval = interval
        self._since_entry = 0
        self.max_timestamp = NO_TIMESTAMP
        self.max_timestamp_offset = base_offset

    def note(self, header: BatchHeader, last_offset: Offset, position: int) -> None:
        """Keep up with a batch that ends at `last_offset` and stands at `position`."""
        self.note_newest(header, last_offset)
        if self._since_entry > self._interval:
            self.offsets.append(last_offset - self._base_offset, position)
            self.note_time()
            self._since_entry = 0
        self._since_entry += header.size

    def note_newest(self, header: BatchHeader, last_offset: Offset) -> None:
        """Note how new this batch is, and nothing else of it."""
        if header.max_timestamp > self.max_timestamp:
            self.max_timestamp, self.max_timestamp_offset = header.max_timestamp, last_offset

    def note_time(self) -> None:
        """Make an entry of the largest timestamp."""
        timestamp, relative_offset = self.max_timestamp, self.max_timestamp_offset - self._base_offset
        try:
            self.times.append(timestamp, relative_offset)
        except FileDamaged as damaged:
            # It may have as few entries as one likes.
            logger.warning("begun again: %s", damaged)
            self.times.clear()
            self.times.append(timestamp, relative_offset)

    def believe_times(self) -> None:
        """Take the largest timestamp from the last entry."""
        last = self.times.last()
        self.forget_newest()
        if last is not None:
            self.max_timestamp, self.max_timestamp_offset = Milliseconds(last[0]), Offset(self._base_offset + last[1])

    def forget_newest(self) -> None:
        """Forget the largest timestamp: it is that of what is noted from now on."""
        self.max_timestamp, self.max_timestamp_offset = NO_TIMESTAMP, self._base_offset

    def believe(self, sums: SegmentSums) -> None:
        """Take the largest timestamp that was written down with the sums."""
        self.max_timestamp, self.max_timestamp_offset = sums.max_timestamp, sums.max_timestamp_offset

    def write(self, files: list[File]) -> None:
        """Bring the files up to date; each is added to `files` as soon as it is, to be synced and closed."""
        files.append(self.offsets.write())
        files.append(self.times.write())

    def clear(self) -> None:
        """Forget all entries."""
        self.offsets.clear()
        self.times.clear()


def _beside(log: Path, suffix: str) -> Path:
    """The path of an index of a segment: `log` may have an ending of its own behind `.log`."""
    stem, _, ending = log.name.partition(".log")
    return log.with_name(stem + suffix + ending)


class IndexesBeingMade(Exception):
    """The indexes of a segment lead astray and are made again from its batches, which may be many.

    `with_indexes` goes on with that in steps, `with_indexes_at_once` without any.
    """

    def __init__(self, log: Path, go_on: Callable[[], None]) -> None:
        super().__init__(f"the indexes of {log} are being made again")
        self.go_on = go_on


class Making:
    """Indexes that are being made again.  What is appended meanwhile is met at the end of the way."""

    def __init__(self, fresh: SegmentIndexes, batches: Iterator[tuple[int, BatchHeader]]) -> None:
        self.fresh = fresh
        self._batches = batches
        fresh.clear()

    def is_done_after_a_step(self) -> bool:
        """Note some more batches.  Raises FileDamaged where they cannot all be read."""
        for _ in range(HEADERS_AT_ONCE):
            found = next(self._batches, None)
            if found is None:
                return True
            position, header = found
            self.fresh.note(header, header.last_offset, position)
        return False


def with_indexes(work: Callable[[], T], pace: Pace) -> Steps[T]:
    """The result of `work`, which is begun again after each step of making indexes that it needs.

    Others may be served between the steps, and may have replaced or removed the segment.
    """
    while True:
        try:
            return work()
        except IndexesBeingMade as being_made:
            yield from pace.rest()
            being_made.go_on()


def with_indexes_at_once(work: Callable[[], T]) -> T:
    """As `with_indexes`, where nobody is kept waiting."""
    while True:
        try:
            return work()
        except IndexesBeingMade as being_made:
            being_made.go_on()
