"""When a group and its offsets go; many groups are looked at a few in a step, by how many offsets they have."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.coordinator.group.group_doubles import World

from fencepost.coordinator.group.classic.group import ClassicGroup
from fencepost.coordinator.group.coordinator import CommitFor
from fencepost.coordinator.group.expiry import A_GROUP, LOOKED_AT, Expired, expired, portions
from fencepost.coordinator.group.offsets import CommittedOffset, Offsets
from fencepost.protocol.batch import read_header
from fencepost.protocol.errors import ErrorCode
from fencepost.protocol.steps import STEP, Pace
from fencepost.protocol.types import NO_LEADER_EPOCH, Milliseconds, Offset, ProducerId, TopicPartition

KEPT_MS = 1000
SINCE = Milliseconds(5000)
NEVER_USED = ClassicGroup("g", state_timestamp=SINCE)
AT = TopicPartition("t", 0)
DAY: Final = 24 * 3600 * 1000
ANY: Any = CommittedOffset(Offset(0), NO_LEADER_EPOCH, "", Milliseconds(0))


def places(count: int) -> list[TopicPartition]:
    return [TopicPartition("t", index) for index in range(count)]


@pytest.mark.parametrize(
    ("group", "kept_ms"),
    [
        (NEVER_USED, 0),
        (NEVER_USED.with_pending("m"), KEPT_MS),
        (NEVER_USED._replace(protocol_type="consumer"), KEPT_MS),
    ],
    ids=["never used", "an id was given out", "had members"],
)
def test_a_group_without_positions_goes_when_it_has_been_without_members_for_so_long(
    group: ClassicGroup, kept_ms: int
) -> None:
    for after in (0, 1, KEPT_MS - 1, KEPT_MS, KEPT_MS + 1):
        found = expired("g", group, Offsets(), Milliseconds(KEPT_MS), Milliseconds(SINCE + after))
        assert found == (Expired([], with_group=True) if after >= kept_ms else None)


@pytest.mark.parametrize("pending", [False, True])
def test_a_group_goes_with_its_last_position_unless_a_transaction_has_one_for_it(pending: bool) -> None:
    offsets, other = Offsets(), TopicPartition("t", 1)
    offsets.put("g", AT, CommittedOffset(Offset(1), NO_LEADER_EPOCH, "", SINCE), Offset(0))
    if pending:
        offsets.put_pending(
            ProducerId(1), "g", other, CommittedOffset(Offset(1), NO_LEADER_EPOCH, "", SINCE), Offset(1)
        )
    for after in (KEPT_MS - 1, KEPT_MS):
        found = expired("g", NEVER_USED, offsets, Milliseconds(KEPT_MS), Milliseconds(SINCE + after))
        assert found == (None if after < KEPT_MS else Expired([AT], with_group=not pending))


@given(st.lists(st.integers(0, 3000), max_size=60))
def test_each_group_is_looked_at_once_and_none_with_many_that_have_many_offsets(sizes: list[int]) -> None:
    offsets, groups = Offsets(), [f"g{number}" for number in range(len(sizes))]
    for group, size in zip(groups, sizes, strict=True):
        for number in range(size):
            offsets.put(group, TopicPartition("t", number), ANY, Offset(number))
    found = list(portions(groups, offsets))
    assert [group for portion in found for group in portion] == groups
    for portion in found:
        assert 0 < len(portion) <= LOOKED_AT // A_GROUP
        assert sum(offsets.count(group) for group in portion[:-1]) < LOOKED_AT
    fits = [LOOKED_AT - sum(A_GROUP + offsets.count(group) for group in portion) for portion in found]
    assert all(left <= 0 for left in fits[:-1]), "and none alone that fits in with others"


def test_no_step_of_expiry_removes_many_times_as_many_offsets_as_a_group_has() -> None:
    world = World(offsets_retention_ms=7 * DAY)
    each = 200
    for number in range(30):
        world.commit(dict.fromkeys(places(each), 1), f"g{number}")
    world.clock.at += 7 * DAY
    begun: Iterator[None] = iter(world.coordinator.tick(world.clock.now()))
    before = len(world.journal.batches)
    for _ in begun:
        removed = [read_header(batch).record_count for batch in world.journal.batches[before:]]
        assert sum(removed) <= LOOKED_AT + each
        before = len(world.journal.batches)
    assert not list(world.coordinator._shards[0].offsets.groups())


@given(st.sampled_from([1, 100]))
def test_a_group_that_is_deleted_costs_as_much_as_its_offsets_do(size: int) -> None:
    world, pace = World(), Pace()
    world.coordinator.commit_offsets(CommitFor("g", "", None, -1), dict.fromkeys(places(size), ANY))
    deleted = world.coordinator.delete_group("g", pace).answer
    assert deleted == ErrorCode.NONE
    assert size <= STEP - pace.left <= 10 * size
