"""A batch that a driver was told to be committed is recorded, with the end that it had, or lies before one."""

from __future__ import annotations

from fencepost.simulation.checkers.micro_batches.batches import AllOutcomes, batches
from fencepost.simulation.micro_batches import BEGINNING, Seen


def forgotten(outcomes: AllOutcomes, seen: Seen) -> list[str]:
    """Batches that a driver was told to be committed and that are neither recorded with their end nor before one."""
    faults = []
    for application, known in outcomes.items():
        recorded = batches(seen, application)
        last = max((end for _, end in recorded.values()), default=BEGINNING)
        faults += [
            f"a batch of {application} that ends at {end} was skipped, and the recorded end is {last}"
            for end in known.skipped
            if any(here > there for here, there in zip(end, last, strict=True))
        ]
        for batch_id, end in known.committed.items():
            found = recorded.get(batch_id, (None, None))[1]
            if found != end:
                faults.append(f"batch {batch_id} of {application} was committed with end {end}, recorded is {found}")
    return faults
