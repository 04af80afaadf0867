"""Each checker of groups finds what breaks its promise in a history made by hand, and nothing in one that keeps it."""

from __future__ import annotations

from collections.abc import Sequence

from fencepost.protocol.types import TopicPartition
from fencepost.simulation import group_checkers as checkers
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
    assert checkers.missed(GroupNotes(processed=handed(0, 3)), truth(), groups) == []
    assert checkers.missed(GroupNotes(processed=handed(3)), truth(start=1), groups) == []
    assert checkers.missed(GroupNotes(processed=handed(3)), truth(), groups) == [
        "a at in-0/0 was never processed by the group g"
    ]
    other = handed(0, 3, member=ONE._replace(group="h"))
    assert len(checkers.missed(GroupNotes(processed=other), truth(), groups)) == 2


def test_shared() -> None:
    assert checkers.shared(GroupNotes(owned=[Owned(1, ONE, (A,)), Owned(1, TWO, (B,)), Owned(2, LATER, (A,))])) == []
    assert checkers.shared(GroupNotes(owned=[Owned(1, ONE, (A,)), Owned(1, TWO, (A, B))])) == [
        "one and two own in-0 in generation 1 of g"
    ]


def test_not_owned() -> None:
    assert checkers.not_owned(GroupNotes(processed=handed(0))) == []
    assert len(checkers.not_owned(GroupNotes(processed=[each._replace(owned=False) for each in handed(0)]))) == 1


def test_outdated() -> None:
    owned = [Owned(1, ONE, (A,)), Owned(5, LATER, (A,))]
    assert checkers.outdated(GroupNotes(owned=owned, stored=[stored(1, begun=4), stored(1, LATER, begun=6)])) == []
    assert len(checkers.outdated(GroupNotes(owned=owned, stored=[stored(1, begun=6)]))) == 1
    replaced = [Owned(1, ONE, (A,)), Owned(5, ONE._replace(member_id="one again"), (A,))]
    assert checkers.outdated(GroupNotes(owned=replaced, stored=[stored(1, begun=4)])) == []
    assert len(checkers.outdated(GroupNotes(owned=replaced, stored=[stored(1, begun=6)]))) == 1


def test_ahead() -> None:
    assert checkers.ahead(GroupNotes(processed=handed(0), stored=[stored(3)]), truth()) == []
    assert len(checkers.ahead(GroupNotes(processed=handed(0), stored=[stored(4)]), truth())) == 1
    assert len(checkers.ahead(GroupNotes(processed=handed(0, 3, time=3), stored=[stored(1)]), truth())) == 1


def test_went_back() -> None:
    assert checkers.went_back(GroupNotes(stored=[stored(1), stored(3), stored(3), stored(2, LATER)])) == []
    assert len(checkers.went_back(GroupNotes(stored=[stored(3), stored(1)]))) == 1
    assert checkers.went_back(GroupNotes(stored=[stored(3), stored(1)], moved=[("p", A)])) == []


def test_forgotten() -> None:
    known = [stored(1), stored(3)]
    assert checkers.forgotten(GroupNotes(stored=known, begun=[Begun("q", LATER, A, 3), Begun("q", TWO, A, 0)])) == []
    assert len(checkers.forgotten(GroupNotes(stored=known, begun=[Begun("q", LATER, A, 2)]))) == 1


def test_restless() -> None:
    assert checkers.restless([Owned(1, ONE, (A,))], 2) == []
    assert len(checkers.restless([Owned(3, ONE, (A,))], 2)) == 1


def test_replaced() -> None:
    assert checkers.replaced(GroupNotes(found=[Found("p", {A: 3}, {A: 3})])) == []
    assert len(checkers.replaced(GroupNotes(found=[Found("p", {A: 3}, {A: 2}), Found("p", {A: 3}, {A: None})]))) == 2


def test_out_of_order() -> None:
    assert checkers.out_of_order(handed(0, 3) + handed(0, process="q") + handed(0, member=LATER)) == []
    assert len(checkers.out_of_order(handed(0, 3, 3))) == 1
    assert checkers.out_of_order(handed(3, 0), [("p", A)]) == []


def reads(*shown: tuple[int, str]) -> list[Read]:
    return [Read("reader", A, offset, value) for offset, value in shown]


def test_reads_out_of_order() -> None:
    assert checkers.reads_out_of_order(GroupNotes(read=reads((0, "a"), (3, "c")))) == []
    assert len(checkers.reads_out_of_order(GroupNotes(read=reads((3, "c"), (0, "a"), (0, "a"))))) == 2


def test_unread() -> None:
    shown = GroupNotes(read=reads((0, "a"), (3, "c")))
    assert checkers.unread(shown, truth(), {"reader": True}) == []
    assert len(checkers.unread(shown, truth(), {"reader": False})) == 1
    assert len(checkers.unread(GroupNotes(read=reads((3, "c"))), truth(), {"reader": True})) == 1


def test_unreal() -> None:
    assert checkers.unreal(GroupNotes(read=reads((0, "a"), (3, "c"))), truth(), {"reader": True}) == []
    assert checkers.unreal(GroupNotes(read=reads((1, "b"))), truth(), {"reader": False}) == []
    assert len(checkers.unreal(GroupNotes(read=reads((1, "b"))), truth(), {"reader": True})) == 1
    assert len(checkers.unreal(GroupNotes(read=reads((3, "d"), (4, "e"))), truth(), {"reader": True})) == 2
    assert checkers.unreal(GroupNotes(read=reads((0, "deleted"))), truth(start=1), {"reader": True}) == []


def test_transformed() -> None:
    whole = ["in/0/0/a", "in/0/3/c"]
    assert checkers.transformed(truth(outputs=whole), ["in"], "out") == []
    assert checkers.transformed(truth(outputs=whole, start=1), ["in"], "out") == []
    assert checkers.transformed(truth(outputs=whole[:1]), ["in"], "out") == ["in/0/3/c has 0 outputs"]
    assert len(checkers.transformed(truth(outputs=[*whole, whole[0]]), ["in"], "out")) >= 1
    assert len(checkers.transformed(truth(outputs=[*whole, "in/0/1/b"]), ["in"], "out")) == 1


def test_transformed_out_of_order() -> None:
    assert checkers.transformed_out_of_order(truth(outputs=["in/0/0/a", "in/1/9/z", "in/0/3/c"]), "out") == []
    assert len(checkers.transformed_out_of_order(truth(outputs=["in/0/3/c", "in/0/0/a"]), "out")) == 1


def test_misplaced() -> None:
    for position, faults in ((4, 0), (5, 0), (3, 1), (6, 1), (None, 1)):
        assert len(checkers.misplaced(truth(), {A: position}, "g")) == faults
    assert checkers.misplaced(truth(), {B: None}, "g") == []
