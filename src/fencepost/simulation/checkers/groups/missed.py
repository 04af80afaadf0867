"""At least once: each group processed every committed record that is still there."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping

from fencepost.protocol.types import TopicPartition
from fencepost.simulation.checkers.groups.places import named
from fencepost.simulation.group_notes import GroupNotes, Truth


def missed(notes: GroupNotes, truth: Truth, groups: Mapping[str, Iterable[str]]) -> list[str]:
    """Committed records that a group did not process, in sentences.  `groups`: the topics of each by its name."""
    seen: dict[str, set[tuple[TopicPartition, str]]] = defaultdict(set)
    for each in notes.processed:
        seen[each.member.group].add((each.at, each.value))
    return [
        f"{record.value} at {named(at)}/{record.offset} was never processed by the group {group}"
        for group, topics in groups.items()
        for at in truth.records
        if at.topic in topics
        for record in truth.committed(at)
        if (at, record.value) not in seen[group]
    ]
