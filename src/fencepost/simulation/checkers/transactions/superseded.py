"""The records that compaction may have taken: those of which a newer one of the same key is committed."""

from __future__ import annotations

from fencepost.simulation.checkers.transactions.shown import Shown, in_order
from fencepost.simulation.record_shapes import key_of
from fencepost.simulation.workload import Outcomes, Sent


def superseded(outcomes: Outcomes, *parts: Shown) -> set[Sent]:
    """The records behind which another one of their key was shown to somebody; none where topics are not compacted.

    One that was deleted, or that retention took, counts as shown.
    """
    if not outcomes.keys:
        return set()
    aborted = {sent for records in outcomes.aborted.values() for sent in records}
    there = {Sent(at.topic, at.partition, value) for shown in parts for at, values in shown.items() for value in values}
    there |= {Sent(*removed) for removed in outcomes.removed}
    newer: set[tuple[str, int, str | None]] = set()
    found: set[Sent] = set()
    for sent in reversed(in_order(outcomes)):
        place = sent.topic, sent.partition, key_of(sent.value, outcomes.keys)
        if place in newer:
            found.add(sent)
        elif sent in there and sent not in aborted:
            newer.add(place)
    return found
