"""Of a batch all rows and its progress record are shown, or nothing of it."""

from __future__ import annotations

from fencepost.simulation.checkers.micro_batches.batches import AllOutcomes, batches, shown_of
from fencepost.simulation.micro_batches import Row, Seen, rows_between


def torn(outcomes: AllOutcomes, seen: Seen) -> list[str]:
    """Batches of which some rows or the progress record are shown, and not all, in sentences."""
    faults = []
    for application in outcomes:
        recorded = batches(seen, application)
        by_batch: dict[int, set[Row]] = {}
        for shown in shown_of(seen, application):
            by_batch.setdefault(shown.batch_id, set()).add(shown.row)
        for batch_id in sorted({*by_batch, *recorded}):
            there = by_batch.get(batch_id, set())
            if batch_id not in recorded:
                faults.append(f"{len(there)} rows of batch {batch_id} of {application} are shown without its record")
                continue
            whole = set(rows_between(application, *recorded[batch_id]))
            if there != whole:
                faults.append(
                    f"of batch {batch_id} of {application} {len(there & whole)} of {len(whole)} rows are shown, and "
                    f"{len(there - whole)} that are none of it"
                )
    return faults
