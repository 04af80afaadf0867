"""The rules of a classic group, as tables: its states, its members, who may commit, and what everybody can do."""

from __future__ import annotations

from itertools import pairwise, product

import pytest

from fencepost.coordinator.group.group import TRANSITIONS, Group, GroupState, Member
from fencepost.protocol.errors import ErrorCode

EMPTY, PREPARING, COMPLETING, STABLE, DEAD = (
    GroupState.EMPTY,
    GroupState.PREPARING_REBALANCE,
    GroupState.COMPLETING_REBALANCE,
    GroupState.STABLE,
    GroupState.DEAD,
)

#: Written out a second time.  Rows: from; columns: to.
MOVES = """
                    Empty PreparingRebalance CompletingRebalance Stable Dead
Empty               -     yes                -                   -      yes
PreparingRebalance  yes   -                  yes                 -      yes
CompletingRebalance -     yes                -                   yes    yes
Stable              -     yes                -                   -      yes
Dead                -     -                  -                   -      -
"""


def moves() -> dict[tuple[str, str], bool]:
    head, *rows = (line.split() for line in MOVES.strip().splitlines())
    return {(row[0], to): cell == "yes" for row in rows for to, cell in zip(head, row[1:], strict=True)}


@pytest.mark.parametrize(("old", "new"), list(product(GroupState, GroupState)))
def test_a_group_moves_only_as_its_table_says(old: GroupState, new: GroupState) -> None:
    group = Group("g", old)
    if moves()[old.value, new.value]:
        group.become(new, 17)
        assert (group.state, group.state_timestamp) == (new, 17)
    else:
        with pytest.raises(AssertionError, match="does not become"):
            group.become(new, 17)
        assert group.state is old
    assert (new in TRANSITIONS[old]) == moves()[old.value, new.value]


def member(name: str, *protocols: str, instance: str | None = None) -> Member:
    return Member(name, instance, "client", "/host", 10_000, 20_000, [(each, name.encode()) for each in protocols])


def group(state: GroupState = STABLE, generation: int = 3) -> Group:
    """Member "m"; static member "s" of the instance "i"."""
    made = Group("g", state, generation, "consumer")
    if state not in (EMPTY, DEAD):
        made.add(member("m", "range"))
        made.add(member("s", "range", instance="i"))
    return made


NONE, ILLEGAL, UNKNOWN, FENCED, REBALANCE, AWAY = (
    ErrorCode.NONE,
    ErrorCode.ILLEGAL_GENERATION,
    ErrorCode.UNKNOWN_MEMBER_ID,
    ErrorCode.FENCED_INSTANCE_ID,
    ErrorCode.REBALANCE_IN_PROGRESS,
    ErrorCode.COORDINATOR_NOT_AVAILABLE,
)

#: who commits: member id, instance id, generation
PEOPLE: dict[str, tuple[str, str | None, int]] = {
    "nobody": ("", None, -1),
    "the member": ("m", None, 3),
    "the member, a generation ago": ("m", None, 2),
    "the member, a generation ahead": ("m", None, 4),
    "the member, no generation": ("m", None, -1),
    "a stranger": ("x", None, 3),
    "a stranger, no generation": ("x", None, -1),
    "the static member": ("s", "i", 3),
    "the static member, an old id": ("s-old", "i", 3),
    "an unknown instance": ("s", "j", 3),
    "only a generation": ("", None, 3),
}

#: who -> answer to an OffsetCommit, and to a TxnOffsetCommit (facts §7.4), of a stable group
COMMITS = {
    "nobody": (UNKNOWN, NONE),
    "the member": (NONE, NONE),
    "the member, a generation ago": (ILLEGAL, ILLEGAL),
    "the member, a generation ahead": (ILLEGAL, ILLEGAL),
    "the member, no generation": (ILLEGAL, ILLEGAL),
    "a stranger": (UNKNOWN, UNKNOWN),
    "a stranger, no generation": (UNKNOWN, UNKNOWN),
    "the static member": (NONE, NONE),
    "the static member, an old id": (FENCED, FENCED),
    "an unknown instance": (UNKNOWN, UNKNOWN),
    "only a generation": (UNKNOWN, UNKNOWN),
}


