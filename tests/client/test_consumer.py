"""The consumer against the real broker, on virtual time."""

from __future__ import annotations

from tests.client.test_producer import simulate

from fencepost.client import Consumer, Producer, TopicPartition
from fencepost.simulation.world import ADDRESS, World

AT, EMPTY = TopicPartition("t", 0), TopicPartition("t", 1)


def test_offsets_for_times_are_of_the_first_record_that_is_not_older() -> None:
    async def scenario(world: World) -> None:
        async with Producer(ADDRESS, runtime=world.runtime("writer")) as writer:
            for timestamp in (1000, 3000, 2000, 5000):
                await (await writer.send("t", b"v", partition=0, timestamp=timestamp))
        async with Consumer(bootstrap_servers=ADDRESS, runtime=world.runtime("reader")) as reader:
            found = [(await reader.offsets_for_times({AT: time}))[AT] for time in (0, 1000, 1001, 2000, 3001, 5001)]
            assert found == [(0, 1000), (0, 1000), (1, 3000), (1, 3000), (3, 5000), None]
            assert await reader.offsets_for_times({AT: 3001, EMPTY: 0}) == {AT: (3, 5000), EMPTY: None}
            assert await reader.offsets_for_times({}) == {}

    simulate(scenario)
