"""The admin client against the real broker, on virtual time."""

from __future__ import annotations

import asyncio

from tests.client.test_producer import producer, simulate

from fencepost.client import Admin
from fencepost.simulation.world import ADDRESS, World


def test_a_transaction_is_described_with_the_time_when_it_began() -> None:
    async def scenario(world: World) -> None:
        assert world.broker is not None
        clock = world.broker.node.clock
        async with Admin(ADDRESS, runtime=world.runtime("looking")) as admin, producer(world) as writer:
            assert await admin.describe_transaction("id") is None
            await writer.init_transactions()
            described = await admin.describe_transaction("id")
            assert described is not None
            assert (described.state, described.start_time_ms, described.timeout_ms) == ("Empty", -1, 1000)
            async with writer.transaction():
                await asyncio.sleep(0.1)
                before = clock.now()
                await (await writer.send("t", b"v", partition=0))
                after = clock.now()
                await asyncio.sleep(0.1)
                opened = await admin.describe_transaction("id")
                assert opened is not None and opened.state == "Ongoing"
                assert before <= opened.start_time_ms <= after
            ended = await admin.describe_transaction("id")
            assert ended is not None
            assert (ended.state, ended.start_time_ms) == ("CompleteCommit", opened.start_time_ms)

    simulate(scenario)
