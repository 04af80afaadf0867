"""Bugs of other brokers that only a power loss shows (facts §13.6), each under its number."""

from __future__ import annotations

import pytest

from fencepost.client import Admin, Consumer, Producer, TopicPartition
from fencepost.simulation.loop import VirtualLoop, run
from fencepost.simulation.world import ADDRESS, World

HALVES = [TopicPartition("first", 0), TopicPartition("second", 0)]


@pytest.mark.parametrize("level", [0, 1, 2])
@pytest.mark.parametrize("seed", range(8))
def test_redpanda_6018_the_first_half_of_a_transaction_survives_a_power_loss(
    seed: int, level: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It was acknowledged: it is there, and the transaction knows of it, or else only the second half is committed."""
    monkeypatch.setattr("fencepost.simulation.disk.SLOWEST_SYNC", 0.02)

    async def main(loop: VirtualLoop) -> list[bytes | None]:
        world = World(loop, seed)
        await world.start()
        async with Admin(ADDRESS, runtime=world.runtime("admin")) as admin:
            await admin.update_feature("transaction.version", level)
            for topic, _ in HALVES:
                await admin.create_topic(topic, partitions=1)
        async with Producer(ADDRESS, transactional_id="t", runtime=world.runtime("producer")) as producer:
            await producer.init_transactions()
            async with producer.transaction():
                for topic, _ in HALVES:
                    await (await producer.send(topic, topic.encode(), partition=0))
                    world.lose_power()
                    await world.start()
        found: list[bytes | None] = []
        async with Consumer(bootstrap_servers=ADDRESS, runtime=world.runtime("reader")) as consumer:
            consumer.assign(HALVES)
            while len(found) < 2 and loop.time() < 60:
                found += [record.value for record in await consumer.poll(100)]
        await world.stop()
        return sorted(found, key=str)

    assert run(main) == [b"first", b"second"]
