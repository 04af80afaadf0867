"""No commit is taken of a generation, or of a static member, that another one had followed before."""

from __future__ import annotations

from collections import deque

from fencepost.simulation.group_notes import GroupNotes


def outdated(notes: GroupNotes) -> list[str]:
    """Commits that were taken of a generation, or a static member, that another one had followed, in sentences."""
    newest: dict[str, int] = {}
    instances: dict[tuple[str, str], str] = {}
    faults = []
    owned = deque(sorted(notes.owned, key=lambda each: each.time))
    for stored in sorted(notes.stored, key=lambda each: each.begun):
        while owned and owned[0].time < stored.begun:
            member = owned.popleft().member
            newest[member.group] = max(member.generation, newest.get(member.group, -1))
            instances[member.group, member.who] = member.member_id
        group, generation, who, member_id = stored.member
        if generation < newest.get(group, -1):
            faults.append(f"{who} stored positions of {group} in generation {generation}, after {newest[group]} began")
        if instances.get((group, who), member_id) != member_id:
            faults.append(f"{member_id} stored positions of {group} after it was replaced as {who}")
    return faults
