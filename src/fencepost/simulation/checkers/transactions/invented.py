"""Nothing is shown that nobody sent."""

from __future__ import annotations

from fencepost.simulation.checkers.transactions.shown import Shown, places_of
from fencepost.simulation.workload import Outcomes


def invented(outcomes: Outcomes, shown: Shown) -> list[str]:
    """Records that are shown and that nobody sent, in sentences."""
    known: set[tuple[str, int, str]] = set()
    for kind in (outcomes.committed, outcomes.aborted, outcomes.unknown):
        known.update(*kind.values())
    return [f"{place[2]} was never sent there" for place in places_of(shown) if place not in known]
