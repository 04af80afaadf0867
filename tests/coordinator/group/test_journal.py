"""A committed offset is read as it was written, with all that was committed with it."""

from __future__ import annotations

import pytest
from tests.coordinator.group.group_doubles import A, FakeJournal, World

from fencepost.coordinator.group import journal
from fencepost.coordinator.group.classic.group import ClassicGroup, ClassicGroupState, Member
from fencepost.coordinator.group.offsets import CommittedOffset
from fencepost.coordinator.group.shards import GroupCoordinatorShard, restore, stored_form
from fencepost.protocol.batch import read_header
from fencepost.protocol.types import Epoch, LeaderEpoch, Milliseconds, Offset


@pytest.mark.parametrize("metadata", ["", "ü" * 9])
@pytest.mark.parametrize(("leader_epoch", "expires"), [(-1, -1), (0, -1), (7, -1), (-1, 0), (-1, 12_345)])
def test_nothing_of_it_is_lost(leader_epoch: LeaderEpoch, metadata: str, expires: Milliseconds) -> None:
    """The format has one of the two."""
    committed = CommittedOffset(Offset(2**40), leader_epoch, metadata, Milliseconds(1_000), expires)
    batch = journal.batch([journal.offset_commit_entry("g", A, committed, Milliseconds(1_000))])
    shard = GroupCoordinatorShard(0, FakeJournal(), World())
    shard.read(read_header(batch), batch)
    assert shard.offsets.committed("g", A) == committed


def test_a_member_is_restored_with_all_that_it_had() -> None:
    had = Member(
        member_id="m",
        group_instance_id="i",
        client_id="client",
        client_host="/host",
        session_timeout_ms=Milliseconds(7000),
        rebalance_timeout_ms=Milliseconds(90_000),
        protocols=(("range", b"subscription"),),
        assignment=b"assignment",
    )
    group = ClassicGroup(
        "g", ClassicGroupState.STABLE, generation_id=Epoch(3), protocol_type="consumer", protocol_name="range"
    )
    restored = restore("g", stored_form(group.with_members([had])._replace(leader_id="m")))
    assert restored.members == {"m": had}
    assert (restored.leader_id, restored.generation_id, restored.protocol_name) == ("m", 3, "range")
