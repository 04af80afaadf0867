"""Each member is handed the records of a partition in order; the first after it went back on purpose may be any."""

from __future__ import annotations

from collections.abc import Iterable

from fencepost.protocol.types import TopicPartition
from fencepost.simulation.checkers.groups.places import named
from fencepost.simulation.group_notes import Membership, Processed


def out_of_order(processed: Iterable[Processed]) -> list[str]:
    """Records handed to a member before one with a lower offset, unless it went back on purpose, in sentences."""
    last: dict[tuple[str, Membership, TopicPartition], int] = {}
    faults = []
    for each in processed:
        key = (each.process, each.member, each.at)  # one that lost its place begins anew, as another member
        if each.offset <= last.get(key, -1) and not each.moved:
            faults.append(f"{each.process} is handed {named(each.at)}/{each.offset} after {last[key]}")
        last[key] = each.offset
    return faults
