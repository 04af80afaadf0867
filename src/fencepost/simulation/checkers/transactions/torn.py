"""A transaction of unknown outcome is shown whole or not at all."""

from __future__ import annotations

from fencepost.simulation.checkers.transactions.shown import Shown, places_of
from fencepost.simulation.checkers.transactions.superseded import superseded
from fencepost.simulation.workload import Outcomes


def torn(outcomes: Outcomes, shown: Shown) -> list[str]:
    """Transactions of unknown outcome that are shown in part, in sentences."""
    places, older = places_of(shown), superseded(outcomes, shown)
    faults = []
    for tag, records in outcomes.unknown.items():
        kept = [sent for sent in records if sent not in outcomes.removed and (sent in places or sent not in older)]
        seen = sum(sent in places for sent in kept)
        if seen not in (0, len(kept)):
            faults.append(f"of transaction {tag} {seen} of {len(kept)} records are shown")
    return faults
