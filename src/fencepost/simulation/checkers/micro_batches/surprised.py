"""No driver is fenced, refused or let in for nothing."""

from __future__ import annotations

from fencepost.simulation.checkers.micro_batches.batches import EveryTold
from fencepost.simulation.micro_batches import Seen


def surprised(told: EveryTold, seen: Seen) -> list[str]:  # noqa: ARG001 - all checkers are called alike
    """No driver is fenced, refused or let in for nothing."""
    return [surprise for known in told.values() for surprise in known.surprises]
