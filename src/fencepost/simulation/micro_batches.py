"""The rows and batches of micro-batches in the simulation, and what is noted of them for the checkers.

A row is a position of a source; where it goes to, and which slot writes it, follows from the position alone.  What is
written of it says which attempt of which run wrote it.
"""

from __future__ import annotations

import zlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, NamedTuple, TypeAlias

from fencepost.protocol.types import TopicPartition
from fencepost.spark.positions import Positions
from fencepost.spark.progress import Progress

SOURCE: Final = "source"
SOURCE_PARTITIONS: Final = 2
TARGETS: Final[Mapping[str, int]] = {"upper": 2, "lower": 3}
PLACES: Final = [TopicPartition(topic, n) for topic in sorted(TARGETS) for n in range(TARGETS[topic])]

Ends: TypeAlias = tuple[int, ...]
"""Of each source partition, the offset after the last row that was read."""

BEGINNING: Final[Ends] = (0,) * SOURCE_PARTITIONS


class Row(NamedTuple):
    """A row of an application's source."""

    application: str
    partition: int
    offset: int

    @property
    def target(self) -> int:
        """The number of its place in PLACES: the same whenever the row is computed."""
        return zlib.crc32(f"{self.application}/{self.partition}/{self.offset}".encode()) % len(PLACES)


class Shown(NamedTuple):
    """A row as it was written, by an attempt, for a batch."""

    row: Row
    batch_id: int
    attempt: str

    def encode(self) -> bytes:
        application, partition, offset = self.row
        return f"{application}|{partition}|{offset}|{self.batch_id}|{self.attempt}".encode()

    @classmethod
    def decode(cls, value: bytes) -> Shown:
        application, partition, offset, batch_id, attempt = value.decode().split("|")
        return cls(Row(application, int(partition), int(offset)), int(batch_id), attempt)

    @property
    def run(self) -> str:
        """The run of the batch that the attempt belongs to."""
        return self.attempt.rsplit(".", 2)[0]


def rows_between(application: str, start: Ends, end: Ends) -> Iterator[Row]:
    """The rows of a batch, in their order."""
    for partition, (first, following) in enumerate(zip(start, end, strict=True)):
        for offset in range(first, following):
            yield Row(application, partition, offset)


def source_offsets(end: Ends, cluster_id: str = "") -> list[Any]:
    """Source offsets in the form that Spark writes into a checkpoint, and the driver into the progress record."""
    offsets = {TopicPartition(SOURCE, partition): offset for partition, offset in enumerate(end)}
    return [Positions(offsets, cluster_id).encode()]


def end_of(batch: Progress) -> Ends:
    """The ends of the source partitions in a progress record."""
    positions = batch.source_offsets[0][SOURCE]
    return tuple(positions[str(partition)] for partition in range(SOURCE_PARTITIONS))


@dataclass
class Checkpoint:
    """A query's checkpoint: the end of each batch that was begun, and which batch was the last to be done."""

    ends: dict[int, Ends] = field(default_factory=dict)
    done: int = -1

    def start_of(self, batch_id: int) -> Ends:
        return self.ends[batch_id - 1] if batch_id else BEGINNING

    def copy(self) -> Checkpoint:
        """A copy of it as of now, which later batches do not change."""
        return Checkpoint(dict(self.ends), self.done)


@dataclass
class DriverOutcomes:
    """The outcomes that the drivers of one application were told."""

    committed: dict[int, Ends] = field(default_factory=dict)
    """Batches that were written, and their ends."""
    skipped: list[Ends] = field(default_factory=list)
    """Ends of batches that were skipped, as committed before."""
    failed: dict[str, int] = field(default_factory=dict)
    """Runs of which nothing is committed, as WriteFailed says, and their batch."""
    reported: dict[str, int] = field(default_factory=dict)
    """Attempts whose report their driver got, and their batch."""
    orders: dict[str, dict[Row, int]] = field(default_factory=dict)
    """Of each attempt that sent rows ahead, or handed them on, their order: those it sent, then all others alike."""
    surprises: list[str] = field(default_factory=list)
    """What no driver should be told."""


class Seen(NamedTuple):
    """The rows and progress records in the log when all is over, as read_committed shows them."""

    rows: Mapping[TopicPartition, Sequence[Shown]]
    records: Sequence[tuple[str, Progress]]
    """Progress records of all applications, in their order."""
    positions: Mapping[str, Ends | None]
    """The ends at which each application's group is; None: it has no offsets."""
