"""When all is over a group is behind the last committed record, and not further: offsets and output are one."""

from __future__ import annotations

from collections.abc import Mapping

from fencepost.protocol.types import TopicPartition
from fencepost.simulation.checkers.groups.places import named
from fencepost.simulation.group_notes import Truth


def misplaced(truth: Truth, positions: Mapping[TopicPartition, int | None], group: str) -> list[str]:
    """Partitions in which a group is not just behind the last committed record when all is over, in sentences."""
    faults = []
    for at, position in positions.items():
        records = truth.committed(at)
        if records and (position is None or not records[-1].offset < position <= truth.ends[at]):
            faults.append(f"{group} is at {named(at)}/{position}, the last record is {records[-1].offset}")
    return faults
