"""Notes of what members of groups and readers did and were told, and what is in the log: checkers compare the two."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from fencepost.log.partition import Partition
from fencepost.log.storage import Storage
from fencepost.protocol.batch import BatchHeader
from fencepost.protocol.control import COMMIT, read_control_record
from fencepost.protocol.records import decode_batch
from fencepost.protocol.types import TopicPartition
from fencepost.simulation.known_before import is_compacted


class Membership(NamedTuple):
    """A member of a group in a generation.  `who`: the instance id of a static member, else the member id."""

    group: str
    generation: int
    who: str
    member_id: str


class Owned(NamedTuple):
    """A member reads these partitions from now on.  Times are in seconds."""

    time: float
    member: Membership
    partitions: tuple[TopicPartition, ...]


class Processed(NamedTuple):
    """A member was handed a record.

    `owned`: whether it read the partition, and had not paused it; `moved`: whether this is the first record of the
    partition since the member went back in it on purpose.
    """

    time: float
    process: str
    member: Membership
    at: TopicPartition
    offset: int
    value: str
    owned: bool = True
    moved: bool = False


class Stored(NamedTuple):
    """A commit of offsets that was confirmed.  `begun`: when it was asked for, in seconds."""

    begun: float
    process: str
    member: Membership
    offsets: Mapping[TopicPartition, int]


class Begun(NamedTuple):
    """A member began to read a partition, at this offset or one before it that shows nothing."""

    process: str
    member: Membership
    at: TopicPartition
    offset: int


class Found(NamedTuple):
    """The offsets that a member stored, and those that it found where nobody else had stored any since."""

    process: str
    stored: Mapping[TopicPartition, int]
    found: Mapping[TopicPartition, int | None]


class Read(NamedTuple):
    """A reader without a group was shown a record."""

    reader: str
    at: TopicPartition
    offset: int
    value: str


@dataclass
class GroupNotes:
    """The notes of all members and readers of a run."""

    owned: list[Owned] = field(default_factory=list)
    processed: list[Processed] = field(default_factory=list)
    stored: list[Stored] = field(default_factory=list)
    begun: list[Begun] = field(default_factory=list)
    found: list[Found] = field(default_factory=list)
    read: list[Read] = field(default_factory=list)
    moved: list[tuple[str, TopicPartition]] = field(default_factory=list)
    """(process, partition) that it went back in on purpose: what it stores next may be before what it stored."""
    fenced: dict[tuple[str, int], float] = field(default_factory=dict)
    """(group, place in it) whose member was told in the calm that its id is another's, and when, the first time."""
    late: list[str] = field(default_factory=list)
    """Calls that did not return in time, and members that did not arrive."""
    surprises: list[str] = field(default_factory=list)
    """What nobody should be told."""


class Logged(NamedTuple):
    """A record of the log."""

    offset: int
    value: str
    committed: bool
    """Whether a reader of committed records is shown it."""


class Truth(NamedTuple):
    """The content of the log when all is over, read without any client, and where the log begins."""

    records: Mapping[TopicPartition, Sequence[Logged]]
    starts: Mapping[TopicPartition, int]
    ends: Mapping[TopicPartition, int]

    def committed(self, at: TopicPartition) -> list[Logged]:
        """The records that a reader of committed records is shown."""
        return [record for record in self.records.get(at, ()) if record.committed]


def read_truth(storage: Storage, topics: Sequence[str]) -> Truth:
    """The records of these topics, batch by batch.  Those of a transaction that has not ended are not committed."""
    records: dict[TopicPartition, Sequence[Logged]] = {}
    starts: dict[TopicPartition, int] = {}
    ends: dict[TopicPartition, int] = {}
    for topic in topics:
        number = 0
        while (partition := storage.partition(topic, number)) is not None:
            at, number = TopicPartition(topic, number), number + 1
            starts[at], ends[at] = partition.log_start_offset, partition.high_watermark
            headers = [header for header, _ in partition.scan(partition.log_start_offset)]
            records[at] = (_by_the_index if is_compacted(partition, headers) else _by_markers)(partition)
    return Truth(records, starts, ends)


def _by_markers(partition: Partition) -> list[Logged]:
    found: dict[int, Logged] = {}
    pending: dict[int, list[int]] = {}
    for header, batch in partition.scan(partition.log_start_offset):
        if header.is_control:
            marker = read_control_record(batch, 0, header)
            for offset in pending.pop(header.producer_id, ()):
                found[offset] = found[offset]._replace(committed=marker is not None and marker.type == COMMIT)
            continue
        for offset, value in _values(partition, header, batch):
            found[offset] = Logged(offset, value, not header.is_transactional)
            if header.is_transactional:
                pending.setdefault(header.producer_id, []).append(offset)
    return [found[offset] for offset in sorted(found)]


def _by_the_index(partition: Partition) -> list[Logged]:
    """The records of a compacted partition: compaction takes markers of committed transactions whose records stay."""
    start, stable = partition.log_start_offset, partition.last_stable_offset
    aborted = partition.segments.aborted_transactions(start, partition.high_watermark)

    def committed(producer_id: int, offset: int) -> bool:
        return offset < stable and not any(
            each.producer_id == producer_id and each.first_offset <= offset <= each.last_offset for each in aborted
        )

    return [
        Logged(offset, value, not header.is_transactional or committed(header.producer_id, offset))
        for header, batch in partition.scan(start)
        if not header.is_control
        for offset, value in _values(partition, header, batch)
    ]


def _values(partition: Partition, header: BatchHeader, batch: memoryview) -> list[tuple[int, str]]:
    return [
        (record.offset, (record.value or b"").decode())
        for record in decode_batch(batch, 0, header)
        if record.offset >= partition.log_start_offset
    ]
