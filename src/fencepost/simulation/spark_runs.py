"""Applications write micro-batches while everything goes wrong; a history and the broken promises come out."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Mapping, Sequence
from typing import Final, NamedTuple

from fencepost.client import Admin, Consumer, Producer
from fencepost.client.cluster import Cluster
from fencepost.client.errors import ClientError
from fencepost.client.records import ConsumerRecord
from fencepost.protocol.types import TopicPartition
from fencepost.simulation.call_faults import Call, CallFault, FaultyCalls
from fencepost.simulation.crashes import finalize
from fencepost.simulation.loop import VirtualLoop, run
from fencepost.simulation.micro_batch_checkers import check
from fencepost.simulation.micro_batches import (
    PLACES,
    SOURCE,
    SOURCE_PARTITIONS,
    TARGETS,
    Ends,
    Seen,
    Shown,
    Told,
)
from fencepost.simulation.request_faults import RequestFault, RequestFaults
from fencepost.simulation.spark_tasks import Patience, TaskTrouble
from fencepost.simulation.spark_writes import Application, DriverTrouble, Trouble
from fencepost.simulation.world import ADDRESS, World
from fencepost.spark.progress import PARTITION, Progress, ensure_topic

#: Time-outs are looked for often, since much is late.
SETTINGS: Final[Mapping[str, object]] = {"transaction.abort.timed.out.transaction.cleanup.interval.ms": 100}
APPLICATIONS: Final = ("a", "b")
#: Batches that are to be committed when all faults have ended.
_CALM_BATCHES: Final = 2
#: Seconds of virtual time that they may take.
_PATIENCE: Final = 20
#: Seconds that a transaction may stay open: its time-out, and what it takes to end it.
_LONGEST: Final = 180


class SparkPlan(NamedTuple):
    """What happens in a run."""

    trouble: Trouble = Trouble()
    request_faults: Mapping[RequestFault, float] = {}
    apis: tuple[int, ...] | None = None
    call_faults: Mapping[CallFault, float] = {}
    crashes: float = 0
    """Of each incident, how likely the broker crashes."""
    changes: float = 0
    """How likely transaction.version is changed, to 1 or 2."""
    other_producers: float = 0
    """Seconds that a producer which is none of the applications keeps transactions open in the progress topic."""
    incidents: int = 12
    level: int = 2
    patience: Patience = Patience()
    abrupt: bool = False
    """Everybody is killed in the end, instead of coming to rest."""


class SparkReport(NamedTuple):
    """What came of a run."""

    history: list[str]
    faults: list[str]
    told: dict[str, Told]
    seen: Seen


def drawn(seed: int, level: int = 2, changes: float = 0) -> SparkPlan:
    """A plan in which some kinds of trouble come often and others not at all, by the seed."""
    chance = random.Random(f"{seed}/trouble")

    def often(most: float) -> float:
        return chance.choice((0, most / 4, most))

    drivers = DriverTrouble(
        kills=often(0.3),
        interruptions=often(0.3),
        stalls=often(0.2),
        successors=often(0.15),
        old_copies=often(0.15),
        intruders=often(0.1),
        commits=often(0.4),
        late_answers=often(0.3),
        reuse=often(1),
    )
    tasks = TaskTrouble(often(0.15), often(0.1), often(0.1), chance.choice((0, 0.5, 1)))
    return SparkPlan(
        trouble=Trouble(drivers, tasks),
        request_faults={fault: often(0.04) for fault in RequestFault},
        call_faults={
            fault: often(0.04) for fault in CallFault if fault is not CallFault.REPEATED or (level == 2 and not changes)
        },
        crashes=often(0.4),
        other_producers=often(2),
        level=level,
        patience=Patience(chance.choice((200, 400)), chance.choice((500, 3000)), chance.choice((300, 1500, 60_000))),
        changes=changes,
        abrupt=chance.random() < 0.3,
    )


def write_micro_batches(seed: int, plan: SparkPlan) -> SparkReport:
    """Run the applications; the same seed gives the same history."""

    async def main(loop: VirtualLoop) -> SparkReport:
        world = World(loop, seed, SETTINGS)
        if plan.call_faults:
            world.faulty_calls = FaultyCalls(world, plan.call_faults, tuple(Call))
        await world.start()
        await _make_topics(world, plan.level)
        request_faults = dict(plan.request_faults)
        world.network.request_faults = RequestFaults(world.chance("mishaps"), world.note, request_faults, plan.apis)
        told = {name: Told() for name in APPLICATIONS}
        applications = [Application(world, name, told[name], plan.trouble, plan.patience) for name in APPLICATIONS]
        keepers = [loop.create_task(application.keep()) for application in applications]
        if plan.other_producers:
            keepers.append(loop.create_task(_hold_transactions_open(world, plan.other_producers)))
        for _ in range(plan.incidents):
            await asyncio.sleep(world.random.expovariate(1 / 0.15))
            await _incident(world, plan)
        # What was sent before stays late.
        request_faults.clear()
        late: list[str] = []
        if plan.abrupt:
            world.note("everybody is killed")
        else:
            late = await _come_to_rest(world, applications, keepers)
        for keeper in keepers:
            keeper.cancel()
        for application in applications:
            application.stop()
        await asyncio.wait(keepers)
        await asyncio.sleep(0)
        seen = await _look(world)
        await world.stop()
        return SparkReport(world.history, late + check(told, seen), told, seen)

    return run(main)


async def _come_to_rest(
    world: World, applications: Sequence[Application], keepers: Sequence[asyncio.Task[None]]
) -> list[str]:
    """No more faults: batches are committed in bounded time."""
    world.note("no more faults")
    keepers = keepers[: len(applications)]
    for application in applications:
        application.calm_down(_CALM_BATCHES)
    await asyncio.wait(keepers, timeout=_PATIENCE)
    for keeper in keepers:
        if keeper.done():
            keeper.result()
    return [
        f"{application.name} has come no further than batch {application.newest} {_PATIENCE} s after the last fault"
        for application, keeper in zip(applications, keepers, strict=True)
        if not keeper.done()
    ]


async def _make_topics(world: World, level: int) -> None:
    async with Admin(ADDRESS, runtime=world.runtime("admin")) as admin:
        await admin.update_feature("transaction.version", level)
        await admin.create_topic(SOURCE, partitions=SOURCE_PARTITIONS)
        for topic, partitions in TARGETS.items():
            await admin.create_topic(topic, partitions=partitions)


async def _hold_transactions_open(world: World, seconds: float) -> None:
    """Write to the progress topic, for an application of another kind, and leave each transaction open for a while."""
    chance = world.chance("other")
    cluster = Cluster(ADDRESS, runtime=world.runtime("other"))
    await ensure_topic(cluster)
    while True:
        try:
            async with Producer(ADDRESS, transactional_id="other", runtime=world.runtime("other")) as producer:
                await producer.init_transactions()
                while True:
                    await producer.begin_transaction()
                    await producer.send(PARTITION.topic, b"{}", key=b"other", partition=PARTITION.partition)
                    await asyncio.sleep(chance.uniform(0, seconds))
                    await producer.commit_transaction()
        except ClientError as error:
            world.note(f"the other producer: {type(error).__name__}")


async def _incident(world: World, plan: SparkPlan) -> None:
    dice = world.random.random()
    if dice < plan.crashes:
        await world.crash()
    elif dice < plan.crashes + plan.changes:
        await finalize(world, world.random.choice((1, 2)))


# What is there in the end


async def _look(world: World) -> Seen:
    """Read everything, as read_committed shows it.  Raises AssertionError if a transaction hangs."""
    records = await _read_committed(world, [*PLACES, PARTITION])
    rows = {at: [Shown.decode(record.value or b"") for record in records[at]] for at in PLACES}
    progress = [
        ((each.key or b"").decode(), Progress.decode(each.value or b""))
        for each in records[PARTITION]
        if each.key != b"other"
    ]
    positions = {name: await _position(world, name) for name in APPLICATIONS}
    return Seen(rows, progress, positions)


async def _read_committed(
    world: World, partitions: Sequence[TopicPartition]
) -> dict[TopicPartition, list[ConsumerRecord]]:
    assert world.broker is not None
    storage = world.broker.node.storage
    await storage.wait_durable(storage.lsn)
    ends = {}
    for at in partitions:
        partition = storage.partition(*at)
        ends[at] = 0 if partition is None else partition.high_watermark
    there = [at for at, end in ends.items() if end]
    found: dict[TopicPartition, list[ConsumerRecord]] = {at: [] for at in partitions}
    async with Consumer(bootstrap_servers=ADDRESS, runtime=world.runtime("reader"), fetch_max_wait_ms=50) as consumer:
        consumer.assign(there)
        give_up = world.loop.time() + _LONGEST
        while there and (not consumer.assignment() or any(consumer.position(at) < ends[at] for at in there)):
            assert world.loop.time() < give_up, f"a transaction hangs: not read to {ends}"
            for record in await consumer.poll(100):
                found[TopicPartition(record.topic, record.partition)].append(record)
    return found


async def _position(world: World, group: str) -> Ends | None:
    partitions = [TopicPartition(SOURCE, number) for number in range(SOURCE_PARTITIONS)]
    async with Consumer(bootstrap_servers=ADDRESS, group_id=group, runtime=world.runtime(group)) as consumer:
        found = await consumer.committed(partitions)
    positions = [found[at] for at in partitions]
    return None if None in positions else tuple(position.offset for position in positions if position is not None)
