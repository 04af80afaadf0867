"""Reads of a partition: by offset for consumers, by time for those who look for an offset."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from fencepost.protocol.batch import HEADER_SIZE, read_header
from fencepost.protocol.errors import ProtocolError
from fencepost.protocol.records import decode_batch
from fencepost.protocol.types import Isolation

if TYPE_CHECKING:
    from fencepost.log.partition import Partition
    from fencepost.log.segment import Segment

_REMEMBERED = 64


@dataclass(frozen=True, slots=True)
class Fetched:
    """Batches, and where the log stood when they were read."""

    records: bytes | memoryview
    high_watermark: int
    last_stable_offset: int
    log_start_offset: int
    aborted: list[tuple[int, int]] | None
    """(producer id, first offset) of aborted transactions among the records; None for read_uncommitted."""


@dataclass(frozen=True, slots=True)
class TimestampOffset:
    """A record found by time."""

    timestamp: int
    offset: int
    leader_epoch: int


class Reader:
    """Reads of one partition.  Remembers where the last reads ended: consumers go on from there."""

    def __init__(self, partition: Partition) -> None:
        self._partition = partition
        self._positions: dict[int, tuple[Segment, int]] = {}

    def read(self, offset: int, max_bytes: int, isolation: Isolation, at_least_one: bool) -> Fetched:
        partition = self._partition
        bound = partition.bound(isolation)
        records: bytes | memoryview = b""
        following = offset
        if offset < bound:
            records, following = self._batches(offset, bound, max_bytes, at_least_one)
        aborted = None
        if isolation is Isolation.READ_COMMITTED:
            aborted = []
            if records:
                found = partition.aborted_transactions(offset, following)
                aborted = [(entry.producer_id, entry.first_offset) for entry in found]
        return Fetched(
            records, partition.high_watermark, partition.last_stable_offset, partition.log_start_offset, aborted
        )

    def _batches(self, offset: int, bound: int, max_bytes: int, at_least_one: bool) -> tuple[bytes | memoryview, int]:
        """Whole batches of one segment, from the one that holds `offset`, all before `bound`; and what follows them."""
        place = self._place(offset)
        if place is None:
            return b"", offset
        segment, position = place
        data = memoryview(segment.file.pread(min(max(max_bytes, HEADER_SIZE), segment.size - position), position))
        if at_least_one and len(data) >= HEADER_SIZE:
            size = read_header(data).size
            if size > len(data):
                data = memoryview(segment.file.pread(size, position))
        taken, following = 0, offset
        while taken + HEADER_SIZE <= len(data):
            header = read_header(data, taken)
            if header.base_offset >= bound or taken + header.size > len(data):
                break
            taken += header.size
            following = header.last_offset + 1
        if taken > max_bytes and not at_least_one:
            return b"", offset
        self._remember(following, segment, position + taken)
        return data[:taken], following

    def _place(self, offset: int) -> tuple[Segment, int] | None:
        """Segment and position of the first batch that ends at `offset` or after it."""
        known = self._positions.pop(offset, None)
        if known is not None and known[1] < known[0].size:
            return known
        partition = self._partition
        for segment in partition.segments[partition.segment_of(offset) :]:
            position = segment.locate(offset)
            if position is not None:
                return segment, position
        return None

    def _remember(self, offset: int, segment: Segment, position: int) -> None:
        if len(self._positions) >= _REMEMBERED:
            self._positions.pop(next(iter(self._positions)))
        self._positions[offset] = (segment, position)

    def forget(self) -> None:
        """Segments have changed: look positions up again."""
        self._positions.clear()

    def readable_bytes(self, offset: int, isolation: Isolation) -> int:
        partition = self._partition
        if offset >= partition.bound(isolation):
            return 0
        place = self._place(offset)
        if place is None:
            return 0
        segment, position = place
        self._remember(offset, segment, position)
        return (
            segment.size
            - position
            + sum(later.size for later in partition.segments if later.base_offset > segment.base_offset)
        )

    # By time (facts §8.3)

    def offset_for_timestamp(self, timestamp: int, isolation: Isolation) -> TimestampOffset | None:
        """The first record that is not older than `timestamp`, if a reader of this isolation may see it."""
        partition = self._partition
        bound = partition.bound(isolation)
        for segment in partition.segments:
            if segment.max_timestamp < timestamp:
                continue
            position = segment.locate(segment.base_offset + segment.times.floor(timestamp)) or 0
            for _, header, data in segment.walk(position):
                if header.max_timestamp < timestamp or header.last_offset < partition.log_start_offset:
                    continue
                if header.base_offset >= bound:
                    return None
                try:
                    records = decode_batch(data)
                except ProtocolError:
                    continue
                for record in records:
                    if record.timestamp >= timestamp and record.offset >= partition.log_start_offset:
                        return TimestampOffset(record.timestamp, record.offset, header.partition_leader_epoch)
        return None

    def max_timestamp_offset(self, isolation: Isolation) -> TimestampOffset | None:
        """The record with the largest timestamp among those that may be seen; control records count."""
        partition = self._partition
        bound, best = partition.bound(isolation), None
        for segment in partition.segments:
            if best is not None and segment.max_timestamp <= best[0]:
                continue
            for _, header, data in segment.walk(0):
                if header.base_offset >= bound:
                    break
                if header.last_offset < partition.log_start_offset:
                    continue
                if best is None or header.max_timestamp > best[0]:
                    best = (header.max_timestamp, bytes(data))
        if best is None:
            return None
        header = read_header(best[1])
        for record in decode_batch(best[1]):
            if record.timestamp == best[0]:
                return TimestampOffset(record.timestamp, record.offset, header.partition_leader_epoch)
        return TimestampOffset(best[0], header.last_offset, header.partition_leader_epoch)
