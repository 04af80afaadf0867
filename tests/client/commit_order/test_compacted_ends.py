"""A consumer in commit order that comes back when compaction has removed the end of a transaction it had seen open."""

from __future__ import annotations

import asyncio
from typing import Any

from fencepost.client import Admin, Consumer, ConsumerRecord, Producer, TopicPartition
from fencepost.log.reading import Fetched
from fencepost.protocol.batch import headers
from fencepost.protocol.types import Isolation
from fencepost.simulation.loop import VirtualLoop, run
from fencepost.simulation.world import ADDRESS, World

AT = TopicPartition("t", 0)
HOURS = 3600
COMPACTED = {
    "cleanup.policy": "compact",
    "min.cleanable.dirty.ratio": "0",
    "max.compaction.lag.ms": "1000",
    "segment.ms": "1000",
    "delete.retention.ms": str(2 * HOURS * 1000),
}


async def compact(world: World) -> None:
    """Let as much time pass as markers are kept, with records that begin new segments."""
    async with Producer(ADDRESS, runtime=world.runtime(f"plain-{world.random.random()}")) as plain:
        for _ in range(3):
            await plain.send_and_wait("t", b"plain", key=b"plain")
            await asyncio.sleep(10)
    await asyncio.sleep(2.5 * HOURS)


def is_gone(world: World) -> bool:
    """Whether the log has nothing of transactions any more, markers neither."""
    assert world.storage is not None
    partition = world.storage.partition(*AT)
    assert partition is not None
    found = partition.read(partition.log_start_offset, 2**20, Isolation.READ_UNCOMMITTED)
    assert isinstance(found, Fetched)
    return not any(header.is_transactional and header.record_count for _, header in headers(found.records))


def test_what_was_kept_of_it_is_not_taken_for_part_of_the_next_one_of_its_producer() -> None:
    async def scenario(world: World) -> None:
        runtime = world.runtime("reader")
        async with (
            Producer(ADDRESS, transactional_id="id", runtime=world.runtime("writer")) as writer,
            Consumer(bootstrap_servers=ADDRESS, runtime=runtime, delivery="commit_order") as reader,
        ):
            reader.assign([AT])
            await writer.init_transactions()
            await writer.begin_transaction()
            await writer.send_and_wait("t", b"aborted", key=b"a")
            assert await reader.poll(1000) == []
            assert len(reader.open_transactions()) == 1
            reader.pause([AT])
            await asyncio.sleep(5)  # the marker is in a segment of its own
            await writer.abort_transaction()
            for _ in range(3):
                await compact(world)
            assert is_gone(world)
            async with writer.transaction():
                await writer.send_and_wait("t", b"committed", key=b"c")
            reader.resume([AT])
            found: list[ConsumerRecord] = []
            while b"committed" not in [record.value for record in found]:
                found += await reader.poll(1000)
            assert b"aborted" not in [record.value for record in found]

    async def main(loop: VirtualLoop) -> None:
        settings: dict[str, Any] = {"log.cleaner.backoff.ms": 600_000}
        world = World(loop, 7, settings)
        await world.start()
        async with Admin(ADDRESS, runtime=world.runtime("admin")) as admin:
            await admin.create_topic("t", partitions=1, config=COMPACTED)
        await scenario(world)
        await world.stop()

    run(main)
