"""A reader in commit order of compacted topics is shown what is left at the end, and nothing twice."""

from __future__ import annotations

from collections import Counter

from fencepost.simulation.checkers.transactions.shown import Shown


def not_shown_once(shown: Shown, left: Shown) -> list[str]:
    """Values that somebody was shown twice, and those left in the log that he was never shown."""
    faults = []
    for at, values in shown.items():
        counts = Counter(values)
        place = f"{at.topic}-{at.partition}"
        faults += [f"{value} of {place} is shown {count} times" for value, count in counts.items() if count > 1]
        faults += [f"{value} of {place} is never shown" for value in left.get(at, ()) if value not in counts]
    return faults
