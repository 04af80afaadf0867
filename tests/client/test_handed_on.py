"""What a rebalance hands on: positions that are committed, and all partitions that there are by then."""

from __future__ import annotations

import asyncio
from typing import Any

from tests.client.test_group import SHORT_SESSIONS, member, take, write
from tests.client.test_producer import simulate

from fencepost.client import Admin, Consumer
from fencepost.client.assignors import COOPERATIVE_STICKY
from fencepost.simulation.world import ADDRESS, World

COOPERATIVE: dict[str, Any] = {"partition_assignment_strategy": COOPERATIVE_STICKY}


def test_what_was_read_on_through_a_rebalance_is_committed_before_it_goes_to_another_member() -> None:
    """By whoever commits by itself, however long ago it did that last."""

    async def scenario(world: World) -> None:
        found: list[bytes] = []
        how = {"auto_commit": True, "auto_commit_interval_ms": 600_000, **COOPERATIVE}

        async def poll(*readers: Consumer) -> None:
            for records in await asyncio.gather(*(reader.poll(100) for reader in readers)):
                found.extend(record.value or b"" for record in records)

        async with Admin(ADDRESS, runtime=world.runtime("admin")) as admin:
            await admin.create_partitions("t", 3)
        async with (
            member(world, "1", **how) as one,
            member(world, "2", **how) as two,
            member(world, "3", **how) as third,
        ):
            while len(one.assignment()) + len(two.assignment()) < 3:
                await poll(one, two)
            first, slow = sorted([one, two], key=lambda reader: -len(reader.assignment()))
            await poll(first, slow)
            joining = asyncio.ensure_future(third.poll(100))
            for number in range(10):  # it waits for the slow one
                await poll(first)
                for at in first.assignment():
                    await write(world, [b"%d-%d" % (at.partition, number)], partition=at.partition)
            assert len(first.assignment()) == 2
            assert len(found) >= 10, "it is read on"
            await joining
            while not third.assignment():
                await poll(first, slow, third)
            for _ in range(5):
                await poll(first, slow, third)
        assert len(found) == 20
        assert len(set(found)) == 20, "nobody else was given it again"

    simulate(scenario, **SHORT_SESSIONS)


def test_whoever_leads_shares_out_the_partitions_that_there_are_by_now() -> None:
    async def scenario(world: World) -> None:
        await write(world, [b"0"])
        how = {"metadata_max_age_ms": 3_600_000}
        async with member(world, "first", **how) as first, member(world, "second", **how) as second:
            await take(first, 1)
            async with Admin(ADDRESS, runtime=world.runtime("admin")) as admin:
                await admin.create_partitions("t", 3)
            while not second.assignment():
                await asyncio.gather(first.poll(100), second.poll(100))
            shares = sorted(first.assignment() + second.assignment())
            assert [at.partition for at in shares] == [0, 1, 2]

    simulate(scenario, **SHORT_SESSIONS)
