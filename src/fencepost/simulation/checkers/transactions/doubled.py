"""No record is shown twice."""

from __future__ import annotations

from collections import Counter
from itertools import chain

from fencepost.simulation.checkers.transactions.shown import Shown
from fencepost.simulation.workload import Outcomes


def doubled(outcomes: Outcomes, shown: Shown) -> list[str]:  # noqa: ARG001 - all checkers are called alike
    """Records that are shown twice, in sentences."""
    counts = Counter(chain.from_iterable(shown.values()))
    return [f"{value} is shown {count} times" for value, count in counts.items() if count > 1]
