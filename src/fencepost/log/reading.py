"""Reads of a partition: by offset for consumers, by time for those who look for an offset."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import NamedTuple, Protocol, TypeAlias

from fencepost.log.batch_check import most_unfolded
from fencepost.log.damage import FileDamaged
from fencepost.log.segment import Segment
from fencepost.log.segment_indexes import HEADERS_AT_ONCE, IndexesBeingMade, with_indexes
from fencepost.log.segments import Segments
from fencepost.log.settings import LogSettings
from fencepost.protocol.batch import HEADER_SIZE, BatchHeader, crc_matches, read_header
from fencepost.protocol.errors import ProtocolError
from fencepost.protocol.record_scan import first_moment
from fencepost.protocol.steps import SUMMED_IN_A_UNIT, Pace, Steps
from fencepost.protocol.types import FIRST_OFFSET, Isolation, LeaderEpoch, Milliseconds, Offset, ProducerId

_REMEMBERED = 32


class Fetched(NamedTuple):
    """Batches, and where the log stood when they were read."""

    records: bytes | memoryview
    high_watermark: Offset
    last_stable_offset: Offset
    log_start_offset: Offset
    aborted: list[tuple[ProducerId, Offset]] | None
    """(producer id, first offset) of aborted transactions among the records; None for read_uncommitted, or no room."""
    cost: int = 0
    """How much of the room of an answer they take.

    As in Apache Kafka with the beginning of a batch that has no room any more: there it is sent, here it is not.
    """


@dataclass(frozen=True, slots=True)
class TimestampOffset:
    """A record found by time: its timestamp in milliseconds, offset and leader epoch."""

    timestamp: Milliseconds
    offset: Offset
    leader_epoch: LeaderEpoch


class Ends(Protocol):
    """The settings and offsets of a partition that a reader uses."""

    @property
    def settings(self) -> LogSettings: ...

    @property
    def log_start_offset(self) -> Offset: ...

    @property
    def log_end_offset(self) -> Offset: ...

    @property
    def high_watermark(self) -> Offset: ...

    def bound(self, isolation: Isolation, /) -> Offset:
        """The offset up to which a reader of this isolation may read."""
        ...


Places: TypeAlias = dict[Offset, tuple[Segment, int, Offset]]
"""Offset -> segment and position of the first batch that ends there or after it, and where it begins at the least."""


class Reader:
    """Reads of one partition.  Remembers in `places` where the last reads began and ended: consumers go on from there,
    and others may read the same.

    Raises FileDamaged where what is asked for cannot be read, and IndexesBeingMade, if it does not work in steps.
    """

    def __init__(self, segments: Segments, partition: Ends, places: Places) -> None:
        self._segments = segments
        self._partition = partition
        self._positions = places

    def batches(
        self, offset: Offset, bound: Offset, max_bytes: int, at_least_one: bool
    ) -> tuple[bytes | memoryview, Offset, int]:
        """Whole batches of one segment, from the one that holds `offset`, all before `bound`.  Raises FileDamaged.

        Also the offset that follows them, and what they cost.
        """
        if offset >= bound:
            return b"", offset, 0
        place = self._place(offset)
        if place is None:
            last = self._segments[-1]
            raise last.damaged(last.size, f"offset {offset} is not there")
        segment, position, least = place
        room = min(max(max_bytes, HEADER_SIZE), segment.size - position)
        # With the header that follows: it tells whether the offsets of the last batch are right.
        data = memoryview(segment.read(min(room + HEADER_SIZE, segment.size - position), position, HEADER_SIZE))
        room = min(room, len(data))
        first = None
        if at_least_one:
            first = segment.header(data, 0, position, least)
            size = first.size
            if position + size > segment.size:
                raise segment.damaged(position, "a batch does not end before the file does")
            if size > room:
                room = size
                data = memoryview(segment.read(min(size + HEADER_SIZE, segment.size - position), position, size))
        taken, following = self._take(place, data, first, room, offset, bound)
        if taken > max_bytes and not at_least_one:
            return b"", offset, 0
        if segment is self._segments.ordered[-1] or following < self._end_of(segment):
            self._remember(following, segment, position + taken, following if taken else least)
        cut = taken and following < bound and position + taken < segment.size
        return data[:taken], following, max(taken, max_bytes) if cut else taken

    def _take(
        self,
        place: tuple[Segment, int, Offset],
        data: memoryview,
        first: BatchHeader | None,
        room: int,
        offset: Offset,
        bound: Offset,
    ) -> tuple[int, Offset]:
        """Bytes of `data` that are whole batches before `bound` and have room; the offset behind.  Raises FileDamaged.

        `first`: the header of the first batch, where it was looked at.
        A batch with a gap in front may be what is wrong where the next one does not fit: then it is not given.
        """
        segment, position, least = place
        taken, following, trusted, end = 0, offset, (0, offset), self._end_of(segment)
        has_gap = False
        wrong: FileDamaged | None = None
        last: tuple[int, BatchHeader] | None = None
        while taken + HEADER_SIZE <= len(data):
            try:
                header = first or segment.header(data, taken, position + taken, least)
                first = None
                last_offset, size = header.last_offset, header.size
                behind = Offset(last_offset + 1)
                # Where another read ended nobody looked for the offset: it may be within the batch before.
                skipped = header.base_offset > offset == least
                if last_offset < offset or (skipped and segment.locate(offset) != position):
                    self._positions.pop(offset, None)
                    raise segment.damaged(position, f"offset {offset} does not stand there")
                if last_offset >= end:
                    raise self._beyond(segment, header, position + taken)
                if header.base_offset > following and not has_gap:
                    segment.check_length()
                    has_gap = True
            except FileDamaged as damaged:
                wrong = damaged
                break
            if header.base_offset >= bound and not taken:
                self._check_behind_gap(segment, header, data, position)
                return 0, offset
            if header.base_offset >= bound or taken + size > room:
                return taken, following
            last = taken, header
            trusted = (taken, following) if header.base_offset > following else (taken + size, behind)
            taken += size
            least = following = behind
        if wrong is None and taken:
            wrong = self._wrong_end(segment, position + taken)
            trusted = (0, offset) if wrong is not None and trusted[1] == following else trusted
        if wrong is not None and last is not None and trusted[0] > last[0] and not crc_matches(data, *last):
            # Its length may be what is wrong.
            trusted = last[0], last[1].base_offset
        if wrong is None:
            return taken, following
        if not trusted[0]:
            raise wrong
        return trusted

    def _check_behind_gap(self, segment: Segment, header: BatchHeader, data: memoryview, position: int) -> None:
        """Offsets are missing in front of a batch: compacted away, or it is not where it belongs.

        `data`: from the batch on.  Raises FileDamaged if it cannot be there.
        """
        if header.size + HEADER_SIZE <= len(data):
            segment.header(data, header.size, position + header.size, header.last_offset + 1)
        self._check_offsets(segment, header, position)

    @staticmethod
    def _wrong_end(segment: Segment, position: int) -> FileDamaged | None:
        """The error for batches that end at `position`, where less than a header is left behind them; else None."""
        if 0 < segment.size - position < HEADER_SIZE:
            return segment.damaged(position, "the batch before has not the length that it says")
        return None

    def _check_offsets(self, segment: Segment, header: BatchHeader, position: int) -> None:
        """Raises FileDamaged for a batch whose offsets, which no CRC covers, cannot be in this segment."""
        if header.last_offset >= self._end_of(segment):
            raise self._beyond(segment, header, position)

    @staticmethod
    def _beyond(segment: Segment, header: BatchHeader, position: int) -> FileDamaged:
        return segment.damaged(position, f"a batch up to offset {header.last_offset} cannot stand there")

    def _end_of(self, segment: Segment) -> Offset:
        """The offset at which the next segment, or the next batch, begins."""
        return self._segments.end_of(segment, self._partition.log_end_offset)

    def _place(self, offset: Offset) -> tuple[Segment, int, Offset] | None:
        """Segment and position of the first batch that ends at `offset` or after it, and where it begins at the least.

        Raises FileDamaged where a segment ends too early.
        """
        known = self._positions.get(offset)
        if known is not None and known[1] < known[0].size:
            return known
        for segment in self._segments.holding(offset):
            position = segment.locate(offset)
            if position is not None:
                self._remember(offset, segment, position, segment.base_offset)
                return segment, position, segment.base_offset
        return None

    def _remember(self, offset: Offset, segment: Segment, position: int, least: Offset) -> None:
        if len(self._positions) >= _REMEMBERED:
            self._positions.pop(next(iter(self._positions)))
        self._positions[offset] = (segment, position, least)

    def forget(self) -> None:
        """Forget all positions, for segments have changed."""
        self._positions.clear()

    def position_of(self, offset: Offset) -> tuple[Offset, int] | None:
        """Base offset of the segment that the batch with this offset stands, or will stand, in; and its position there.

        None if that cannot be told, or not yet, because a file is damaged.
        """
        partition = self._partition
        try:
            place = self._place(offset) if offset < partition.log_end_offset else None
        except (FileDamaged, IndexesBeingMade):
            return None
        if place is None:
            last = self._segments[-1]
            return last.base_offset, last.size
        return place[0].base_offset, place[1]

    def size_from(self, offset: Offset) -> int:
        """Bytes from the batch with this offset to the end of its segment: no read gives more.

        0 if that cannot be told, as in `position_of`, or there is no such batch.
        """
        try:
            place = self._place(offset)
        except (FileDamaged, IndexesBeingMade):
            return 0
        return 0 if place is None else place[0].size - place[1]

    # By time (facts §8.3), in steps: few bytes may be many records

    def offset_for_timestamp(
        self, timestamp: Milliseconds, isolation: Isolation, pace: Pace
    ) -> Steps[TimestampOffset | None]:
        """The first record that is not older than `timestamp`, if a reader of this isolation may see it.

        Where the records of a batch cannot be read, its header is believed: they may be meant from the first one on.
        """
        partition, at = self._partition, FIRST_OFFSET
        while True:
            place = yield from with_indexes(partial(self._not_older, timestamp, at), pace)
            if place is None:
                return None
            header, data = place
            if data is None:
                yield from pace.spend(HEADERS_AT_ONCE)
                at = Offset(header.last_offset + 1)
                continue
            start = partition.log_start_offset
            if header.base_offset >= partition.bound(isolation):
                return None
            try:
                found = yield from first_moment(data, header, timestamp, start, most_unfolded(partition.settings), pace)
            except ProtocolError:
                found = header.max_timestamp, max(header.base_offset, start)
            if found is not None:
                if found[1] >= partition.bound(isolation):
                    return None  # of a transaction whose beginning DeleteRecords has passed
                return TimestampOffset(Milliseconds(found[0]), Offset(found[1]), header.partition_leader_epoch)
            at = Offset(header.last_offset + 1)

    def _not_older(self, timestamp: Milliseconds, at: Offset) -> tuple[BatchHeader, bytes | None] | None:
        """The first batch that ends at offset `at` or after it and has a record of that time or later, by its header.

        After many others in vain: the header of the last one of those, and None.  Raises FileDamaged.
        """
        at, left = max(at, self._partition.log_start_offset), HEADERS_AT_ONCE
        for segment in self._segments.holding(at):
            if segment.max_timestamp < timestamp:
                continue
            position = segment.position_from(timestamp)
            if at > segment.base_offset:
                located = segment.locate(at)
                if located is None:
                    continue
                position = max(position, located)
            for found, header, data in segment.walk(position):
                if not crc_matches(data, 0, header):
                    raise segment.damaged(found, "the CRC of the batch does not match")
                self._check_offsets(segment, header, found)
                if header.max_timestamp >= timestamp and header.last_offset >= at:
                    return header, bytes(data)
                left -= 1 + header.size // SUMMED_IN_A_UNIT
                if left <= 0:
                    return header, None
        return None

    def max_timestamp_offset(self, isolation: Isolation, pace: Pace) -> Steps[TimestampOffset | None]:
        """The first record with the largest timestamp of all, if a reader of this isolation may see it.

        Control records count, and those that DeleteRecords has left in their segment, as in Apache Kafka.
        """
        best = yield from self._newest(pace)
        if best is None:
            return None
        header = read_header(best)
        largest, offset, settings = header.max_timestamp, header.last_offset, self._partition.settings
        try:
            found = yield from first_moment(best, header, largest, FIRST_OFFSET, most_unfolded(settings), pace)
        except ProtocolError:
            found = None
        if found is not None:
            offset = Offset(found[1])
        if offset >= self._partition.bound(isolation):
            return None
        return TimestampOffset(largest, offset, header.partition_leader_epoch)

    def _newest(self, pace: Pace) -> Steps[bytes | None]:
        """The first batch with the largest timestamp.  What is not durable yet is not there yet."""
        best: tuple[BatchHeader, bytes] | None = None
        newest_first = sorted(self._segments, key=lambda segment: segment.max_timestamp, reverse=True)
        for segment in newest_first:
            if best is not None and segment.max_timestamp <= best[0].max_timestamp:
                break
            best = yield from self._newest_of(segment.base_offset, self._partition.high_watermark, best, pace)
        return None if best is None else best[1]

    def _newest_of(
        self, base: Offset, end: Offset, best: tuple[BatchHeader, bytes] | None, pace: Pace
    ) -> Steps[tuple[BatchHeader, bytes] | None]:
        """The first batch before `end` in this segment that is newer than `best`, else that.  Raises FileDamaged."""
        at: Offset | None = base
        while at is not None:
            place = yield from with_indexes(partial(self._newest_from, base, at, end), pace)
            if place is None:
                return best
            segment, start, stop = place
            at, left = None, HEADERS_AT_ONCE
            for position, header, data in segment.walk(start, stop):
                if not crc_matches(data, 0, header):
                    raise segment.damaged(position, "the CRC of the batch does not match")
                self._check_offsets(segment, header, position)
                if header.base_offset >= end:
                    return best
                if best is None or header.max_timestamp > best[0].max_timestamp:
                    best = header, bytes(data)
                left -= 1 + header.size // SUMMED_IN_A_UNIT
                if left <= 0:
                    at = Offset(header.last_offset + 1)
                    yield from pace.spend(HEADERS_AT_ONCE)
                    break
        return best

    def _newest_from(self, base: Offset, at: Offset, end: Offset) -> tuple[Segment, int, int | None] | None:
        """The segment with this base, and where to look in it for a newest batch from offset `at` on and before `end`.

        None where it is not there any more: between two steps it may have been replaced, or removed.
        """
        segment = self._segments[self._segments.number_of(base)]
        if segment.base_offset != base:
            return None
        start, stop = segment.newest_before(end)
        if at > base:
            located = segment.locate(at)
            if located is None:
                return None
            start = max(start, located)
        return segment, start, stop
