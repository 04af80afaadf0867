"""Checkers of transactions on histories made by hand: each is silent where all is well, and speaks where it is not."""

from __future__ import annotations

from fencepost.protocol.types import TopicPartition
from fencepost.simulation.checkers.transactions import check_part, check_uncommitted
from fencepost.simulation.checkers.transactions.differing import differing
from fencepost.simulation.workload import Outcomes, Sent

AT, OTHER = TopicPartition("left", 0), TopicPartition("left", 1)


def sent(tag: str, *numbers: int) -> list[Sent]:
    return [Sent("left", 0, f"{tag}-{n}") for n in numbers]


def test_readers_are_shown_the_same_some_of_them_more() -> None:
    parts = [{AT: ["a", "b"], OTHER: []}, {AT: ["a"], OTHER: ["x"]}, {AT: ["a", "b", "c"]}]
    assert differing(Outcomes(), parts) == []
    assert differing(Outcomes(), []) == []


def test_a_reader_who_is_shown_something_else_is_told_of() -> None:
    missing = differing(Outcomes(), [{AT: ["a", "b", "c"]}, {AT: ["a", "c"]}])
    assert missing == ["of left-0 one reader is shown c where another one is shown b"]
    assert len(differing(Outcomes(), [{AT: ["a", "b", "c"], OTHER: ["x"]}, {AT: ["b"], OTHER: ["y"]}])) == 2


def test_records_that_were_deleted_between_two_readers_are_no_difference() -> None:
    outcomes = Outcomes(removed={("left", 0, "a")})
    assert differing(outcomes, [{AT: ["a", "b"]}, {AT: ["b", "c"]}]) == []


def test_only_a_reader_of_committed_records_is_shown_none_of_an_aborted_transaction() -> None:
    outcomes = Outcomes(committed={"p-0": sent("p-0", 0)}, aborted={"p-1": sent("p-1", 0)})
    shown = {AT: ["p-0-0", "p-1-0"]}
    assert check_part(outcomes, shown) == ["p-1-0 of the aborted transaction p-1 is shown"]
    assert check_uncommitted(outcomes, shown) == []
    faults = check_uncommitted(outcomes, {AT: ["p-1-0", "p-0-0", "p-0-0", "q-0-0"]})
    assert faults == ["p-0-0 is shown 2 times", "p-0-0 in left-0 is out of order", "q-0-0 was never sent there"]
