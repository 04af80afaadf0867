"""Topics that are deleted and made anew, get partitions and lose their first records, and who writes to them."""

from __future__ import annotations

import asyncio
from random import Random
from typing import Any, Final

from fencepost.client import Admin, Producer
from fencepost.client.cluster import Cluster
from fencepost.client.errors import BrokerError, ClientError
from fencepost.protocol.errors import ErrorCode
from fencepost.protocol.messages import DeleteRecordsRequest
from fencepost.protocol.messages.delete_records import DeleteRecordsPartition, DeleteRecordsTopic
from fencepost.protocol.types import TopicPartition
from fencepost.simulation import any_request
from fencepost.simulation.group_load import REBORN
from fencepost.simulation.processes import Process
from fencepost.simulation.record_shapes import Shape
from fencepost.simulation.request_faults import LATEST
from fencepost.simulation.surroundings import TOPICS
from fencepost.simulation.workload import Outcomes, Sent
from fencepost.simulation.world import ADDRESS, World

GROWN: Final = "grown"
"""The topic that gets more partitions."""
MOST_PARTITIONS: Final = 4
_IMPATIENT: Final[dict[str, Any]] = {"request_timeout_ms": 400, "delivery_timeout_ms": 700, "max_block_ms": 2000}


class ChangingTopics:
    """The topics of a run that administrators change, with their present partitions and lives.

    `is_fed`: somebody writes to GROWN and REBORN; `asked`: the topic that anything is asked of is there.
    """

    def __init__(self, world: World, *, is_fed: bool, asked: bool) -> None:
        self._world = world
        self.is_fed = is_fed
        self._asked = asked
        self.partitions = {GROWN: 1, REBORN: 1} if is_fed else {}
        self.lives = 1
        self._sent = 0
        """Records that were sent to the topic that is made anew, at least."""
        self._between_lives = asyncio.Lock()
        self._stop = asyncio.Event()
        self._feeders: list[asyncio.Future[None]] = []
        self._processes: list[Process] = []
        self.acknowledged: list[tuple[str, int, str]] = []
        """Topic, by the name that its records say, partition and value."""

    def named(self, topic: str) -> str:
        """The name by which records call the topic: that of its present life."""
        return f"{REBORN}.{self.lives}" if topic == REBORN else topic

    async def prepare(self) -> None:
        """Make the topics."""
        async with self._admin() as admin:
            for topic, partitions in self.partitions.items():
                await admin.create_topic(topic, partitions=partitions)
            if self._asked:
                await admin.create_topic(any_request.TOPIC, partitions=any_request.PARTITIONS)
                for number in range(any_request.PARTITIONS):
                    self._world.removals.ask(TopicPartition(any_request.TOPIC, number))

    # Records

    def begin(self) -> None:
        """Start the producers that write to the topics."""
        for topic in self.partitions:
            process = Process(self._world, f"feed-{topic}")
            self._processes.append(process)
            self._feeders.append(process.start(self._feed(process, topic)))

    async def end(self, patience: float) -> list[str]:
        """Stop these producers; in sentences which of them do not end within `patience` seconds."""
        self._stop.set()
        if not self._feeders:
            return []
        await asyncio.wait(self._feeders, timeout=patience)
        for feeder in self._feeders:
            if feeder.done():
                feeder.result()
        return [
            f"who feeds {topic} does not end"
            for topic, f in zip(self.partitions, self._feeders, strict=True)
            if not f.done()
        ]

    async def _feed(self, process: Process, topic: str) -> None:
        """Write without transactions to all partitions that the topic has, until told to stop."""
        chance = self._world.chance(process.name)
        number = 0
        while not self._stop.is_set():
            known = (self.partitions[topic], self.lives)
            async with Producer(ADDRESS, runtime=process.runtime(f"{number}"), **_IMPATIENT) as producer:
                while not self._stop.is_set() and known == (self.partitions[topic], self.lives):
                    await asyncio.sleep(chance.expovariate(1 / 0.05))
                    number += 1
                    partition = chance.randrange(known[0])
                    try:
                        await self._send(producer, topic, partition, number)
                    except ClientError as error:
                        self._world.note(f"the feeder of {topic} begins anew: {error}")
                        break

    async def _send(self, producer: Producer, topic: str, partition: int, number: int) -> None:
        if topic == REBORN:
            async with self._between_lives:
                value = f"{topic}.{self.lives}-{partition}-{number}"
                await (await producer.send(topic, value.encode(), partition=partition))
                self._sent += 1
                self.acknowledged.append((self.named(topic), partition, value))
        else:
            value = f"{topic}-{partition}-{number}"
            await (await producer.send(topic, value.encode(), partition=partition))
            self.acknowledged.append((topic, partition, value))

    async def send_last_ones(self, outcomes: Outcomes) -> None:
        """Write one record to each partition, without faults: then every group has an offset to commit."""
        async with Producer(ADDRESS, runtime=self._world.runtime("last")) as producer:
            for topic, count in self.partitions.items():
                for partition in range(count):
                    await self._send(producer, topic, partition, 0)
            for topic, count in TOPICS.items():
                for partition in range(count):
                    value = f"last.{topic}.{partition}-0-0"
                    key = Shape(outcomes.keys).key_of(value)
                    await (await producer.send(topic, value.encode(), key=key, partition=partition))
                    outcomes.committed[value.removesuffix("-0")] = [Sent(topic, partition, value)]

    # Administration

    def _admin(self) -> Admin:
        """An Admin whose requests are never sent twice or late: a late deletion would be one of the next life."""
        name = f"admin-{self._world.loop.time()}"
        return Admin(ADDRESS, runtime=Process(self._world, name, spared=True).runtime())

    async def grow(self) -> None:
        """Add a partition to a topic."""
        if self.partitions.get(GROWN, MOST_PARTITIONS) < MOST_PARTITIONS:
            async with self._admin() as admin:
                await admin.create_partitions(GROWN, self.partitions[GROWN] + 1)
            self.partitions[GROWN] += 1
            self._world.note(f"{GROWN} has {self.partitions[GROWN]} partitions")

    async def make_anew(self, chance: Random) -> None:
        """Delete a topic, and make another one under its name."""
        if self._asked and (not self.is_fed or chance.random() < 0.5):
            await self._anything_anew()
        elif self.is_fed:
            await self._bear_again()

    async def _anything_anew(self) -> None:
        async with self._admin() as admin:
            await _delete(admin, any_request.TOPIC)
            await admin.create_topic(any_request.TOPIC, partitions=any_request.PARTITIONS, exist_ok=True)
        self._world.note(f"{any_request.TOPIC} is made anew")

    async def _bear_again(self) -> None:
        async with self._between_lives, self._admin() as admin:
            await self._nothing_comes()
            await _delete(admin, REBORN)
            await admin.create_topic(REBORN, partitions=1, exist_ok=True)
            self.lives += 1
            await self._catch_up()
        self._world.note(f"{REBORN} lives its life {self.lives}")

    async def _nothing_comes(self) -> None:
        """Wait until no record sent to the topic is on its way: by its name it would be one of the next life, too."""
        held = max(process.cut_off_until for process in self._processes) - self._world.loop.time()
        await asyncio.sleep(max(held, 0) + 2 * LATEST)

    async def _catch_up(self) -> None:
        """Write as many records as the topic had before, so that old committed offsets are within it."""
        process = Process(self._world, f"again-{self.lives}", spared=True)
        async with Producer(ADDRESS, runtime=process.runtime()) as writer:
            values = [f"{REBORN}.{self.lives}-0-again{number}" for number in range(self._sent)]
            told = [await writer.send(REBORN, value.encode(), partition=0) for value in values]
        self.acknowledged += [
            (self.named(REBORN), 0, value)
            for value, each in zip(values, told, strict=True)
            if each.done() and not each.cancelled() and each.exception() is None
        ]
        self._sent += 5

    async def delete_records(self, chance: Random) -> None:
        """Delete the first records of a partition of TOPICS."""
        at = TopicPartition(topic := chance.choice(list(TOPICS)), chance.randrange(TOPICS[topic]))
        cluster = Cluster(ADDRESS, runtime=self._world.runtime(f"delete-{self._world.loop.time()}"))
        log = None if self._world.storage is None else self._world.storage.partition(*at)
        if log is None:
            return
        before = chance.randint(log.log_start_offset, log.high_watermark)
        wanted = [DeleteRecordsPartition(partition_index=at.partition, offset=before)]
        self._world.removals.ask(at, before)
        request = DeleteRecordsRequest(topics=[DeleteRecordsTopic(name=at.topic, partitions=wanted)], timeout_ms=1000)
        await cluster.call_controller(request, deadline=cluster.deadline("deleting records"))
        await cluster.close()
        self._world.note(f"{at.topic}-{at.partition} begins at {before}")


async def _delete(admin: Admin, topic: str) -> None:
    """Delete a topic; no error if it is gone already, as after a call whose answer was lost."""
    try:
        await admin.delete_topic(topic)
    except BrokerError as error:
        if error.code is not ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
            raise
