"""Readers that note what they were shown, and what they find out when everybody has come to rest."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Final

from fencepost.client import Admin, Consumer, TopicPartition
from fencepost.client.errors import ClientError
from fencepost.simulation.sights import Sights
from fencepost.simulation.surroundings import ClientProcess, Surroundings
from fencepost.simulation.taking import take

COMMITTED: Final = "read_committed"
UNCOMMITTED: Final = "read_uncommitted"

#: What a reader was shown of each partition, in its order.
Part = dict[TopicPartition, list[str]]

_ENDED: Final = ("Empty", "CompleteCommit", "CompleteAbort")


async def read_positions(world: Surroundings, names: Sequence[str]) -> dict[str, int]:
    """The committed offset of each producer's group; those without one are left out."""
    found, cluster = {}, world.cluster
    for name in names:
        runtime, group = world.runtime(f"group-{name}"), cluster.name_of(name)
        async with Consumer(bootstrap_servers=cluster.address, group_id=group, runtime=runtime) as consumer:
            position = (await consumer.committed([cluster.position]))[cluster.position]
            if position is not None:
                found[name] = position.offset
    return found


async def unfinished(world: Surroundings) -> list[str]:
    """Transactions that do not end in bounded time, by their time-outs or by what was decided, in sentences."""
    give_up, cluster = world.loop.time() + world.patience, world.cluster
    async with Admin(cluster.address, runtime=world.runtime("auditor")) as admin:
        while True:
            states = sorted((await admin.list_transactions()).items())
            ours = [each for each in states if each[0].startswith(cluster.prefix)]
            left = [f"{name} stays {state}" for name, state in ours if state not in _ENDED]
            if not left or world.loop.time() > give_up:
                return left
            await asyncio.sleep(1)


async def read_all(world: Surroundings, isolation: str = COMMITTED, sights: Sights | None = None) -> Part:
    """All records that a consumer is shown, from the start to the end of every partition.

    The last producers may have died with a transaction open, so there must be time for its time-out.  `sights`: takes
    note of all that is shown.  Raises AssertionError if it does not get to the end: a transaction hangs.
    """
    cluster, runtime = world.cluster, world.runtime("reader")
    shown: Part = {at: [] for at in cluster.places}
    ends = await world.ends()
    async with Consumer(
        bootstrap_servers=cluster.address, isolation_level=isolation, runtime=runtime, fetch_max_wait_ms=50
    ) as consumer:
        consumer.assign(cluster.places)
        give_up = world.loop.time() + world.patience
        while not consumer.next_offsets() or any(consumer.position(at) < end for at, end in ends.items()):
            assert world.loop.time() < give_up, f"a transaction hangs: not read to {ends}"
            for record in await consumer.poll(100):
                value, at = (record.value or b"").decode(), TopicPartition(record.topic, record.partition)
                shown[at].append(value)
                if sights is not None:
                    sights.note(record, at)
                world.note(f"read {record.topic}-{record.partition} {record.offset} {value}")
    return shown


async def read_meanwhile(
    process: ClientProcess,
    passes: list[Part],
    stop: asyncio.Event,
    impatience_ms: int,
    sights: Sights,
    isolation: str = COMMITTED,
    *,
    batches: bool = False,
) -> None:
    """Read from the start again and again while everything goes on; `passes` gets what each consumer was shown.

    `batches`: they take what was fetched of one partition at once.
    """
    world, name = process.world, process.name
    partitions = world.cluster.places
    chance = world.chance(name)
    while not stop.is_set():
        shown: Part = {at: [] for at in partitions}
        runtime = process.runtime(f"{name}-{len(passes)}")
        passes.append(shown)
        until = world.loop.time() + chance.uniform(0.05, 1)
        try:
            async with Consumer(
                bootstrap_servers=world.cluster.address,
                isolation_level=isolation,
                runtime=runtime,
                fetch_max_wait_ms=20,
                request_timeout_ms=impatience_ms,
            ) as consumer:
                consumer.assign(partitions)
                while world.loop.time() < until and not stop.is_set():
                    for record in (await take(consumer, 20, batches=batches)).records:
                        at = TopicPartition(record.topic, record.partition)
                        shown[at].append((record.value or b"").decode())
                        sights.note(record, at)
        except ClientError as error:
            world.note(f"{name} begins anew: {type(error).__name__}")
