"""One checker for each promise.  Each gives the broken promises as sentences, none if all were kept."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence

from fencepost.protocol.types import TopicPartition
from fencepost.simulation.workload import Outcomes, Sent

Shown = Mapping[TopicPartition, Sequence[str]]


def _places(shown: Shown) -> Counter[tuple[str, int, str]]:
    return Counter((at.topic, at.partition, value) for at, values in shown.items() for value in values)


def lost(outcomes: Outcomes, shown: Shown) -> list[str]:
    """Every record of a committed transaction is shown."""
    places = _places(shown)
    return [
        f"{sent.value} of the committed transaction {tag} is lost"
        for tag, records in outcomes.committed.items()
        for sent in records
        if not places[sent]
    ]


def doubled(outcomes: Outcomes, shown: Shown) -> list[str]:  # noqa: ARG001 - all checkers are called alike
    """No record is shown twice."""
    counts = Counter(value for values in shown.values() for value in values)
    return [f"{value} is shown {count} times" for value, count in counts.items() if count > 1]


def aborted_shown(outcomes: Outcomes, shown: Shown) -> list[str]:
    """No record of an aborted transaction is shown."""
    places = _places(shown)
    return [
        f"{sent.value} of the aborted transaction {tag} is shown"
        for tag, records in outcomes.aborted.items()
        for sent in records
        if places[sent]
    ]


def torn(outcomes: Outcomes, shown: Shown) -> list[str]:
    """A transaction of unknown outcome is shown whole or not at all."""
    places = _places(shown)
    faults = []
    for tag, records in outcomes.unknown.items():
        seen = sum(bool(places[sent]) for sent in records)
        if seen not in (0, len(records)):
            faults.append(f"of transaction {tag} {seen} of {len(records)} records are shown")
    return faults


def out_of_order(outcomes: Outcomes, shown: Shown) -> list[str]:
    """In each partition the records of one producer are in the order in which it sent them."""
    order: dict[str, int] = {}
    every = {**outcomes.committed, **outcomes.aborted, **outcomes.unknown}
    for place, sent in enumerate(sent for tag in sorted(every, key=_number) for sent in every[tag]):
        order[sent.value] = place
    faults = []
    for at, values in shown.items():
        last: dict[str, int] = {}
        for value in values:
            producer = value.rsplit("-", 2)[0]
            if order.get(value, -1) < last.get(producer, -1):
                faults.append(f"{value} in {at.topic}-{at.partition} is out of order")
            last[producer] = order.get(value, -1)
    return faults


def _number(tag: str) -> int:
    return int(tag.rsplit("-", 1)[1])


def invented(outcomes: Outcomes, shown: Shown) -> list[str]:
    """Nothing is shown that nobody sent."""
    known: Counter[Sent | tuple[str, int, str]] = Counter()
    for kind in (outcomes.committed, outcomes.aborted, outcomes.unknown):
        for records in kind.values():
            known.update(records)
    return [f"{place[2]} was never sent there" for place in _places(shown) if not known[place]]


CHECKERS = (lost, doubled, aborted_shown, torn, out_of_order, invented)


#: What holds for whoever has read a part only.
OF_A_PART = (doubled, aborted_shown, out_of_order, invented)


def check_part(outcomes: Outcomes, shown: Shown) -> list[str]:
    """The promises that are broken to a reader who stopped somewhere, while others went on."""
    return [fault for checker in OF_A_PART for fault in checker(outcomes, shown)]


def check(outcomes: Outcomes, shown: Shown) -> list[str]:
    """All broken promises."""
    return [fault for checker in CHECKERS for fault in checker(outcomes, shown)]


def surprised(outcomes: Outcomes) -> list[str]:
    """No producer is fenced or ended for nothing, no zombie commits."""
    return list(outcomes.surprises)


def misplaced(outcomes: Outcomes, shown: Shown, positions: Mapping[str, int]) -> list[str]:
    """Each group has the position of the last transaction that was committed with one."""
    places = _places(shown)
    made = [tag for tag, records in outcomes.unknown.items() if any(places[sent] for sent in records)]
    expected: dict[str, int] = {}
    for tag in sorted((*outcomes.committed, *made), key=_number):
        if tag in outcomes.positions:
            expected[tag.rpartition("-")[0]] = outcomes.positions[tag]
    return [
        f"the group {name} is at {positions.get(name)}, it should be at {expected.get(name)}"
        for name in sorted({**expected, **positions})
        if positions.get(name) != expected.get(name)
    ]
