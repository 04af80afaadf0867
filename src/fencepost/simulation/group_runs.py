"""Consumer groups, readers and transactional loops in one world while clients, requests and the broker go wrong.

A history and the broken promises come out.
"""

from __future__ import annotations

import asyncio
import math
from collections.abc import Mapping
from typing import Any, Final, NamedTuple

from fencepost.client import Admin, Producer, TopicPartition
from fencepost.client.cluster import Cluster
from fencepost.client.errors import ClientError
from fencepost.protocol.messages import DeleteRecordsRequest
from fencepost.protocol.messages.delete_records import DeleteRecordsPartition, DeleteRecordsTopic
from fencepost.simulation import group_checkers as checkers
from fencepost.simulation.checkers import check
from fencepost.simulation.consume_transform_produce import OUTPUT, OUTPUT_PARTITIONS, Transformer
from fencepost.simulation.group_load import REBORN, Group, Scene, read, sit
from fencepost.simulation.group_notes import GroupNotes, Truth, read_truth
from fencepost.simulation.loop import VirtualLoop, run
from fencepost.simulation.processes import Process, ProcessLoop
from fencepost.simulation.request_faults import LATEST, RequestFault, RequestFaults
from fencepost.simulation.workload import TOPICS, Load, Outcomes, produce
from fencepost.simulation.world import ADDRESS, World

GROWN: Final = "grown"
"""The topic that gets more partitions."""
MOST_PARTITIONS: Final = 4
SETTINGS: Final[Mapping[str, object]] = {
    "transaction.abort.timed.out.transaction.cleanup.interval.ms": 100,
    "group.min.session.timeout.ms": 100,
    "offsets.retention.minutes": 1,
    "offsets.retention.check.interval.ms": 1000,
}
READERS: Final = {"committed": True, "uncommitted": False}
LEDGER: Final = Group("ledger", (*TOPICS, GROWN, REBORN), changing=True)
AUDIT: Final = Group("audit", (*TOPICS, GROWN), seats=2, auto_commit=True, static=True, haunted=True)
TRANSFORMERS: Final = Group("transformers", tuple(TOPICS), seats=3, haunted=True)
LOAD: Final = Load(
    takeovers=0.05, transaction_timeout_ms=1500, request_timeout_ms=400, delivery_timeout_ms=700, pause=0.05
)
_SETTLING: Final = 4.0
"""Seconds until what goes on from before is over: sessions of the dead, requests that are late, rebalances."""
_PATIENCE: Final = 10.0
"""Seconds in which everybody arrives, once nothing goes wrong any more."""


class GroupPlan(NamedTuple):
    """What happens in a run."""

    request_faults: Mapping[RequestFault, float] = {}
    apis: tuple[int, ...] | None = None
    crashes: float = 0
    """Of each incident, how likely the broker crashes."""
    topics_change: float = 0
    """How likely a topic gets partitions, is made anew, or loses its first records."""
    incidents: int = 15
    level: int = 2
    groups: tuple[Group, ...] = (LEDGER, AUDIT)
    transformers: tuple[Group, ...] = (TRANSFORMERS,)


class GroupReport(NamedTuple):
    """What came of a run."""

    history: list[str]
    faults: list[str]
    notes: GroupNotes
    truth: Truth


