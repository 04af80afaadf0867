"""Nobody owns what somebody else owns in the same generation of the group."""

from __future__ import annotations

from fencepost.protocol.types import TopicPartition
from fencepost.simulation.checkers.groups.places import named
from fencepost.simulation.group_notes import GroupNotes


def shared(notes: GroupNotes) -> list[str]:
    """Partitions that two members own in the same generation of a group, in sentences."""
    owners: dict[tuple[str, int, TopicPartition], str] = {}
    faults = []
    for owned in notes.owned:
        group, generation, who, _ = owned.member
        for at in owned.partitions:
            owner = owners.setdefault((group, generation, at), who)
            if owner != who:
                faults.append(f"{owner} and {who} own {named(at)} in generation {generation} of {group}")
    return faults
