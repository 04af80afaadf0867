"""No record of these topics is there twice, in one partition or in two: each was sent once."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable

from fencepost.simulation.group_notes import Truth


def doubled(truth: Truth, topics: Iterable[str]) -> list[str]:
    """Records of these topics that are in the log twice, in one partition or in two, in sentences."""
    of = set(topics)
    counts = Counter(record.value for at in truth.records if at.topic in of for record in truth.committed(at))
    return [f"{value} is there {count} times" for value, count in counts.items() if count > 1]
