"""Every record of a committed transaction is shown, but for those that compaction may have taken."""

from __future__ import annotations

from fencepost.simulation.checkers.transactions.shown import Shown, places_of
from fencepost.simulation.checkers.transactions.superseded import superseded
from fencepost.simulation.workload import Outcomes


def lost(outcomes: Outcomes, shown: Shown) -> list[str]:
    """Records of committed transactions that are not shown and were not compacted away, in sentences."""
    places, older = places_of(shown), superseded(outcomes, shown)
    return [
        f"{sent.value} of the committed transaction {tag} is lost"
        for tag, records in outcomes.committed.items()
        for sent in records
        if sent not in places and sent not in outcomes.removed and sent not in older
    ]
