"""Applications that write micro-batches by the Spark write protocol: their drivers, tasks, zombies and intruders."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Final, NamedTuple

from fencepost.client import Admin, Consumer, Producer
from fencepost.client.cluster import Cluster
from fencepost.client.errors import ClientError
from fencepost.client.records import ConsumerRecord
from fencepost.protocol.types import TopicPartition
from fencepost.simulation.checkers.micro_batches import check
from fencepost.simulation.micro_batches import (
    PLACES,
    SOURCE,
    SOURCE_PARTITIONS,
    TARGETS,
    DriverOutcomes,
    Ends,
    Seen,
    Shown,
)
from fencepost.simulation.processes import Process
from fencepost.simulation.spark_trouble import Patience
from fencepost.simulation.spark_writes import Application, Trouble
from fencepost.simulation.world import ADDRESS, World
from fencepost.spark.progress import PARTITION, Progress, ensure_topic

#: Batches that are to be committed when all faults have ended.
_CALM_BATCHES: Final = 2
#: Seconds of virtual time that they may take.
_PATIENCE: Final = 20
#: Seconds that a transaction may stay open: its time-out, and what it takes to end it.
_LONGEST: Final = 180


class ApplicationsPlan(NamedTuple):
    """The applications of a run, and what befalls their drivers and tasks."""

    names: tuple[str, ...] = ("a", "b")
    trouble: Trouble = Trouble()
    patience: Patience = Patience()
    other_producers: float = 0
    """Seconds that a producer which is none of the applications keeps transactions open in the progress topic."""
    ahead: tuple[str, ...] = ()
    """Applications whose tasks send rows ahead."""
    abrupt: bool = False
    """Everybody is killed in the end, instead of coming to rest."""


class Applications:
    """Applications that write to TARGETS (inhabitants.Inhabitants)."""

    def __init__(self, world: World, plan: ApplicationsPlan) -> None:
        self._world = world
        self._plan = plan
        self.outcomes = {name: DriverOutcomes() for name in plan.names}
        self.seen: Seen | None = None
        """What is in the log when all is over; None before."""
        self._applications = [
            Application(world, name, self.outcomes[name], plan.trouble, plan.patience, sends_ahead=name in plan.ahead)
            for name in plan.names
        ]
        self._is_calm = False
        self._keepers: list[asyncio.Future[None]] = []
        self._others: list[asyncio.Future[None]] = []

    async def prepare(self) -> None:
        async with Admin(ADDRESS, runtime=self._world.runtime("admin")) as admin:
            await admin.create_topic(SOURCE, partitions=SOURCE_PARTITIONS)
            for topic, partitions in TARGETS.items():
                await admin.create_topic(topic, partitions=partitions)

    def begin(self) -> None:
        loop = self._world.loop
        assert self._world.broker is not None
        cluster_id = self._world.broker.node.cluster_id
        self._keepers = [loop.create_task(application.keep(cluster_id)) for application in self._applications]
        if self._plan.other_producers:
            process = Process(self._world, "other")
            self._others.append(process.start(_hold_transactions_open(process, self._plan.other_producers)))

    def calm_down(self) -> None:
        if self._is_calm:
            return
        self._is_calm = True
        for application in self._applications:
            application.calm_down(_CALM_BATCHES)

    async def rest(self) -> list[str]:
        late: list[str] = []
        if self._plan.abrupt:
            self._world.note("everybody is killed")
        else:
            late = await self._get_on()
        everybody = [*self._keepers, *self._others]
        for each in everybody:
            each.cancel()
        for application in self._applications:
            application.stop()
        await asyncio.wait(everybody)
        await asyncio.sleep(0)
        return late

    async def _get_on(self) -> list[str]:
        """The applications that do not commit some batches more in bounded time, in sentences."""
        self.calm_down()
        await asyncio.wait(self._keepers, timeout=_PATIENCE)
        for keeper in self._keepers:
            if keeper.done():
                keeper.result()
        return [
            f"{application.name} has come no further than batch {application.newest} {_PATIENCE} s after the last fault"
            for application, keeper in zip(self._applications, self._keepers, strict=True)
            if not keeper.done()
        ]

    async def judge(self) -> list[str]:
        self.seen = await look(self._world, self._plan.names)
        return check(self.outcomes, self.seen)


async def _hold_transactions_open(process: Process, seconds: float) -> None:
    """Write to the progress topic, for an application of another kind, and leave each transaction open for a while."""
    world = process.world
    chance = world.chance("other")
    cluster = Cluster(ADDRESS, runtime=process.runtime())
    await ensure_topic(cluster)
    while True:
        try:
            async with Producer(ADDRESS, transactional_id="other", runtime=process.runtime()) as producer:
                await producer.init_transactions()
                while True:
                    await producer.begin_transaction()
                    await producer.send(PARTITION.topic, b"{}", key=b"other", partition=PARTITION.partition)
                    await asyncio.sleep(chance.uniform(0, seconds))
                    await producer.commit_transaction()
        except ClientError as error:
            world.note(f"the other producer: {type(error).__name__}")


# What is there in the end


async def look(world: World, names: Sequence[str]) -> Seen:
    """The content of these applications' topics, by read_committed.  Raises AssertionError if a transaction hangs."""
    records = await _read_committed(world, [*PLACES, PARTITION])
    rows = {at: [Shown.decode(record.value or b"") for record in records[at]] for at in PLACES}
    progress = [
        ((each.key or b"").decode(), Progress.decode(each.value or b""))
        for each in records[PARTITION]
        if each.key != b"other"
    ]
    positions = {name: await _position(world, name) for name in names}
    return Seen(rows, progress, positions)


async def _read_committed(
    world: World, partitions: Sequence[TopicPartition]
) -> dict[TopicPartition, list[ConsumerRecord]]:
    assert world.broker is not None
    storage = world.broker.node.storage
    await storage.durability.wait(storage.lsn)
    ends = {}
    for at in partitions:
        partition = storage.partition(*at)
        ends[at] = 0 if partition is None else partition.high_watermark
    there = [at for at, end in ends.items() if end]
    found: dict[TopicPartition, list[ConsumerRecord]] = {at: [] for at in partitions}
    async with Consumer(bootstrap_servers=ADDRESS, runtime=world.runtime("reader"), fetch_max_wait_ms=50) as consumer:
        consumer.assign(there)
        give_up = world.loop.time() + _LONGEST
        while there and (not consumer.next_offsets() or any(consumer.position(at) < ends[at] for at in there)):
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
