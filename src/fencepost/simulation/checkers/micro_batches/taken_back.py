"""Of a run whose failure was reported nothing is shown."""

from __future__ import annotations

from fencepost.simulation.checkers.micro_batches.batches import AllOutcomes, shown_of
from fencepost.simulation.micro_batches import Seen


def taken_back(outcomes: AllOutcomes, seen: Seen) -> list[str]:
    """Runs whose failure was reported and of which something is shown, in sentences."""
    return [
        f"{tuple(shown.row)} of run {shown.run} of {application} is shown, which was reported to have failed"
        for application, known in outcomes.items()
        for shown in shown_of(seen, application)
        if shown.run in known.failed
    ]
