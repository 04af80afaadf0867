"""Exactly once: of each committed record of the input there is one committed record of output, and no other."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable

from fencepost.protocol.types import TopicPartition
from fencepost.simulation.checkers.groups.superseded import MayBeGone, nothing
from fencepost.simulation.group_notes import Truth


def transformed(
    truth: Truth,
    inputs: Iterable[str],
    output: str,
    may_be_gone: MayBeGone = nothing,
) -> list[str]:
    """Committed records of the input that have not just one committed record of output, and other outputs."""
    made = Counter(record.value for at in truth.records if at.topic == output for record in truth.committed(at))
    expected = {
        f"{at.topic}/{at.partition}/{record.offset}/{record.value}"
        for at in truth.records
        if at.topic in inputs
        for record in truth.committed(at)
    }
    faults = [f"{value} has {made[value]} outputs" for value in sorted(expected) if made[value] != 1]
    for value, count in sorted(made.items()):
        topic, partition, offset, written = value.split("/", 3)
        at = TopicPartition(topic, int(partition))
        is_gone = int(offset) < truth.starts[at] or may_be_gone(at, int(offset), written)
        if value not in expected and (count > 1 or not is_gone):
            faults.append(f"{value}, which is no input, has {count} outputs")
    return faults
