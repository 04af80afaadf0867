"""No record of an aborted transaction is shown."""

from __future__ import annotations

from fencepost.simulation.checkers.transactions.shown import Shown, places_of
from fencepost.simulation.workload import Outcomes


def aborted_shown(outcomes: Outcomes, shown: Shown) -> list[str]:
    """Records of aborted transactions that are shown, in sentences."""
    places = places_of(shown)
    return [
        f"{sent.value} of the aborted transaction {tag} is shown"
        for tag, records in outcomes.aborted.items()
        for sent in records
        if sent in places
    ]
