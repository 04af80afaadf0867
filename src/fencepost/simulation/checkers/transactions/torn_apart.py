"""A reader in commit order is shown the records of one transaction in a row, in each partition."""

from __future__ import annotations

from fencepost.simulation.checkers.transactions.shown import Shown


def torn_apart(shown: Shown) -> list[str]:
    """Transactions between whose records others were shown, in sentences."""
    faults = []
    for at, values in shown.items():
        tags = [value.rpartition("-")[0] for value in values]
        begun = [tag for before, tag in zip(["", *tags], tags, strict=False) if tag != before]
        faults += [
            f"{tag} is shown in several parts of {at.topic}-{at.partition}"
            for tag in sorted({tag for tag in begun if begun.count(tag) > 1})
        ]
    return faults
