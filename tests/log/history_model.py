"""What a log was given, as a plain model: its batches, and what they say of producers and aborted transactions."""

from __future__ import annotations

from dataclasses import dataclass, field

from fencepost.protocol.batch import read_header
from fencepost.protocol.control import read_control_record


class Violation(AssertionError):
    """The storage broke its promise."""


@dataclass
class Written:
    """A batch as it stands in the log; `lsn` counts within the life of the node that wrote it."""

    lsn: int
    data: bytes


@dataclass
class Producer:
    """What a producer's batches in the log amount to: the specification of the producer state, from facts §6."""

    epoch: int = -1
    coordinator_epoch: int = -1
    window: list[tuple[int, int, int]] = field(default_factory=list)
    """The last five batches: (last sequence, last offset, offset delta)."""
    open_at: int | None = None

    @property
    def next_sequence(self) -> int:
        return self.window[-1][0] + 1 if self.window else 0


@dataclass
class History:
    """What one partition was given."""

    written: list[Written] = field(default_factory=list)
    starts: list[tuple[int, int]] = field(default_factory=lambda: [(0, 0)])
    """(lsn, offset) of every move of the start."""
    high_watermark: int = 0

    def producers(self) -> dict[int, Producer]:
        return fold(self.written)[0]


def fold(written: list[Written]) -> tuple[dict[int, Producer], list[tuple[int, int, int]]]:
    """Producers, and aborted transactions as (producer id, first offset, marker offset)."""
    producers: dict[int, Producer] = {}
    aborted: list[tuple[int, int, int]] = []
    for item in written:
        header = read_header(item.data)
        if header.producer_id < 0:
            continue
        producer = producers.setdefault(header.producer_id, Producer())
        if producer.epoch != header.producer_epoch:
            producer.epoch, producer.window = header.producer_epoch, []
        if header.is_control:
            record = read_control_record(item.data)
            assert record is not None and record.coordinator_epoch is not None
            producer.coordinator_epoch = record.coordinator_epoch
            if producer.open_at is not None and record.type == 0:
                aborted.append((header.producer_id, producer.open_at, header.base_offset))
            producer.open_at = None
        else:
            entry = (header.last_sequence, header.last_offset, header.last_offset_delta)
            producer.window = [*producer.window, entry][-5:]
            if header.is_transactional and producer.open_at is None:
                producer.open_at = header.base_offset
    return producers, aborted
