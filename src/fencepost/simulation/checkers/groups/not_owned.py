"""Nobody is handed a record of a partition that it does not read, or has paused."""

from __future__ import annotations

from fencepost.simulation.checkers.groups.places import named
from fencepost.simulation.group_notes import GroupNotes


def not_owned(notes: GroupNotes) -> list[str]:
    """Records handed out of partitions that their member did not read, or had paused, in sentences."""
    return [
        f"{each.process} is handed {named(each.at)}/{each.offset} without reading it"
        for each in notes.processed
        if not each.owned
    ]
