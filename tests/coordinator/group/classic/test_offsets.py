"""Who may commit the offsets of a classic group, and when they may be deleted."""

from __future__ import annotations

import pytest
from tests.coordinator.group.group_doubles import member

from fencepost.coordinator.group.classic.group import ClassicGroup, ClassicGroupState
from fencepost.coordinator.group.classic.offsets import (
    validate_offset_commit,
    validate_offset_delete,
    validate_transactional_offset_commit,
)
from fencepost.protocol.errors import ErrorCode
from fencepost.protocol.types import Epoch

EMPTY, PREPARING, COMPLETING, STABLE, DEAD = ClassicGroupState
NONE, ILLEGAL, UNKNOWN, FENCED, REBALANCE, AWAY = (
    ErrorCode.NONE,
    ErrorCode.ILLEGAL_GENERATION,
    ErrorCode.UNKNOWN_MEMBER_ID,
    ErrorCode.FENCED_INSTANCE_ID,
    ErrorCode.REBALANCE_IN_PROGRESS,
    ErrorCode.COORDINATOR_NOT_AVAILABLE,
)


def group(state: ClassicGroupState, protocol_type: str = "consumer") -> ClassicGroup:
    """Member "m"; static member "s" of the instance "i"."""
    made = ClassicGroup("g", state, Epoch(3), protocol_type)
    return (
        made
        if state in (EMPTY, DEAD)
        else made.with_members((member("m", "range"), member("s", "range", instance="i")))
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
def test_who_may_commit_to_a_group_with_members(who: str, state: ClassicGroupState) -> None:
    plain, transactional = COMMITS[who]
    if plain is NONE and state is COMPLETING:
        plain = REBALANCE  # unlike in a transaction, where the offset is taken along
    assert validate_offset_commit(group(state), *PEOPLE[who]) is plain
    assert validate_transactional_offset_commit(group(state), *PEOPLE[who]) is transactional


@pytest.mark.parametrize("who", PEOPLE)
def test_who_may_commit_to_an_empty_group(who: str) -> None:
    expected = NONE if PEOPLE[who][2] < 0 else UNKNOWN
    assert validate_offset_commit(group(EMPTY), *PEOPLE[who]) is expected
    assert validate_transactional_offset_commit(group(EMPTY), *PEOPLE[who]) is expected


@pytest.mark.parametrize("who", PEOPLE)
def test_nobody_commits_to_a_dead_group(who: str) -> None:
    assert validate_offset_commit(group(DEAD), *PEOPLE[who]) is AWAY
    assert validate_transactional_offset_commit(group(DEAD), *PEOPLE[who]) is AWAY


@pytest.mark.parametrize("state", [EMPTY, PREPARING, COMPLETING, STABLE])
@pytest.mark.parametrize("protocol_type", ["consumer", "connect"])
def test_offsets_are_deleted_where_nobody_may_rely_on_them(state: ClassicGroupState, protocol_type: str) -> None:
    """Of consumers' groups topic by topic: `is_subscribed` tells."""
    allowed = state is EMPTY or protocol_type == "consumer"
    assert validate_offset_delete(group(state, protocol_type)) is (NONE if allowed else ErrorCode.NON_EMPTY_GROUP)
