"""What a member stored stays, until somebody stores anything else."""

from __future__ import annotations

from fencepost.simulation.checkers.groups.places import named
from fencepost.simulation.group_notes import GroupNotes


def replaced(notes: GroupNotes) -> list[str]:
    """What a member stored stays, until somebody stores anything else."""
    return [
        f"{each.process} stored {named(at)}/{position} and found {each.found.get(at)}"
        for each in notes.found
        for at, position in each.stored.items()
        if each.found.get(at) != position
    ]
