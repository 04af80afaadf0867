"""What a member stored stays, until somebody stores anything else."""

from __future__ import annotations

from fencepost.simulation.checkers.groups.places import named
from fencepost.simulation.group_notes import GroupNotes


def replaced(notes: GroupNotes) -> list[str]:
    """Offsets that a member stored and did not find again, though nobody else had stored any, in sentences."""
    return [
        f"{each.process} stored {named(at)}/{position} and found {each.found.get(at)}"
        for each in notes.found
        for at, position in each.stored.items()
        if each.found.get(at) != position
    ]
