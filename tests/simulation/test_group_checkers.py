"""Each checker of groups finds what breaks its promise in a history made by hand, and nothing in one that keeps it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import pytest

from fencepost.protocol.types import TopicPartition
from fencepost.simulation.checkers.groups.ahead import ahead
from fencepost.simulation.checkers.groups.doubled import doubled
from fencepost.simulation.checkers.groups.forgotten import forgotten
from fencepost.simulation.checkers.groups.misplaced import misplaced
from fencepost.simulation.checkers.groups.missed import missed
from fencepost.simulation.checkers.groups.not_owned import not_owned
from fencepost.simulation.checkers.groups.out_of_order import out_of_order
from fencepost.simulation.checkers.groups.outdated import outdated
from fencepost.simulation.checkers.groups.reads_out_of_order import reads_out_of_order
from fencepost.simulation.checkers.groups.replaced import replaced
from fencepost.simulation.checkers.groups.restless import restless
from fencepost.simulation.checkers.groups.shared import shared
from fencepost.simulation.checkers.groups.superseded import nothing, superseded
from fencepost.simulation.checkers.groups.transformed import transformed
from fencepost.simulation.checkers.groups.transformed_out_of_order import transformed_out_of_order
from fencepost.simulation.checkers.groups.unkept import unkept
from fencepost.simulation.checkers.groups.unread import unread
from fencepost.simulation.checkers.groups.unreal import unreal
from fencepost.simulation.checkers.groups.went_back import went_back
from fencepost.simulation.group_notes import (
    Begun,
    Found,
    GroupNotes,
    Logged,
    Membership,
    Owned,
    Processed,
    Read,
    Stored,
    Truth,
)

A, B = TopicPartition("in", 0), TopicPartition("in", 1)
OUT = TopicPartition("out", 0)
ONE, TWO = Membership("g", 1, "one", "one"), Membership("g", 1, "two", "two")
LATER = Membership("g", 2, "two", "two")
LOGGED = [Logged(0, "a", True), Logged(1, "b", False), Logged(3, "c", True)]


def truth(records: Sequence[Logged] = LOGGED, start: int = 0, outputs: Sequence[str] = ()) -> Truth:
    made = [Logged(number, value, True) for number, value in enumerate(outputs)]
    kept = [record for record in records if record.offset >= start]
    return Truth({A: kept, OUT: made}, {A: start, OUT: 0}, {A: 5, OUT: len(made)})


def handed(*offsets: int, member: Membership = ONE, process: str = "p", time: float = 1) -> list[Processed]:
    values = {0: "a", 1: "b", 3: "c"}
    return [Processed(time, process, member, A, offset, values.get(offset, "?")) for offset in offsets]


def stored(position: int, member: Membership = ONE, begun: float = 2, process: str = "p") -> Stored:
    return Stored(begun, process, member, {A: position})


def test_missed() -> None:
    groups = {"g": ["in"]}
    assert missed(GroupNotes(processed=handed(0, 3)), truth(), groups) == []
    assert missed(GroupNotes(processed=handed(3)), truth(start=1), groups) == []
    assert missed(GroupNotes(processed=handed(3)), truth(), groups) == [
        "a at in-0/0 was never processed by the group g"
    ]
    other = handed(0, 3, member=ONE._replace(group="h"))
    assert len(missed(GroupNotes(processed=other), truth(), groups)) == 2


def test_shared() -> None:
    assert shared(GroupNotes(owned=[Owned(1, ONE, (A,)), Owned(1, TWO, (B,)), Owned(2, LATER, (A,))])) == []
    assert shared(GroupNotes(owned=[Owned(1, ONE, (A,)), Owned(1, TWO, (A, B))])) == [
        "one and two own in-0 in generation 1 of g"
    ]


def test_not_owned() -> None:
    assert not_owned(GroupNotes(processed=handed(0))) == []
    assert len(not_owned(GroupNotes(processed=[each._replace(owned=False) for each in handed(0)]))) == 1


def test_outdated() -> None:
    owned = [Owned(1, ONE, (A,)), Owned(5, LATER, (A,))]
    assert outdated(GroupNotes(owned=owned, stored=[stored(1, begun=4), stored(1, LATER, begun=6)])) == []
    assert len(outdated(GroupNotes(owned=owned, stored=[stored(1, begun=6)]))) == 1
    replaced = [Owned(1, ONE, (A,)), Owned(5, ONE._replace(member_id="one again"), (A,))]
    assert outdated(GroupNotes(owned=replaced, stored=[stored(1, begun=4)])) == []
    assert len(outdated(GroupNotes(owned=replaced, stored=[stored(1, begun=6)]))) == 1


def test_ahead() -> None:
    assert ahead(GroupNotes(processed=handed(0), stored=[stored(3)]), truth()) == []
    assert len(ahead(GroupNotes(processed=handed(0), stored=[stored(4)]), truth())) == 1
    assert len(ahead(GroupNotes(processed=handed(0, 3, time=3), stored=[stored(1)]), truth())) == 1


def test_went_back() -> None:
    assert went_back(GroupNotes(stored=[stored(1), stored(3), stored(3), stored(2, LATER)])) == []
    assert len(went_back(GroupNotes(stored=[stored(3), stored(1)]))) == 1
    assert went_back(GroupNotes(stored=[stored(3), stored(1)], moved=[("p", A)])) == []


def test_forgotten() -> None:
    known = [stored(1), stored(3)]
    assert forgotten(GroupNotes(stored=known, begun=[Begun("q", LATER, A, 3), Begun("q", TWO, A, 0)])) == []
    assert len(forgotten(GroupNotes(stored=known, begun=[Begun("q", LATER, A, 2)]))) == 1


def test_forgotten_where_requests_are_late() -> None:
    """A commit may be carried out after the next one, and none of them is in front of where it was begun."""
    begun, known = [Begun("p", ONE, A, 1)], [stored(3), stored(5)]

    def faults(*offsets: int) -> list[str]:
        again = [Begun("q", LATER, A, offset) for offset in offsets]
        return forgotten(GroupNotes(stored=known, begun=[*begun, *again]), requests_are_late=True)

    assert faults(5, 3, 1) == []
    assert len(faults(0)) == 1
    assert forgotten(GroupNotes(stored=known, begun=[Begun("q", LATER, A, 0)]), requests_are_late=True) == []


def test_restless() -> None:
    assert restless([Owned(1, ONE, (A,))], 2) == []
    assert len(restless([Owned(3, ONE, (A,))], 2)) == 1
    assert restless([Owned(3, ONE, (A,))], 2, {(ONE.group, 0): 2.5}) == []
    assert len(restless([Owned(3, ONE, (A,)), Owned(9, ONE, (A,))], 2, {("other", 0): 2.5, (ONE.group, 0): 3.5})) == 2


def test_replaced() -> None:
    assert replaced(GroupNotes(found=[Found("p", {A: 3}, {A: 3})])) == []
    assert len(replaced(GroupNotes(found=[Found("p", {A: 3}, {A: 2}), Found("p", {A: 3}, {A: None})]))) == 2


def test_out_of_order() -> None:
    assert out_of_order(handed(0, 3) + handed(0, process="q") + handed(0, member=LATER)) == []
    assert len(out_of_order(handed(0, 3, 3))) == 1
    back, then = handed(0)[0]._replace(moved=True), handed(1, 3)
    assert out_of_order([*handed(3), back, *then]) == []
    # Once it is back everything is in order again.
    assert len(out_of_order([*handed(3), back, *then, *then])) == 1
    assert len(out_of_order([*handed(3), back, *handed(0)])) == 1


def reads(*shown: tuple[int, str]) -> list[Read]:
    return [Read("reader", A, offset, value) for offset, value in shown]


def test_reads_out_of_order() -> None:
    assert reads_out_of_order(GroupNotes(read=reads((0, "a"), (3, "c")))) == []
    assert len(reads_out_of_order(GroupNotes(read=reads((3, "c"), (0, "a"), (0, "a"))))) == 2


def test_unread() -> None:
    shown = GroupNotes(read=reads((0, "a"), (3, "c")))
    assert unread(shown, truth(), {"reader": True}) == []
    assert len(unread(shown, truth(), {"reader": False})) == 1
    assert len(unread(GroupNotes(read=reads((3, "c"))), truth(), {"reader": True})) == 1


def test_unreal() -> None:
    assert unreal(GroupNotes(read=reads((0, "a"), (3, "c"))), truth(), {"reader": True}) == []
    assert unreal(GroupNotes(read=reads((1, "b"))), truth(), {"reader": False}) == []
    assert len(unreal(GroupNotes(read=reads((1, "b"))), truth(), {"reader": True})) == 1
    assert len(unreal(GroupNotes(read=reads((3, "d"), (4, "e"))), truth(), {"reader": True})) == 2
    assert unreal(GroupNotes(read=reads((0, "deleted"))), truth(start=1), {"reader": True}) == []


OLDER: Final = "single-0-1-0"
"""Of a producer with one key, like all that `NEWER` holds."""
NEWER: Final = [Logged(4, "single-0-2-0", True), Logged(6, "single-0-3-0", False)]


def test_what_a_newer_record_of_its_key_stands_behind_may_be_gone() -> None:
    """But not what is the newest, or where the newer one was aborted, or the topic is not compacted."""
    left = truth(NEWER)
    assert superseded(left, 1)(A, 3, OLDER)
    assert not superseded(left, 1)(A, 4, OLDER)
    assert not superseded(left, 1)(A, 5, OLDER)
    assert not superseded(left, 1)(B, 3, OLDER)
    assert not superseded(left, 1)(A, 3, "single-1-1-0")
    assert not superseded(left, 0)(A, 3, OLDER)


@pytest.mark.parametrize("committed_only", [True, False])
def test_what_compaction_took_was_read_by_right(*, committed_only: bool) -> None:
    read, readers, left = GroupNotes(read=reads((3, OLDER))), {"reader": committed_only}, truth(NEWER)
    assert unreal(read, left, readers, superseded(left, 1), {OLDER}) == []
    assert len(unreal(read, left, readers, nothing, {OLDER})) == 1
    assert len(unreal(GroupNotes(read=reads((4, OLDER))), left, readers, superseded(left, 1), ())) == 1
    # Of an aborted one nothing has to be there for those who read whatever there is.
    assert len(unreal(read, left, readers, nothing, ())) == int(committed_only)
    assert len(unreal(read, left, readers)) == 1


def test_the_output_of_what_compaction_took_stays() -> None:
    outputs = [f"in/0/3/{OLDER}", "in/0/4/single-0-2-0"]
    left = truth(NEWER, outputs=outputs)
    assert transformed(left, ["in"], "out", superseded(left, 1)) == []
    assert len(transformed(left, ["in"], "out")) == 1
    twice = truth(NEWER, outputs=[*outputs, outputs[0]])
    assert len(transformed(twice, ["in"], "out", superseded(twice, 1))) == 1


def test_transformed() -> None:
    whole = ["in/0/0/a", "in/0/3/c"]
    assert transformed(truth(outputs=whole), ["in"], "out") == []
    assert transformed(truth(outputs=whole, start=1), ["in"], "out") == []
    assert transformed(truth(outputs=whole[:1]), ["in"], "out") == ["in/0/3/c has 0 outputs"]
    assert len(transformed(truth(outputs=[*whole, whole[0]]), ["in"], "out")) >= 1
    assert len(transformed(truth(outputs=[*whole, "in/0/1/b"]), ["in"], "out")) == 1


def test_transformed_out_of_order() -> None:
    assert transformed_out_of_order(truth(outputs=["in/0/0/a", "in/1/9/z", "in/0/3/c"]), "out") == []
    assert len(transformed_out_of_order(truth(outputs=["in/0/3/c", "in/0/0/a"]), "out")) == 1


def test_unkept() -> None:
    assert unkept(truth(), [("in", 0, "a"), ("in", 0, "c")]) == []
    told = ["a, which was acknowledged, is lost"]
    assert unkept(truth(start=1), [("in", 0, "a"), ("in", 0, "c")]) == told
    assert unkept(truth(), [("in", 1, "a")]) == told
    assert unkept(truth(), [("in", 0, "b")]) == ["b, which was acknowledged, is lost"]


def test_doubled() -> None:
    assert doubled(truth(outputs=["a", "b"]), ["in", "elsewhere"]) == []
    assert doubled(truth([Logged(0, "a", True), Logged(1, "a", False)]), ["in"]) == []
    assert doubled(truth([Logged(0, "a", True), Logged(1, "a", True)]), ["in"]) == ["a is there 2 times"]
    in_two = Truth({A: LOGGED, B: LOGGED[:1]}, {A: 0, B: 0}, {A: 5, B: 1})
    assert doubled(in_two, ["in"]) == ["a is there 2 times"]


def test_misplaced() -> None:
    for position, faults in ((4, 0), (5, 0), (3, 1), (6, 1), (None, 1)):
        assert len(misplaced(truth(), {A: position}, "g")) == faults
    assert misplaced(truth(), {B: None}, "g") == []
