"""No record of an aborted transaction is shown."""

from __future__ import annotations

from fencepost.simulation.checkers.transactions.shown import Shown, counted
from fencepost.simulation.workload import Outcomes


def aborted_shown(outcomes: Outcomes, shown: Shown) -> list[str]:
    """No record of an aborted transaction is shown."""
    places = counted(shown)
    return [
        f"{sent.value} of the aborted transaction {tag} is shown"
        for tag, records in outcomes.aborted.items()
        for sent in records
        if places[sent]
    ]
