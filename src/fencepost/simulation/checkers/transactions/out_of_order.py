"""In each partition the records of one producer are in the order in which it sent them."""

from __future__ import annotations

from fencepost.simulation.checkers.transactions.shown import Shown, in_order
from fencepost.simulation.workload import Outcomes


def out_of_order(outcomes: Outcomes, shown: Shown) -> list[str]:
    """Records of one producer that are not in the order in which it sent them to a partition, in sentences."""
    order = {sent.value: place for place, sent in enumerate(in_order(outcomes))}
    faults = []
    for at, values in shown.items():
        last: dict[str, int] = {}
        for value in values:
            producer, place = value.rsplit("-", 2)[0], order.get(value, -1)
            if place < last.get(producer, -1):
                faults.append(f"{value} in {at.topic}-{at.partition} is out of order")
            last[producer] = place
    return faults
