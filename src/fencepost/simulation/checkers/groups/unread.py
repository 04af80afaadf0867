"""Each reader was shown every record that is still there; `readers`: whether it reads committed ones only."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping

from fencepost.protocol.types import TopicPartition
from fencepost.simulation.checkers.groups.places import named
from fencepost.simulation.group_notes import GroupNotes, Truth


def unread(notes: GroupNotes, truth: Truth, readers: Mapping[str, bool]) -> list[str]:
    """Records still there that a reader was not shown.  `readers`: whether it reads committed ones only, by name."""
    seen: dict[str, set[tuple[TopicPartition, int]]] = defaultdict(set)
    for each in notes.read:
        seen[each.reader].add((each.at, each.offset))
    return [
        f"{reader} was never shown {record.value} at {named(at)}/{record.offset}"
        for reader, committed_only in readers.items()
        for at, records in truth.records.items()
        for record in records
        if (record.committed or not committed_only) and (at, record.offset) not in seen[reader]
    ]
