"""Positions in topics that were deleted: forgotten by every group, or told to be tried again."""

from __future__ import annotations

import pytest
from tests.coordinator.group.group_doubles import A, FakeJournal, World

from fencepost.coordinator.group.offsets import CommittedOffset
from fencepost.coordinator.group.shards import GroupCoordinatorShard
from fencepost.protocol.errors import ErrorCode
from fencepost.protocol.types import NO_LEADER_EPOCH, Offset
from fencepost.runtime import at_once


@pytest.mark.parametrize("refused", [None, 0, 1, 2])
def test_a_topic_is_forgotten_if_every_group_could_forget_it(refused: int | None) -> None:
    """Else it is tried again: the next topic of its name would be read from where the groups stood in this one."""
    world, groups = World(), ("f", "g", "h")
    for name in groups:
        world.commit({A: 1}, name)
    forgetting = world.coordinator.forget_topics([A.topic])
    for number in range(len(groups)):
        world.journal.refuse = ErrorCode.KAFKA_STORAGE_ERROR if number == refused else None
        next(forgetting)
    with pytest.raises(StopIteration) as done:
        next(forgetting)
    assert done.value.value is (refused is None)
    found = [world.committed_offset(A, name) for name in groups]
    assert found == [1 if number == refused else None for number in range(len(groups))]


@pytest.mark.parametrize("refused", [None, 0, 1])
def test_a_topic_is_forgotten_if_it_could_be_in_every_partition_of_the_journal(refused: int | None) -> None:
    world, other = World(), FakeJournal()
    world.commit({A: 1})
    shard = world.coordinator._shards[1] = GroupCoordinatorShard(1, other, world)
    shard.offsets.put("h", A, CommittedOffset(Offset(1), NO_LEADER_EPOCH, "", world.clock.now()), Offset(0))
    for number, each in enumerate((world.journal, other)):
        each.refuse = ErrorCode.KAFKA_STORAGE_ERROR if number == refused else None
    assert at_once(world.coordinator.forget_topics([A.topic])) is (refused is None)
