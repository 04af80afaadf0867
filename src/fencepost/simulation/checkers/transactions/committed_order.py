"""A reader in commit order is shown what the log holds, each record once, in the order in which it was committed."""

from __future__ import annotations

from itertools import zip_longest

from fencepost.simulation.checkers.transactions.shown import Shown


def out_of_committed_order(shown: Shown, committed: Shown) -> list[str]:
    """The first record of each partition that is not shown as it was committed.  `committed`: all, in that order."""
    faults = []
    for at, values in shown.items():
        pairs = zip_longest(values, committed.get(at, ()))
        differs = next(((n, got, meant) for n, (got, meant) in enumerate(pairs) if got != meant), None)
        if differs is not None:
            number, got, meant = differs
            faults.append(f"number {number} of {at.topic}-{at.partition} is {got}, where {meant} was committed")
    return faults
