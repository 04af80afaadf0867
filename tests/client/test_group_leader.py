"""What the leader of a group shares out."""

from __future__ import annotations

import asyncio

from tests.client.test_group import SHORT_SESSIONS, member, take
from tests.client.test_producer import simulate

from fencepost.client import Admin
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
