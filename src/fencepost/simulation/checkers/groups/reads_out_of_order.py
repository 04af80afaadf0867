"""Each reader goes forward in every partition."""

from __future__ import annotations

from fencepost.protocol.types import TopicPartition
from fencepost.simulation.checkers.groups.places import named
from fencepost.simulation.group_notes import GroupNotes


def reads_out_of_order(notes: GroupNotes) -> list[str]:
    """Reads of readers that go back in a partition, in sentences."""
    last: dict[tuple[str, TopicPartition], int] = {}
    faults = []
    for each in notes.read:
        if each.offset <= last.get((each.reader, each.at), -1):
            faults.append(f"{each.reader} reads {named(each.at)}/{each.offset} after {last[each.reader, each.at]}")
        last[each.reader, each.at] = each.offset
    return faults