@pytest.mark.parametrize("state", [PREPARING, COMPLETING, STABLE])
@pytest.mark.parametrize("who", PEOPLE)
def test_who_may_commit_to_a_group_with_members(who: str, state: GroupState) -> None:
    plain, transactional = COMMITS[who]
    if plain is NONE and state is COMPLETING:
        plain = REBALANCE  # unlike in a transaction, where the position is taken along
    assert group(state).check_commit(*PEOPLE[who]) is plain
    assert group(state).check_transactional_commit(*PEOPLE[who]) is transactional


@pytest.mark.parametrize("who", PEOPLE)
def test_who_may_commit_to_an_empty_group(who: str) -> None:
    expected = NONE if PEOPLE[who][2] < 0 else UNKNOWN
    assert group(EMPTY).check_commit(*PEOPLE[who]) is expected
    assert group(EMPTY).check_transactional_commit(*PEOPLE[who]) is expected


@pytest.mark.parametrize("who", PEOPLE)
def test_nobody_commits_to_a_dead_group(who: str) -> None:
    assert group(DEAD).check_commit(*PEOPLE[who]) is AWAY
    assert group(DEAD).check_transactional_commit(*PEOPLE[who]) is AWAY


# Members


def test_the_first_member_leads_and_its_heir_is_the_next() -> None:
    made = Group("g")
    members = [member(name, "range") for name in "abc"]
    for each in members:
        made.add(each)
    for each, heir in pairwise(members):
        assert made.leader == each.member_id
        made.remove(each)
        assert made.leader == heir.member_id
    made.remove(members[-1])
    assert (made.leader, made.members) == (None, {})


@pytest.mark.parametrize("leads", [True, False])
def test_a_static_member_that_is_renamed_keeps_its_part(leads: bool) -> None:
    made = Group("g")
    static = member("s", "range", instance="i")
    for each in (static, member("m", "range")) if leads else (member("m", "range"), static):
        made.add(each)
    made.rename(static, "s2")
    assert made.static_members == {"i": "s2"}
    assert sorted(made.members) == ["m", "s2"]
    assert made.leader == ("s2" if leads else "m")
    assert made.check_member("s", "i", None) is FENCED
    assert made.check_member("s2", "i", None) is NONE


# Protocols


@pytest.mark.parametrize(
    ("likes", "elected"),
    [
        ((("range", "sticky"), ("sticky", "range"), ("sticky", "range")), "sticky"),
        ((("range", "sticky"), ("range", "sticky"), ("sticky", "range")), "range"),
        ((("mine", "range"), ("yours", "range")), "range"),
        ((("range",),), "range"),
    ],
)
def test_the_protocol_is_what_everybody_can_do_and_most_like_best(
    likes: tuple[tuple[str, ...], ...], elected: str
) -> None:
    made = Group("g", PREPARING)
    for number, each in enumerate(likes):
        made.add(member(f"{number}", *each))
    assert made.elect_protocol() == elected
    made.begin_generation(5)
    assert (made.generation, made.protocol, made.state) == (1, elected, COMPLETING)


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
    assert group().accepts(kind, [(each, b"") for each in protocols]) is accepted


@pytest.mark.parametrize(
    ("kind", "protocols", "accepted"), [("any", ("x",), True), ("", ("x",), False), ("any", (), False)]
)
def test_the_first_member_says_what_the_group_does(kind: str, protocols: tuple[str, ...], accepted: bool) -> None:
    assert group(EMPTY).accepts(kind, [(each, b"") for each in protocols]) is accepted


def test_the_slowest_member_says_how_long_a_rebalance_may_take() -> None:
    made = Group("g")
    assert made.rebalance_timeout_ms == 0
    for number, rebalance in enumerate((20, 50, 30)):
        made.add(Member(f"{number}", None, "", "", 10, rebalance, [("range", b"")]))
    assert made.rebalance_timeout_ms == 50
