"""Each group has the position of the last transaction that was committed with one."""

from __future__ import annotations

from collections.abc import Mapping

from fencepost.simulation.checkers.transactions.shown import Shown, number_of, places_of
from fencepost.simulation.checkers.transactions.superseded import superseded
from fencepost.simulation.workload import Outcomes


def misplaced(outcomes: Outcomes, shown: Shown, positions: Mapping[str, int]) -> list[str]:
    """Groups that have not the offset of the last transaction that was committed with one, in sentences.

    Where nobody was told the outcome, and every record was removed, or may have been compacted away, either is right.
    """
    places = places_of(shown)
    made = [tag for tag, records in outcomes.unknown.items() if any(sent in places for sent in records)]
    expected: dict[str, int] = {}
    for tag in sorted((*outcomes.committed, *made), key=number_of):
        if tag in outcomes.positions:
            expected[tag.rpartition("-")[0]] = outcomes.positions[tag]
    gone = outcomes.removed | superseded(outcomes, shown)
    perhaps = {
        (tag.rpartition("-")[0], outcomes.positions[tag])
        for tag, records in outcomes.unknown.items()
        if tag in outcomes.positions and gone >= {*records}
    }
    return [
        f"the group {name} is at {positions.get(name)}, it should be at {expected.get(name)}"
        for name in sorted({**expected, **positions})
        if positions.get(name) != expected.get(name) and (name, positions.get(name)) not in perhaps
    ]
