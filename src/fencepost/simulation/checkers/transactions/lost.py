"""Every record of a committed transaction is shown."""

from __future__ import annotations

from fencepost.simulation.checkers.transactions.shown import Shown, counted
from fencepost.simulation.workload import Outcomes


def lost(outcomes: Outcomes, shown: Shown) -> list[str]:
    """Every record of a committed transaction is shown."""
    places = counted(shown)
    return [
        f"{sent.value} of the committed transaction {tag} is lost"
        for tag, records in outcomes.committed.items()
        for sent in records
        if not places[sent] and sent not in outcomes.removed
    ]
