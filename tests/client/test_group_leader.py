"""What the leader of a group shares out."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any

import pytest
from tests.client.test_group import QUICK, SHORT_SESSIONS, member, take, write
from tests.client.test_producer import simulate

from fencepost.client import Admin
from fencepost.client.errors import TimedOutError
from fencepost.client.group_leader import GroupLeader
from fencepost.simulation.loop import VirtualLoop, run
from fencepost.simulation.world import ADDRESS, World


def test_who_shares_out_counts_partitions_anew() -> None:
    """What it knew of the topic may be of minutes ago: there would be another rebalance at once."""

    async def scenario(world: World) -> None:
        known_for_long = {"metadata_max_age_ms": 1_000_000}
        async with member(world, "first", **known_for_long) as first:
            await take(first, 1, 1)
            async with Admin(ADDRESS, runtime=world.runtime("admin-2")) as admin:
                await admin.create_partitions("t", 4)
            async with member(world, "second", **known_for_long) as second:
                await asyncio.gather(take(first, 1, 2), take(second, 1, 2))
                assert sorted(at.partition for each in (first, second) for at in each.assignment()) == [0, 1, 2, 3]
                assert second.group_metadata().generation_id == 2

    simulate(scenario, **SHORT_SESSIONS)


def test_nobody_shares_out_for_longer_than_max_block_ms_where_no_broker_is_reached(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The time of a rebalance is for the other members, and all of them have joined."""
    share_out = GroupLeader.share_out

    async def scenario(world: World) -> None:
        async def left_alone(leader: GroupLeader, *given: Any) -> Any:
            world.kill()
            return await share_out(leader, *given)

        await write(world, [b"0"])
        async with member(world, "first") as first:
            monkeypatch.setattr(GroupLeader, "share_out", left_alone)
            begun = world.loop.time()
            with pytest.raises(TimedOutError, match=r"joining group 'g' did not succeed within 1000 ms; last: "):
                await first.poll(60_000)
            assert world.loop.time() - begun < 2 * QUICK["max_block_ms"] / 1000
            monkeypatch.undo()
            await world.start()
            assert len(await take(first, 1)) == 1

    simulate(scenario, **SHORT_SESSIONS)


def test_who_does_not_lead_any_more_shares_nothing_out() -> None:
    """However many partitions there are now: that is for whoever leads."""

    async def main(_: VirtualLoop) -> None:
        nobody: Any = None
        leader = GroupLeader(nobody)
        leader.counted = {"t": 2}
        more: Any = {"t": SimpleNamespace(partition_count=3)}
        assert leader.has_changed(more)
        joined = SimpleNamespace(leader="another", member_id="me")
        assert await leader.share_out(joined, nobody, create=False) == []
        assert not leader.has_changed(more)

    run(main)
