"""No position is stored that skips a committed record which nobody of the group has been handed."""

from __future__ import annotations

import math

from fencepost.protocol.types import TopicPartition
from fencepost.simulation.checkers.groups.places import named
from fencepost.simulation.group_notes import GroupNotes, Truth


def ahead(notes: GroupNotes, truth: Truth) -> list[str]:
    """Committed offsets that skip a committed record which nobody of the group has been handed, in sentences."""
    seen: dict[tuple[str, TopicPartition, int], float] = {}
    for each in notes.processed:
        seen.setdefault((each.member.group, each.at, each.offset), each.time)
    return [
        f"{stored.process} stored {named(at)}/{position} of {stored.member.group}, nobody had {record.offset}"
        for stored in notes.stored
        for at, position in stored.offsets.items()
        for record in truth.committed(at)
        if record.offset < position and seen.get((stored.member.group, at, record.offset), math.inf) > stored.begun
    ]
