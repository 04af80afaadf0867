"""No row is shown twice, and no batch is recorded twice."""

from __future__ import annotations

from collections import Counter

from fencepost.simulation.checkers.micro_batches.batches import AllOutcomes, shown_of
from fencepost.simulation.micro_batches import Seen


def repeated(outcomes: AllOutcomes, seen: Seen) -> list[str]:
    """Rows that are shown twice, and batches that are recorded twice, in sentences."""
    faults = []
    for application in outcomes:
        rows = Counter(shown.row for shown in shown_of(seen, application))
        faults += [f"{tuple(row)} is shown {count} times" for row, count in rows.items() if count > 1]
        records = Counter(record.batch_id for name, record in seen.records if name == application)
        faults += [f"batch {n} of {application} is recorded {count} times" for n, count in records.items() if count > 1]
    return faults
