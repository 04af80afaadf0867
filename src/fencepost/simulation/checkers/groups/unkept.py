"""What was acknowledged is in the log, be it shown to anybody or not."""

from __future__ import annotations

from collections.abc import Iterable

from fencepost.protocol.types import TopicPartition
from fencepost.simulation.group_notes import Truth


def unkept(truth: Truth, acknowledged: Iterable[tuple[str, int, str]]) -> list[str]:
    """Acknowledged records that are not in the log, be they shown to anybody or not, in sentences.

    `acknowledged`: topic, partition and value, of topics that are there.
    """
    there = {(at, record.value) for at in truth.records for record in truth.committed(at)}
    return [
        f"{value}, which was acknowledged, is lost"
        for topic, number, value in acknowledged
        if (TopicPartition(topic, number), value) not in there
    ]
