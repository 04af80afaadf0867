"""No driver is fenced, refused or let in for nothing."""

from __future__ import annotations

from fencepost.simulation.checkers.micro_batches.batches import AllOutcomes
from fencepost.simulation.micro_batches import Seen


def surprised(outcomes: AllOutcomes, seen: Seen) -> list[str]:  # noqa: ARG001 - all checkers are called alike
    """Drivers that were fenced, refused or let in for nothing, in sentences."""
    return [surprise for known in outcomes.values() for surprise in known.surprises]
