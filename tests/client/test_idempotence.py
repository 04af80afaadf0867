"""A producer without transactions that lost a batch: the next epoch, from sequence 0 (KIP-360)."""

from __future__ import annotations

import asyncio

import pytest
from tests.client.test_producer import shown, simulate

from fencepost.client import Producer
from fencepost.client.errors import ClientError
from fencepost.simulation.world import ADDRESS, World


def epochs(world: World) -> list[tuple[int, int]]:
    """What partition 0 knows of its producers: epoch and last sequence."""
    assert world.broker is not None
    partition = world.broker.node.storage.partition("t", 0)
    assert partition is not None
    return [(each.producer_epoch, each.last_sequence) for each in partition.active_producers()]


@pytest.mark.promise("360.idempotent-bump")
def test_what_follows_a_batch_that_was_given_up_has_the_next_epoch() -> None:
    async def scenario(world: World) -> None:
        runtime = world.runtime("idempotent")
        async with Producer(ADDRESS, runtime=runtime, delivery_timeout_ms=500) as writer:
            for value in (b"first", b"second"):
                await (await writer.send("t", value, partition=0))
            assert epochs(world) == [(0, 1)]
            lost = await writer.send("t", b"lost", partition=0)
            await asyncio.sleep(0.0005)  # it is on its way
            world.kill()
            with pytest.raises(ClientError):
                await lost
            await world.start()
            await (await writer.send("t", b"after", partition=0))
            assert epochs(world) == [(1, 0)]
        assert [value for value in await shown(world) if value != b"lost"] == [b"first", b"second", b"after"]

    simulate(scenario)
