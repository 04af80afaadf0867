"""A committed offset is read as it was written, with all that was committed with it."""

from __future__ import annotations

import pytest
from tests.coordinator.group.group_doubles import A, FakeJournal, World

from fencepost.coordinator.group import journal
from fencepost.coordinator.group.offsets import CommittedOffset
from fencepost.coordinator.group.shards import GroupCoordinatorShard
from fencepost.protocol.batch import read_header
from fencepost.protocol.types import LeaderEpoch, Milliseconds, Offset


@pytest.mark.parametrize("metadata", ["", "ü" * 9])
@pytest.mark.parametrize(("leader_epoch", "expires"), [(-1, -1), (0, -1), (7, -1), (-1, 0), (-1, 12_345)])
def test_nothing_of_it_is_lost(leader_epoch: LeaderEpoch, metadata: str, expires: Milliseconds) -> None:
    """The format has one of the two."""
    committed = CommittedOffset(Offset(2**40), leader_epoch, metadata, Milliseconds(1_000), expires)
    batch = journal.batch([journal.offset_commit_entry("g", A, committed, Milliseconds(1_000))])
    shard = GroupCoordinatorShard(0, FakeJournal(), World())
    shard.read(read_header(batch), batch)
    assert shard.offsets.committed("g", A) == committed
