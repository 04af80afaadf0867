"""Who of a group gets which partitions: a pure function, run by the group's leader."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

from fencepost.protocol.types import TopicPartition

RANGE: Final = "range"


def assign_ranges(
    subscriptions: Mapping[str, Sequence[str]], partition_counts: Mapping[str, int]
) -> dict[str, list[TopicPartition]]:
    """Of each topic every subscriber gets a run of partitions, the first ones one more; as Kafka's range assignor.

    `subscriptions`: member id -> topics.  Members are taken in the order of their ids.
    """
    assigned: dict[str, list[TopicPartition]] = {member: [] for member in sorted(subscriptions)}
    for topic, count in sorted(partition_counts.items()):
        members = [member for member in assigned if topic in subscriptions[member]]
        if not members:
            continue
        share, surplus = divmod(count, len(members))
        start = 0
        for place, member in enumerate(members):
            end = start + share + (place < surplus)
            assigned[member] += [TopicPartition(topic, number) for number in range(start, end)]
            start = end
    return assigned
