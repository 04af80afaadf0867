"""Whoever has a partition in a later generation begins where it was stored last before that."""

from __future__ import annotations

from collections import defaultdict

from fencepost.protocol.types import TopicPartition
from fencepost.simulation.checkers.groups.places import named
from fencepost.simulation.group_notes import GroupNotes

#: What happened to each partition of each group, in the order of time: generation and offset.
_Places = defaultdict[tuple[str, TopicPartition], list[tuple[int, int]]]


def forgotten(notes: GroupNotes, *, requests_are_late: bool = False) -> list[str]:
    """Partitions that somebody began elsewhere than where a generation before had last stored, in sentences.

    Where requests are late one that was sent before may be carried out after the last, in the same generation.  None of
    them is of a position in front of where the partition was begun then.
    """
    stored, began = _Places(list), _Places(list)
    for each in notes.stored:
        for at, position in each.offsets.items():
            stored[each.member.group, at].append((each.member.generation, position))
    for one in notes.begun:
        began[one.member.group, one.at].append((one.member.generation, one.offset))
    faults = []
    for begun in notes.begun:
        key, generation = (begun.member.group, begun.at), begun.member.generation
        last = _last(stored[key], generation)
        if last is None:
            continue
        least = last[1]
        if requests_are_late:
            before = _last(began[key], last[0] + 1)
            least = 0 if before is None else min(offset for known, offset in began[key] if known == before[0])
        if begun.offset < least:
            told = f"{least} was stored before" if not requests_are_late else f"it was begun at {least} before"
            faults.append(f"{begun.process} begins at {named(begun.at)}/{begun.offset}, {told}")
    return faults


def _last(places: list[tuple[int, int]], before: int) -> tuple[int, int] | None:
    """The last place of the newest generation before `before`; None if there is none."""
    earlier = [generation for generation, _ in places if generation < before]
    return next((place for place in reversed(places) if place[0] == max(earlier)), None) if earlier else None