class _Run:
    """One run: who is in it, and what has become of the topics."""

    def __init__(self, world: World, plan: GroupPlan) -> None:
        self.world = world
        self.plan = plan
        self.notes = GroupNotes()
        groups = [group for group in (*plan.groups, *plan.transformers) if world.random.random() < 0.5]
        vacant = [f"{group.name}-{group.seats - 1}" for group in groups]
        self.scene = Scene(world, self.notes, asyncio.Event(), asyncio.Event(), vacant)
        self.outcomes = Outcomes()
        self.partitions = {GROWN: 1, REBORN: 1}
        self.lives = 1
        self.sent = 0
        """To the topic that is made anew, at least."""
        self.between_lives = asyncio.Lock()
        self.settled = math.inf
        """When everything had been calm for a while."""
        self.is_over = math.inf
        self.stop = asyncio.Event()
        self.acknowledged: list[tuple[str, int, str]] = []

    async def make_topics(self) -> None:
        async with Admin(ADDRESS, runtime=self.world.runtime("admin")) as admin:
            await admin.update_feature("transaction.version", self.plan.level)
            for topic, partitions in (*TOPICS.items(), *self.partitions.items(), (OUTPUT, OUTPUT_PARTITIONS)):
                await admin.create_topic(topic, partitions=partitions)

    # Records for the topics that change

    async def feed(self, topic: str) -> None:
        """Without transactions, to every partition that there is."""
        chance = self.world.chance(f"feed-{topic}")
        number = 0
        while not self.stop.is_set():
            known = (self.partitions[topic], self.lives)
            runtime = self.world.runtime(f"feed-{topic}-{number}")
            options: dict[str, Any] = {"request_timeout_ms": 400, "delivery_timeout_ms": 700, "max_block_ms": 2000}
            async with Producer(ADDRESS, runtime=runtime, **options) as producer:
                while not self.stop.is_set() and known == (self.partitions[topic], self.lives):
                    await asyncio.sleep(chance.expovariate(1 / 0.05))
                    number += 1
                    partition = chance.randrange(known[0])
                    try:
                        await self.send(producer, topic, partition, number)
                    except ClientError as error:
                        self.world.note(f"the feeder of {topic} begins anew: {error}")
                        break

    async def send(self, producer: Producer, topic: str, partition: int, number: int) -> None:
        if topic == REBORN:
            async with self.between_lives:
                value = f"{topic}.{self.lives}-{partition}-{number}"
                try:
                    await (await producer.send(topic, value.encode(), partition=partition))
                    self.sent += 1
                except ClientError:
                    await asyncio.sleep(2 * LATEST)  # it may come yet, and must not come in another life
                    raise
        else:
            value = f"{topic}-{partition}-{number}"
            await (await producer.send(topic, value.encode(), partition=partition))
            self.acknowledged.append((topic, partition, value))

    async def send_last_ones(self) -> None:
        """When nothing goes wrong any more: one to each partition, so that every group has a position to store."""
        async with Producer(ADDRESS, runtime=self.world.runtime("last")) as producer:
            for topic, count in {**TOPICS, **self.partitions}.items():
                for partition in range(count):
                    await self.send(producer, topic, partition, 0)

    # What happens

    async def incident(self) -> None:
        chance, plan = self.world.random, self.plan
        dice = chance.random()
        if dice < plan.crashes:
            (self.world.lose_power if chance.random() < 0.5 else self.world.kill)()
            await asyncio.sleep(chance.uniform(0, 0.3))
            await self.world.start()
        elif dice < plan.crashes + plan.topics_change:
            await chance.choice([self._grow, self._bear_again, self._delete_records])()

    async def _grow(self) -> None:
        if self.partitions[GROWN] < MOST_PARTITIONS:
            async with self._admin() as admin:
                await admin.create_partitions(GROWN, self.partitions[GROWN] + 1)
            self.partitions[GROWN] += 1
            self.world.note(f"{GROWN} has {self.partitions[GROWN]} partitions")

    async def _bear_again(self) -> None:
        async with self.between_lives, self._admin() as admin:
            await admin.delete_topic(REBORN)
            await admin.create_topic(REBORN, partitions=1, exist_ok=True)
            self.lives += 1
            await self._catch_up()
        self.world.note(f"{REBORN} lives its life {self.lives}")

    async def _catch_up(self) -> None:
        """At once as many records as it had: the old positions are inside of it."""
        async with Producer(
            ADDRESS, runtime=Process(self.world, f"again-{self.lives}", spared=True).runtime()
        ) as writer:
            for number in range(self.sent):
                await writer.send(REBORN, f"{REBORN}.{self.lives}-0-again{number}".encode(), partition=0)
            self.sent += 5

    def _admin(self) -> Admin:
        """Its requests arrive once: a deletion that came late would be one of the next life."""
        return Admin(ADDRESS, runtime=Process(self.world, f"admin-{self.scene.now}", spared=True).runtime())

    async def _delete_records(self) -> None:
        topic = self.world.random.choice(list(TOPICS))
        cluster = Cluster(ADDRESS, runtime=self.world.runtime(f"delete-{self.scene.now}"))
        partition = self.world.random.randrange(TOPICS[topic])
        assert self.world.storage is not None
        log = self.world.storage.partition(topic, partition)
        assert log is not None
        before = self.world.random.randint(log.log_start_offset, log.high_watermark)
        wanted = [DeleteRecordsPartition(partition_index=partition, offset=before)]
        request = DeleteRecordsRequest(topics=[DeleteRecordsTopic(name=topic, partitions=wanted)], timeout_ms=1000)
        await cluster.call_controller(request, deadline=cluster.deadline("deleting records"))
        await cluster.close()
        self.world.note(f"{topic}-{partition} begins at {before}")

    # The end

    def truth(self) -> Truth:
        """With the topic that was made anew by the name that its records say."""
        assert self.world.storage is not None
        found = read_truth(self.world.storage, (*TOPICS, *self.partitions, OUTPUT))

        def named(at: TopicPartition) -> TopicPartition:
            return at._replace(topic=f"{REBORN}.{self.lives}") if at.topic == REBORN else at

        return Truth(
            {named(at): records for at, records in found.records.items()},
            {named(at): start for at, start in found.starts.items()},
            {named(at): end for at, end in found.ends.items()},
        )

    def left(self, truth: Truth) -> list[str]:
        """What somebody still has to be shown, or to write."""
        topics = {
            group.name: [f"{REBORN}.{self.lives}" if topic == REBORN else topic for topic in group.topics]
            for group in (*self.plan.groups, *self.plan.transformers)
        }
        faults = checkers.missed(self.notes, truth, topics)
        read_by_readers = truth._replace(
            records={at: found for at, found in truth.records.items() if at.topic in (*TOPICS, GROWN)}
        )
        faults += checkers.unread(self.notes, read_by_readers, READERS)
        if self.plan.transformers:
            faults += [fault for fault in checkers.transformed(truth, tuple(TOPICS), OUTPUT) if "has 0" in fault]
        return faults

    def positions(self, group: str, topics: Mapping[str, int]) -> dict[TopicPartition, int | None]:
        assert self.world.broker is not None
        places = [TopicPartition(topic, n) for topic, count in topics.items() for n in range(count)]
        found = self.world.broker.node.groups.fetch_offsets(group, places, require_stable=False)
        assert isinstance(found, dict)
        return {at: getattr(position, "offset", None) for at, position in found.items()}

    def judge(self) -> list[str]:
        truth, notes = self.truth(), self.notes
        in_place = [each for each in notes.processed if each.at in truth.starts]
        shown = {at: [record.value for record in truth.committed(at)] for at in truth.records if at.topic in TOPICS}
        left = [f"{fault}, in {_PATIENCE:.0f} s" for fault in self.left(truth)]
        faults = [*left, *notes.late, *notes.surprises, *self.outcomes.surprises, *checkers.shared(notes)]
        faults += [
            fault
            for fault in check(self.outcomes, shown)
            if not any(start for at, start in truth.starts.items() if at.topic in TOPICS)
            and "last" not in fault
            and "never sent" not in fault
        ]
        for checker in (
            checkers.not_owned,
            checkers.outdated,
            checkers.went_back,
            checkers.replaced,
            checkers.reads_out_of_order,
        ):
            faults += checker(notes)
        faults += checkers.restless([each for each in notes.owned if each.time <= self.is_over], self.settled)
        if not self.plan.request_faults:  # a commit that is late may come after the next one
            faults += checkers.forgotten(notes)
        faults += checkers.out_of_order(in_place, notes.moved) + checkers.ahead(notes, truth)
        faults += checkers.unreal(notes, truth, READERS)
        faults += [
            f"{value}, which was acknowledged, is lost"
            for topic, n, value in self.acknowledged
            if value not in [record.value for record in truth.committed(TopicPartition(topic, n))]
        ]
        if self.plan.transformers:
            faults += checkers.transformed(truth, tuple(TOPICS), OUTPUT)
            faults += checkers.transformed_out_of_order(truth, OUTPUT)
        for group in (*self.plan.groups, *self.plan.transformers):
            if not group.auto_commit:
                places = {topic: {**TOPICS, **self.partitions}[topic] for topic in group.topics if topic != REBORN}
                faults += checkers.misplaced(truth, self.positions(group.name, places), group.name)
        return faults


