"""Nothing is removed but what somebody asked to have deleted, and what retention may take (facts §6.12).

Looked at whenever the start of a partition moves, apart from how the log itself decides it: what is removed is not
looked for by the checkers of what readers are shown, so that too much of it would hide a loss.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from contextlib import nullcontext
from typing import Final

from fencepost.log.disk import Disk
from fencepost.log.partition import Partition
from fencepost.protocol.records import decode_batch
from fencepost.protocol.types import TopicPartition
from fencepost.runtime import Clock
from fencepost.simulation.disk_faults import FaultyDisk

#: What coordinators write is theirs to remove.
_INTERNAL: Final = "__"


class Removals:
    """All records that were ever removed in a world."""

    def __init__(self, clock: Clock) -> None:
        """`clock`: that of the node, by which it knows what is too old."""
        self.records: set[tuple[str, int, str]] = set()
        """Records of users' topics that are deleted, or that retention took: topic, partition, value."""
        self.knows_who_asks = False
        """Whether everybody who deletes records says so here: else nothing can be said of what is removed."""
        self._clock = clock
        self._asked: dict[TopicPartition, float] = {}
        """How far somebody has asked to have each partition deleted, be it done or not."""

    def ask(self, at: TopicPartition, before: float = math.inf) -> None:
        """Note that somebody is about to have everything before this offset deleted, and may have."""
        self._asked[at] = max(before, self._asked.get(at, 0))

    def add(self, partition: Partition, disk: Disk) -> str | None:
        """Note that a partition's start moved, nothing before it being gone; what is wrong with that, or None."""
        if partition.topic.startswith(_INTERNAL):
            return None
        with disk.spared() if isinstance(disk, FaultyDisk) else nullcontext():
            self.records.update(_before_start(partition))
        at, start = TopicPartition(partition.topic, partition.index), partition.log_start_offset
        if not self.knows_who_asks or start <= self._asked.get(at, 0):
            return None
        if not self._may_be_retained_away(partition):
            return f"{at.topic}-{at.partition} begins at {start}, which nobody asked for and retention does not allow"
        return None

    def _may_be_retained_away(self, partition: Partition) -> bool:
        """Whether the segment before the start is too old, or one too many, and nothing of it undecided."""
        settings, start, segments = partition.settings, partition.log_start_offset, partition.segments
        ends = [*(segment.base_offset for segment in segments[1:]), partition.log_end_offset]
        gone = [each for each, end in zip(segments, ends, strict=True) if end <= start and each.size]
        if "delete" not in settings.cleanup_policy or start > partition.last_stable_offset or not gone:
            return False
        kept = sum(segment.size for segment in segments) - sum(segment.size for segment in gone)
        newest = gone[-1].max_timestamp if gone[-1].max_timestamp >= 0 else gone[-1].created
        is_old = 0 <= settings.retention_ms < self._clock.now() - newest
        return is_old or 0 <= settings.retention_bytes <= kept


def _before_start(partition: Partition) -> Iterator[tuple[str, int, str]]:
    """The records that are in the log before its start, as topic, partition and value."""
    for header, batch in partition.scan(partition.segments[0].base_offset):
        if header.base_offset >= partition.log_start_offset:
            break
        for record in () if header.is_control else decode_batch(batch, 0, header):
            if record.offset < partition.log_start_offset:
                yield partition.topic, partition.index, (record.value or b"").decode()
