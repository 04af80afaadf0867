"""Whoever reads a partition from its beginning is shown the same records in the same order: reads are monotone."""

from __future__ import annotations

from collections.abc import Sequence

from fencepost.simulation.checkers.transactions.shown import Shown
from fencepost.simulation.checkers.transactions.superseded import superseded
from fencepost.simulation.workload import Outcomes


def differing(outcomes: Outcomes, parts: Sequence[Shown]) -> list[str]:
    """Readers of one isolation level of which neither was shown what the other was and perhaps more, in sentences.

    `parts`: in the order in which they were read; the last one, which was read when all was over, is shown everything
    that any other was.  What compaction may take is not looked at: it was there for the one and not for the other.
    """
    faults, older = [], superseded(outcomes, *parts)
    if outcomes.keys:
        older = older.union(*outcomes.aborted.values())
    for at in dict.fromkeys(at for shown in parts for at in shown):
        gone = {value for topic, index, value in (*outcomes.removed, *older) if (topic, index) == at}
        sights = [[value for value in shown[at] if value not in gone] for shown in parts if at in shown]
        longest = max(sights, key=len)
        if at in parts[-1] and sights[-1] != longest and sights[-1] == longest[: len(sights[-1])]:
            told = f"one reader was shown {longest[len(sights[-1])]}, which is not there at last"
            faults.append(f"of {at.topic}-{at.partition} {told}")
        for sight in sights:
            place = next((n for n, value in enumerate(sight) if value != longest[n]), None)
            if place is not None:
                told = f"one reader is shown {sight[place]} where another one is shown {longest[place]}"
                faults.append(f"of {at.topic}-{at.partition} {told}")
    return faults
