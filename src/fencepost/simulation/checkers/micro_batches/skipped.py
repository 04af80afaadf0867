"""Batches are recorded one after the other, none goes back, and every row up to the last end is shown."""

from __future__ import annotations

from fencepost.simulation.checkers.micro_batches.batches import AllOutcomes, shown_of
from fencepost.simulation.micro_batches import BEGINNING, Seen, end_of, rows_between


def skipped(outcomes: AllOutcomes, seen: Seen) -> list[str]:
    """Recorded batches that skip one or go back, and rows before the last end that are not shown, in sentences."""
    faults = []
    for application in outcomes:
        records = [record for name, record in seen.records if name == application]
        numbers = [record.batch_id for record in records]
        if numbers != list(range(len(numbers))):
            faults.append(f"the batches {numbers} of {application} are recorded")
        end = end_of(records[-1]) if records else BEGINNING
        there = {shown.row for shown in shown_of(seen, application)}
        missing = [row for row in rows_between(application, BEGINNING, end) if row not in there]
        faults += [f"{tuple(row)} is before the recorded end {end}, and not shown" for row in missing]
    return faults
