"""A classic group as a value: its states, its members, and what everybody can do."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise, product
from random import Random

import pytest
from tests.coordinator.group.group_doubles import member

from fencepost.coordinator.group.classic.group import TRANSITIONS, ClassicGroup, ClassicGroupState, Member
from fencepost.protocol.errors import ErrorCode
from fencepost.protocol.types import Epoch, Milliseconds

EMPTY, PREPARING, COMPLETING, STABLE, DEAD = ClassicGroupState
NOW = Milliseconds(17)
PROTOCOLS = ("range", "roundrobin", "sticky")

#: Written out a second time.  Rows: from; columns: to.
MOVES = """
                    Empty PreparingRebalance CompletingRebalance Stable Dead
Empty               -     yes                -                   -      yes
PreparingRebalance  yes   -                  yes                 -      -
CompletingRebalance -     yes                -                   yes    -
Stable              -     yes                -                   -      -
Dead                -     -                  -                   -      -
"""


def moves() -> dict[tuple[str, str], bool]:
    head, *rows = (line.split() for line in MOVES.strip().splitlines())
    return {(row[0], to): cell == "yes" for row in rows for to, cell in zip(head, row[1:], strict=True)}


@pytest.mark.parametrize(("old", "new"), list(product(ClassicGroupState, ClassicGroupState)))
def test_a_group_moves_only_as_its_table_says(old: ClassicGroupState, new: ClassicGroupState) -> None:
    group = ClassicGroup("g", old)
    if moves()[old.value, new.value]:
        assert group.become(new, NOW) == ClassicGroup("g", new, state_timestamp=NOW)
    else:
        with pytest.raises(AssertionError, match="does not become"):
            group.become(new, NOW)
    assert ((old, new) in TRANSITIONS) == moves()[old.value, new.value]
    assert all(TRANSITIONS.values()), "every move has a cause"


def group(*members: Member, state: ClassicGroupState = STABLE) -> ClassicGroup:
    """A group of consumers in its third generation."""
    return ClassicGroup("g", state, Epoch(3), "consumer").with_members(members)


def test_the_first_member_leads_and_its_heir_is_the_next() -> None:
    members = [member(name, "range") for name in "abc"]
    made = group(*members)
    for each, heir in pairwise(members):
        assert made.leader_id == each.member_id
        made = made.without_members((each,))
        assert made.leader_id == heir.member_id
    made = made.without_members(members[-1:])
    assert (made.leader_id, made.members) == (None, {})


def test_a_value_is_never_changed_in_place() -> None:
    static = member("s", "range", instance="i")
    made = group(static, member("m", "range"))
    before = repr(made)
    made.with_members((member("n", "range", instance="j"),))
    made.without_members((static,))
    made.with_static_member_replaced(static, "s2")
    made.with_pending("p").without_pending(("p",))
    assert repr(made) == before


@pytest.mark.parametrize("leads", [True, False])
def test_a_static_member_that_is_replaced_keeps_its_part(leads: bool) -> None:
    static, other = member("s", "range", instance="i"), member("m", "range")
    made = group(*((static, other) if leads else (other, static))).with_static_member_replaced(static, "s2")
    assert made.static_members == {"i": "s2"}
    assert sorted(made.members) == ["m", "s2"]
    assert made.leader_id == ("s2" if leads else "m")
    assert made.validate_member("s", "i", None) is ErrorCode.FENCED_INSTANCE_ID
    assert made.validate_member("s2", "i", None) is ErrorCode.NONE


@pytest.mark.parametrize(
    ("who", "error"),
    [
        (("m", None, 3), ErrorCode.NONE),
        (("m", None, None), ErrorCode.NONE),
        (("m", None, 2), ErrorCode.ILLEGAL_GENERATION),
        (("m", None, 4), ErrorCode.ILLEGAL_GENERATION),
        (("s", None, 3), ErrorCode.NONE),
        (("s", "i", 3), ErrorCode.NONE),
        (("s", "j", 3), ErrorCode.UNKNOWN_MEMBER_ID),
        (("m", "i", 3), ErrorCode.FENCED_INSTANCE_ID),
        (("m", "i", 2), ErrorCode.FENCED_INSTANCE_ID),
        (("x", None, 3), ErrorCode.UNKNOWN_MEMBER_ID),
        (("x", None, 2), ErrorCode.UNKNOWN_MEMBER_ID),
        (("", None, 3), ErrorCode.UNKNOWN_MEMBER_ID),
    ],
)
def test_who_is_a_member(who: tuple[str, str | None, int | None], error: ErrorCode) -> None:
    assert group(member("m", "range"), member("s", "range", instance="i")).validate_member(*who) is error


# Protocols


@pytest.mark.parametrize(
    ("likes", "selected"),
    [
        ((("range", "sticky"), ("sticky", "range"), ("sticky", "range")), "sticky"),
        ((("range", "sticky"), ("range", "sticky"), ("sticky", "range")), "range"),
        ((("mine", "range"), ("yours", "range")), "range"),
        ((("range",),), "range"),
    ],
)
def test_the_protocol_is_what_everybody_can_do_and_most_like_best(
    likes: tuple[tuple[str, ...], ...], selected: str
) -> None:
    made = group(*(member(f"{number}", *each) for number, each in enumerate(likes)))
    assert made.select_protocol() == selected


@pytest.mark.parametrize(
    ("kind", "protocols", "accepted"),
    [
        ("consumer", ("range",), True),
        ("consumer", ("sticky", "range"), True),
        ("consumer", ("sticky",), False),
        ("consumer", (), False),
        ("connect", ("range",), False),
    ],
)
def test_whoever_joins_must_be_able_to_do_what_the_others_can(
    kind: str, protocols: tuple[str, ...], accepted: bool
) -> None:
    made = group(member("m", "range"), member("n", "range", "other"))
    assert made.supports_protocols(kind, tuple((each, b"") for each in protocols)) is accepted


@pytest.mark.parametrize(
    ("kind", "protocols", "accepted"), [("any", ("x",), True), ("", ("x",), False), ("any", (), False)]
)
def test_the_first_member_says_what_the_group_does(kind: str, protocols: tuple[str, ...], accepted: bool) -> None:
    assert group(state=EMPTY).supports_protocols(kind, tuple((each, b"") for each in protocols)) is accepted


def test_the_slowest_member_says_how_long_a_rebalance_may_take() -> None:
    assert group().rebalance_timeout_ms == 0
    assert group(*(member(f"{ms}", "range", rebalance_ms=ms) for ms in (20, 50, 30))).rebalance_timeout_ms == 50


@pytest.mark.parametrize("seed", range(200))
def test_what_is_common_to_all_is_known_whoever_comes_goes_or_changes(seed: int) -> None:
    random = Random(seed)
    made = group(state=PREPARING)

    def somebody(name: str) -> Member:
        chosen = random.sample(list(PROTOCOLS), random.randint(1, 3))
        return member(name, *chosen, instance=random.choice([None, f"static-{name}"]))

    for number in range(12):
        known = list(made.members.values())
        match random.randrange(5) if known else 0:
            case 0 | 1:
                made = made.with_members([somebody(f"m{number}"), somebody(f"n{number}")][: random.randint(1, 2)])
            case 2:
                made = made.without_members([random.choice(known)])
            case 3:
                one = random.choice(known)
                made = made.with_members([one._replace(protocols=somebody("x").protocols)])
            case _:
                made = made.with_static_member_replaced(random.choice(known), f"r{number}")
        for protocol in PROTOCOLS:
            everybody = all(protocol in dict(each.protocols) for each in made.members.values())
            assert made.supports_protocols("consumer", ((protocol, b""),)) == everybody


class Counted(tuple[tuple[str, bytes], ...]):
    """Protocols that tell how often somebody goes over them."""

    times = 0

    def __iter__(self) -> Iterator[tuple[str, bytes]]:
        Counted.times += 1
        return super().__iter__()


def test_whoever_joins_is_compared_with_what_is_common_and_not_with_everybody() -> None:
    """A thousand members with a hundred protocols each took eight seconds."""
    made, many, Counted.times = group(state=PREPARING), 200, 0
    for round_ in range(3):  # they come, join again with the same, and are started again
        for number in range(many):
            joining = member(f"m{number}", "range", instance=f"i{number}")
            joining = joining._replace(protocols=Counted((("range", b""), ("sticky", b""))))
            assert made.supports_protocols("consumer", joining.protocols)
            if round_ == 2:
                made = made.with_static_member_replaced(made.members[joining.member_id], f"again-{number}")
                joining = joining._replace(member_id=f"again-{number}")
            made = made.with_members([joining])
    assert many <= Counted.times < 20 * many
