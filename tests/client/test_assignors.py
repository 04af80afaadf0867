"""Every assignor: each partition goes to one member that wants it, in fair shares, whatever order members come in."""

from __future__ import annotations

import random
from collections.abc import Mapping
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fencepost.client.assignors import (
    ASSIGNORS,
    COOPERATIVE_STICKY,
    RANGE,
    ROUND_ROBIN,
    STICKY,
    Assignor,
    Member,
    Shares,
    assign_cooperatively,
    assign_ranges,
    assign_round_robin,
    assign_sticky,
    in_order,
    is_cooperative,
    strategies_of,
)
from fencepost.protocol.types import TopicPartition

TOPICS = ["a", "b", "c"]
COUNTS = st.dictionaries(st.sampled_from(TOPICS), st.integers(0, 9))
NAMES = st.text("abcdefg", min_size=1, max_size=3)


@st.composite
def groups(draw: st.DrawFn, alike: bool = False) -> tuple[dict[str, Member], dict[str, int]]:
    """Members that say anything of what they had, also what cannot be."""
    counts = draw(COUNTS)
    places = [TopicPartition(topic, number) for topic in TOPICS for number in range(10)]
    members = {}
    for member in draw(st.lists(NAMES, min_size=1, max_size=6, unique=True)):
        topics = TOPICS if alike else draw(st.lists(st.sampled_from(TOPICS), unique=True))
        owned = draw(st.lists(st.sampled_from(places), unique=True, max_size=8))
        instance = draw(st.sampled_from([None, f"instance-{member}"]))
        members[member] = Member(topics, instance, owned, draw(st.integers(-1, 3)))
    return members, counts


def wanted(members: Mapping[str, Member], counts: Mapping[str, int]) -> list[TopicPartition]:
    topics = {topic for member in members.values() for topic in member.topics}
    return sorted(TopicPartition(topic, n) for topic in topics for n in range(counts.get(topic, 0)))


def given_out(shares: Shares) -> list[TopicPartition]:
    return sorted(at for partitions in shares.values() for at in partitions)


@given(groups())
@pytest.mark.parametrize("name", [RANGE, ROUND_ROBIN, STICKY])
def test_every_partition_goes_to_one_member_that_wants_it(
    name: str, group: tuple[dict[str, Member], dict[str, int]]
) -> None:
    members, counts = group
    shares = ASSIGNORS[name](members, counts)
    assert set(shares) == set(members)
    assert given_out(shares) == wanted(members, counts)
    assert all(at.topic in members[member].topics for member, found in shares.items() for at in found)


@given(groups(), st.randoms())
@pytest.mark.parametrize("name", ASSIGNORS)
def test_the_order_of_the_members_does_not_matter(
    name: str, group: tuple[dict[str, Member], dict[str, int]], chance: random.Random
) -> None:
    members, counts = group
    shuffled = list(members)
    chance.shuffle(shuffled)
    assert ASSIGNORS[name]({member: members[member] for member in shuffled}, counts) == ASSIGNORS[name](members, counts)


@given(groups())
def test_ranges_are_runs_in_the_order_of_the_members_and_the_first_get_one_more(
    group: tuple[dict[str, Member], dict[str, int]],
) -> None:
    members, counts = group
    shares = assign_ranges(members, counts)
    for topic, count in counts.items():
        subscribers = [member for member in in_order(members) if topic in members[member].topics]
        runs = [[at.partition for at in shares[member] if at.topic == topic] for member in subscribers]
        sizes = [len(run) for run in runs]
        assert not subscribers or [number for run in runs for number in run] == list(range(count))
        assert sizes == sorted(sizes, reverse=True)
        assert max(sizes, default=0) - min(sizes, default=0) <= 1


@given(groups(alike=True), st.integers(1, 9))
def test_topics_with_as_many_partitions_are_shared_out_alike_by_range(
    group: tuple[dict[str, Member], dict[str, int]], count: int
) -> None:
    members, _ = group
    for found in assign_ranges(members, dict.fromkeys(TOPICS, count)).values():
        by_topic = [{at.partition for at in found if at.topic == topic} for topic in TOPICS]
        assert by_topic[0] == by_topic[1] == by_topic[2]


@given(groups(alike=True))
@pytest.mark.parametrize("assign", [assign_round_robin, assign_sticky])
def test_members_that_want_the_same_have_as_many_or_one_more(
    assign: object, group: tuple[dict[str, Member], dict[str, int]]
) -> None:
    assert callable(assign)
    sizes = [len(found) for found in assign(*group).values()]
    assert max(sizes) - min(sizes) <= 1


@given(groups())
def test_nobody_has_two_more_than_somebody_who_could_have_one_of_them(
    group: tuple[dict[str, Member], dict[str, int]],
) -> None:
    members, counts = group
    shares = assign_sticky(members, counts)
    for found in shares.values():
        for poor, few in shares.items():
            if len(found) >= len(few) + 2:
                assert not any(at.topic in members[poor].topics for at in found)


@given(groups(alike=True), st.integers(0, 5))
def test_as_much_is_kept_as_fair_shares_allow(group: tuple[dict[str, Member], dict[str, int]], leaving: int) -> None:
    """From a generation to the next, with members gone and another one there."""
    members, counts = group
    before = assign_sticky(members, counts)
    stay = {member: Member(TOPICS, owned=before[member], generation=1) for member in sorted(members)[leaving:]}
    after = assign_sticky({**stay, "new": Member(TOPICS)}, counts)
    share, surplus = divmod(len(wanted({"any": Member(TOPICS)}, counts)), len(after))
    most = sorted((len(before[member]) for member in stay), reverse=True)
    could_stay = sum(min(had, share + (place < surplus)) for place, had in enumerate(most))
    assert sum(len({*before[member]} & {*after[member]}) for member in stay) == could_stay


