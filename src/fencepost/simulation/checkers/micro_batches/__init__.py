"""Checkers of the promises about micro-batches: each committed once, whole, and in its place."""

from __future__ import annotations

from typing import Final

from fencepost.simulation.checkers.micro_batches.batches import AllOutcomes
from fencepost.simulation.checkers.micro_batches.forgotten import forgotten
from fencepost.simulation.checkers.micro_batches.misplaced import misplaced
from fencepost.simulation.checkers.micro_batches.offsets_apart import offsets_apart
from fencepost.simulation.checkers.micro_batches.reordered import reordered
from fencepost.simulation.checkers.micro_batches.repeated import repeated
from fencepost.simulation.checkers.micro_batches.skipped import skipped
from fencepost.simulation.checkers.micro_batches.surprised import surprised
from fencepost.simulation.checkers.micro_batches.taken_back import taken_back
from fencepost.simulation.checkers.micro_batches.torn import torn
from fencepost.simulation.checkers.micro_batches.zombies import zombies
from fencepost.simulation.micro_batches import Seen

CHECKERS: Final = (
    *(repeated, skipped, torn, forgotten, taken_back),
    *(zombies, misplaced, reordered, offsets_apart, surprised),
)


def check(outcomes: AllOutcomes, seen: Seen) -> list[str]:
    """The broken promises of all these checkers, in sentences."""
    return [fault for checker in CHECKERS for fault in checker(outcomes, seen)]