def join_in(seed: int, plan: GroupPlan) -> GroupReport:
    """Run it; the same seed gives the same history."""

    async def main(loop: VirtualLoop) -> GroupReport:
        world = World(loop, seed, SETTINGS)
        await world.start()
        this = _Run(world, plan)
        await this.make_topics()
        if plan.request_faults:
            chance = world.chance("mishaps")
            world.network.request_faults = RequestFaults(chance, world.note, plan.request_faults, plan.apis)
        producers = [
            loop.create_task(produce(world, f"producer-{n}", this.outcomes, this.stop, LOAD)) for n in range(2)
        ]
        producers += [loop.create_task(this.feed(topic)) for topic in this.partitions]
        members = [loop.create_task(sit(this.scene, group, n)) for group in plan.groups for n in range(group.seats)]
        members += [
            loop.create_task(sit(this.scene, group, n, Transformer))
            for group in plan.transformers
            for n in range(group.seats)
        ]
        members += [loop.create_task(read(this.scene, name, (*TOPICS, GROWN), f"read_{name}")) for name in READERS]
        for _ in range(plan.incidents):
            await asyncio.sleep(world.random.expovariate(1 / 0.5))
            await this.incident()
        this.stop.set()
        await asyncio.gather(*producers)
        world.network.request_faults = None
        world.network.break_connections(9092)
        this.scene.calm.set()
        await asyncio.sleep(_SETTLING)
        this.settled = loop.time()
        await this.send_last_ones()
        give_up = loop.time() + _PATIENCE
        while this.left(this.truth()) and loop.time() < give_up:  # noqa: ASYNC110
            await asyncio.sleep(0.3)
        await asyncio.sleep(1)
        this.is_over = loop.time()
        this.scene.over.set()
        await asyncio.gather(*members)
        assert world.storage is not None
        await world.storage.wait_durable(world.storage.lsn)
        faults = this.judge()
        truth = this.truth()
        await world.stop()
        assert isinstance(loop, ProcessLoop)
        for process in loop.dead:
            process.release()
        return GroupReport(world.history, faults, this.notes, truth)

    return run(main, ProcessLoop)