@given(groups())
def test_what_is_fair_already_stays_as_it_is(group: tuple[dict[str, Member], dict[str, int]]) -> None:
    members, counts = group
    shares = assign_sticky(members, counts)
    again = {name: member._replace(owned=shares[name], generation=7) for name, member in members.items()}
    assert assign_sticky(again, counts) == assign_cooperatively(again, counts) == shares


def test_whoever_had_it_in_the_newest_generation_did() -> None:
    at = TopicPartition("a", 0)
    for first, second, keeps in ((1, 2, "second"), (2, 1, "first")):
        members = {"first": Member(["a"], None, [at], first), "second": Member(["a"], None, [at], second)}
        assert assign_sticky(members, {"a": 1})[keeps] == [at]


def test_where_two_had_it_in_one_generation_nobody_did() -> None:
    """It is shared out as what nobody has: to the first of those with least."""
    first, second = TopicPartition("a", 0), TopicPartition("a", 1)
    members = {name: Member(["a"], None, [first], 3) for name in ("one", "two")}
    assert assign_sticky(members, {"a": 2}) == {"one": [first], "two": [second]}
    members["one"] = members["one"]._replace(owned=[first, second])
    assert assign_sticky(members, {"a": 2}) == {"one": [second], "two": [first]}, "who had the other one keeps that"


@pytest.mark.parametrize("assign", [assign_ranges, assign_round_robin, assign_sticky])
def test_members_with_an_instance_id_come_first_by_that(assign: Assignor) -> None:
    """Their member ids are others after a restart, and so are those of members without."""
    members = {"1": Member(["a"], "z"), "2": Member(["a"], "y"), "0": Member(["a"]), "3": Member(["a"])}
    shares = assign(members, {"a": 4})
    assert {name: [at.partition for at in found] for name, found in shares.items()} == {
        "2": [0],
        "1": [1],
        "0": [2],
        "3": [3],
    }


@given(groups())
def test_nobody_is_given_what_somebody_else_still_has(group: tuple[dict[str, Member], dict[str, int]]) -> None:
    members, counts = group
    shares = assign_cooperatively(members, counts)
    for member, found in shares.items():
        others = {at for other, known in members.items() if other != member for at in known.owned}
        assert not others & set(found)


@given(groups())
def test_two_rounds_share_out_everything(group: tuple[dict[str, Member], dict[str, int]]) -> None:
    """In the first, members give up; in the second, others get it.  What stays is read on all the while."""
    members, counts = group
    first = assign_cooperatively(members, counts)
    again = {name: member._replace(owned=first[name], generation=9) for name, member in members.items()}
    second = assign_cooperatively(again, counts)
    assert given_out(second) == wanted(members, counts)
    assert all(set(first[member]) <= set(second[member]) for member in members)


def test_a_large_group_is_shared_out() -> None:
    members = {f"member-{n:03}": Member(["a"]) for n in range(200)}
    shares = assign_sticky(members, {"a": 5000})
    again = {name: Member(["a"], None, shares[name], 1) for name in list(members)[:150]}
    assert {len(found) for found in assign_sticky(again, {"a": 5000}).values()} == {33, 34}


def test_only_who_names_nothing_else_keeps_partitions_while_joining() -> None:
    assert is_cooperative([COOPERATIVE_STICKY])
    assert not any(is_cooperative(names) for names in ([RANGE], [COOPERATIVE_STICKY, RANGE], [STICKY]))


@pytest.mark.parametrize("names", ["", "fair", [], [RANGE, "fair"], [RANGE, STICKY, RANGE]])
def test_assignors_are_named_each_once(names: str | list[str]) -> None:
    with pytest.raises(ValueError, match=r"must be one or several of range, .*, each once"):
        strategies_of(names)
    assert strategies_of(RANGE) == (RANGE,)
    assert strategies_of([STICKY, RANGE]) == (STICKY, RANGE)


@pytest.mark.parametrize("names", [5, None, [RANGE, 5], [[RANGE]]])
def test_assignors_have_names(names: Any) -> None:
    with pytest.raises(TypeError, match=r"^partition_assignment_strategy=.*: it must be one or several of range, "):
        strategies_of(names)


class Compared(str):
    """A topic's name that counts how often such names are compared."""

    __slots__ = ()
    times = 0

    def __eq__(self, other: object) -> bool:
        Compared.times += 1
        return str.__eq__(self, other)

    __hash__ = str.__hash__


@pytest.mark.parametrize("assignor", ASSIGNORS.values(), ids=list(ASSIGNORS))
def test_work_grows_with_the_topics_and_not_with_their_square(assignor: Assignor) -> None:
    """A pattern may fit tens of thousands, and the leader's event loop stands still meanwhile."""
    names = [f"t{number:04}" for number in range(1000)]
    owned = [TopicPartition(name, 0) for name in names]
    members = {member: Member([Compared(name) for name in names], owned=owned, generation=1) for member in ("a", "b")}
    Compared.times = 0
    shares = assignor(members, {Compared(name): 1 for name in names})
    assert len(given_out(shares)) in (0, len(names)), "with cooperative-sticky it is given up first"
    assert Compared.times < 100 * len(names), "half of the square is 500 times as many"
