"""Every row is where it belongs, behind those of earlier batches; within one Spark may give them in any order."""

from __future__ import annotations

from fencepost.simulation.checkers.micro_batches.batches import AllOutcomes
from fencepost.simulation.micro_batches import PLACES, Seen


def misplaced(outcomes: AllOutcomes, seen: Seen) -> list[str]:
    """Rows that are not in their place, or in front of one of an earlier batch, in sentences."""
    faults = []
    for at, rows in seen.rows.items():
        last: dict[str, int] = {}
        for shown in rows:
            application = shown.row.application
            if application not in outcomes or PLACES[shown.row.target] != at:
                faults.append(f"{tuple(shown.row)} is shown in {at.topic}-{at.partition}")
            if shown.batch_id < last.get(application, -1):
                faults.append(f"{tuple(shown.row)} in {at.topic}-{at.partition} is behind a later batch")
            last[application] = shown.batch_id
    return faults
