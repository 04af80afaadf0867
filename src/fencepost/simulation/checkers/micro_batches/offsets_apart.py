"""The group of an application is where its last recorded batch ended."""

from __future__ import annotations

from fencepost.simulation.checkers.micro_batches.batches import AllOutcomes
from fencepost.simulation.micro_batches import Seen, end_of


def offsets_apart(outcomes: AllOutcomes, seen: Seen) -> list[str]:
    """Applications whose group is not where their last recorded batch ended, in sentences."""
    faults = []
    for application in outcomes:
        ends = [end_of(record) for name, record in seen.records if name == application]
        expected = ends[-1] if ends else None
        if seen.positions[application] != expected:
            faults.append(f"the group {application} is at {seen.positions[application]}, the progress at {expected}")
    return faults
