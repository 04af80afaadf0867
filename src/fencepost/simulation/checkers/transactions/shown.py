"""The records that a reader was shown, and that were sent, for checkers."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from fencepost.protocol.types import TopicPartition
from fencepost.simulation.workload import Outcomes, Sent

Shown = Mapping[TopicPartition, Sequence[str]]


def places_of(shown: Shown) -> dict[tuple[str, int, str], None]:
    """The places of all records shown: topic, partition, value.  A dict for its order."""
    return {(topic, index, value): None for (topic, index), values in shown.items() for value in values}


def number_of(tag: str) -> int:
    """The number of a transaction among those of its producer."""
    return int(tag.rsplit("-", 1)[1])


def in_order(outcomes: Outcomes) -> list[Sent]:
    """All records that were sent; those of each producer in the order in which it sent them."""
    every = {**outcomes.committed, **outcomes.aborted, **outcomes.unknown}
    return [sent for tag in sorted(every, key=number_of) for sent in every[tag]]
