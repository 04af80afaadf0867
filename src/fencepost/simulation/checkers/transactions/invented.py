"""Nothing is shown that nobody sent."""

from __future__ import annotations

from collections import Counter

from fencepost.simulation.checkers.transactions.shown import Shown, counted
from fencepost.simulation.workload import Outcomes, Sent


def invented(outcomes: Outcomes, shown: Shown) -> list[str]:
    """Nothing is shown that nobody sent."""
    known: Counter[Sent | tuple[str, int, str]] = Counter()
    for kind in (outcomes.committed, outcomes.aborted, outcomes.unknown):
        for records in kind.values():
            known.update(records)
    return [f"{place[2]} was never sent there" for place in counted(shown) if not known[place]]
