"""Whoever has a partition in a later generation begins where it was stored last before that."""

from __future__ import annotations

from collections import defaultdict

from fencepost.protocol.types import TopicPartition
from fencepost.simulation.checkers.groups.places import named
from fencepost.simulation.group_notes import GroupNotes


def forgotten(notes: GroupNotes) -> list[str]:
    """Whoever has a partition in a later generation begins where it was stored last before that."""
    stored: dict[tuple[str, TopicPartition], list[tuple[int, int]]] = defaultdict(list)
    for each in notes.stored:
        for at, position in each.offsets.items():
            stored[each.member.group, at].append((each.member.generation, position))
    faults = []
    for begun in notes.begun:
        known = stored[begun.member.group, begun.at]
        earlier = [generation for generation, _ in known if generation < begun.member.generation]
        last = [position for generation, position in known if earlier and generation == max(earlier)]
        if last and begun.offset < last[-1]:
            faults.append(f"{begun.process} begins at {named(begun.at)}/{begun.offset}, {last[-1]} was stored before")
    return faults
