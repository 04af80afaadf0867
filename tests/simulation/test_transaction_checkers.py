"""Checkers of transactions on histories made by hand: each is silent where all is well, and speaks where it is not."""

from __future__ import annotations

from typing import Any

from fencepost.protocol.types import TopicPartition
from fencepost.simulation.checkers.transactions import check, check_part, check_uncommitted
from fencepost.simulation.checkers.transactions.differing import differing
from fencepost.simulation.checkers.transactions.misplaced import misplaced
from fencepost.simulation.checkers.transactions.superseded import superseded
from fencepost.simulation.checkers.transactions.torn import torn
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


def test_what_somebody_was_shown_is_there_at_last() -> None:
    """Of a record whose sender was told nothing, and which is the last one, nobody else says anything."""
    told = ["of left-0 one reader was shown b, which is not there at last"]
    assert differing(Outcomes(), [{AT: ["a", "b"]}, {AT: ["a"]}]) == told
    assert differing(Outcomes(), [{AT: ["a"]}, {AT: ["a", "b"]}, {AT: ["a"]}]) == told
    assert differing(Outcomes(removed={("left", 0, "b")}), [{AT: ["a", "b"]}, {AT: ["a"]}]) == []


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


def compacted(**given: Any) -> Outcomes:
    """With one key for each producer."""
    return Outcomes(keys=1, **given)


def test_of_a_key_the_newest_committed_record_has_to_be_shown_and_no_other() -> None:
    outcomes = compacted(committed={"p-0": sent("p-0", 0, 1), "p-1": sent("p-1", 0), "q-0": sent("q-0", 0)})
    assert check(outcomes, {AT: ["q-0-0", "p-1-0"]}) == []
    assert check(outcomes, {AT: ["p-0-1", "q-0-0", "p-1-0"]}) == []
    assert check(outcomes, {AT: ["p-0-0", "p-0-1", "q-0-0"]}) == ["p-1-0 of the committed transaction p-1 is lost"]
    assert check(outcomes, {AT: ["p-1-0"]}) == ["q-0-0 of the committed transaction q-0 is lost"]
    # Where nothing is compacted every one has to be there.
    assert len(check(Outcomes(committed=outcomes.committed), {AT: ["q-0-0", "p-1-0"]})) == 2


def test_a_record_that_is_not_committed_or_stands_elsewhere_takes_the_place_of_none() -> None:
    elsewhere = [Sent("left", 1, "p-2-0")]
    outcomes = compacted(
        committed={"p-0": sent("p-0", 0), "p-2": elsewhere}, aborted={"p-1": sent("p-1", 0)}, unknown={}
    )
    assert superseded(outcomes, {AT: ["p-1-0"], OTHER: ["p-2-0"]}) == set()
    assert check(outcomes, {AT: [], OTHER: ["p-2-0"]}) == ["p-0-0 of the committed transaction p-0 is lost"]


def test_of_a_transaction_of_unknown_outcome_compaction_may_take_a_part() -> None:
    outcomes = compacted(
        unknown={"p-0": [*sent("p-0", 0), Sent("left", 1, "p-0-1")]}, committed={"p-1": sent("p-1", 0)}
    )
    assert torn(outcomes, {AT: ["p-1-0"], OTHER: ["p-0-1"]}) == []
    assert torn(outcomes, {AT: ["p-0-0", "p-1-0"], OTHER: []}) == ["of transaction p-0 1 of 2 records are shown"]
    whole = compacted(unknown={"p-0": sent("p-0", 0)}, committed={"p-1": sent("p-1", 0)})
    whole.positions["p-0"] = 0
    assert misplaced(whole, {AT: ["p-1-0"]}, {"p": 0}) == misplaced(whole, {AT: ["p-1-0"]}, {}) == []
    assert misplaced(whole, {AT: []}, {"p": 0}) == ["the group p is at 0, it should be at None"]


def test_between_two_readers_only_older_records_of_a_key_may_go() -> None:
    outcomes = compacted(committed={"p-0": sent("p-0", 0), "p-1": sent("p-1", 0), "q-0": sent("q-0", 0)})
    assert differing(outcomes, [{AT: ["p-0-0", "q-0-0"]}, {AT: ["q-0-0", "p-1-0"]}]) == []
    assert differing(outcomes, [{AT: ["p-0-0", "q-0-0"]}, {AT: ["p-1-0"]}]) != []
