"""What is stored of a partition never goes back while a generation lasts, unless its member went back itself."""

from __future__ import annotations

from fencepost.protocol.types import TopicPartition
from fencepost.simulation.checkers.groups.places import named
from fencepost.simulation.group_notes import GroupNotes


def went_back(notes: GroupNotes) -> list[str]:
    """Commits that went back in a partition within a generation, unless the member went back, in sentences."""
    moved = set(notes.moved)
    last: dict[tuple[str, int, TopicPartition], int] = {}
    faults = []
    for stored in notes.stored:
        for at, position in stored.offsets.items():
            key = (stored.member.group, stored.member.generation, at)
            if position < last.get(key, -1) and (stored.process, at) not in moved:
                faults.append(f"{stored.process} stored {named(at)}/{position} of {key[0]} after {last[key]}")
            last[key] = position
    return faults
