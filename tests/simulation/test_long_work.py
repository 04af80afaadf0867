"""Topics are made, grown and deleted a step at a time: nobody ever sees half of one, whatever else happens and ends.

Random requests are handled at once, every step of the work in another round of the event loop; at each round somebody
looks, and in some round the node is killed or loses power.  Records and committed offsets carry the id of the
topic that they were written to, so that what an older topic of the same name left behind is known.
"""

from __future__ import annotations

import asyncio
import random
from collections import Counter
from typing import Any

import pytest
from tests.broker import asking

from fencepost.broker import Broker
from fencepost.log.partition import Partition
from fencepost.protocol.errors import ErrorCode
from fencepost.protocol.messages import (
    CreatePartitionsRequest,
    CreateTopicsRequest,
    DeleteTopicsRequest,
    IncrementalAlterConfigsRequest,
    MetadataRequest,
    OffsetCommitRequest,
    ProduceRequest,
)
from fencepost.protocol.messages.create_partitions import CreatePartitionsTopic
from fencepost.protocol.messages.create_topics import CreatableTopic
from fencepost.protocol.messages.delete_topics import DeleteTopicState
from fencepost.protocol.messages.incremental_alter_configs import AlterableConfig, AlterConfigsResource
from fencepost.protocol.messages.metadata import MetadataRequestTopic
from fencepost.protocol.messages.offset_commit import OffsetCommitRequestPartition, OffsetCommitRequestTopic
from fencepost.protocol.messages.produce import PartitionProduceData, TopicProduceData
from fencepost.protocol.records import decode_batch, encode_batch
from fencepost.simulation.loop import VirtualLoop, run
from fencepost.simulation.world import World

NAMES = ("a", "b")
GROUPS = tuple(f"g{n}" for n in range(4))
TOPIC = 2


class Promises:
    """What was answered."""

    def __init__(self) -> None:
        self.made: dict[str, str] = {}
        """Id of a topic that was made -> its name."""
        self.deleted: set[str] = set()
        self.counts: dict[str, int] = {}
        self.records: dict[tuple[str, int], list[str]] = {}
        """(id, partition) -> records that were acknowledged"""


class Scene:
    """One node, and those who ask it."""

    def __init__(self, world: World, chance: random.Random) -> None:
        self.world, self.chance, self.promises, self.number = world, chance, Promises(), 0
        self.tasks: list[asyncio.Task[None]] = []
        self.deleting: Counter[str] = Counter()
        """Names whose deletion was asked for and not answered."""

    @property
    def broker(self) -> Broker:
        if self.world.broker is None:
            raise asyncio.CancelledError
        return self.world.broker

    async def ask(self, request: Any, version: int) -> Any:
        """The answer, when it may leave the node."""
        return await asking.ask(self.broker, request, version)

    async def create(self, name: str) -> None:
        count = self.chance.randint(1, 7)
        wanted = CreatableTopic(name=name, num_partitions=count, replication_factor=1, assignments=[], configs=[])
        (made,) = (await self.ask(CreateTopicsRequest(topics=[wanted]), 7)).topics
        assert made.error_code in (ErrorCode.NONE, ErrorCode.TOPIC_ALREADY_EXISTS), made
        if made.error_code == ErrorCode.NONE:
            self.noted(name, made.topic_id.hex, count)

    def noted(self, name: str, topic_id: str, count: int) -> None:
        self.promises.made[topic_id] = name
        self.promises.counts[topic_id] = max(count, self.promises.counts.get(topic_id, 0))

    async def see(self, name: str) -> None:
        """Metadata, which makes a topic that is not there."""
        (seen,) = (await self.ask(MetadataRequest(topics=[MetadataRequestTopic(name=name)]), 12)).topics
        assert seen.error_code in (ErrorCode.NONE, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION), seen

    async def delete(self, name: str) -> None:
        self.deleting[name] += 1
        request = DeleteTopicsRequest(topics=[DeleteTopicState(name=name)], timeout_ms=1000)
        (gone,) = (await self.ask(request, 6)).responses
        if gone.error_code == ErrorCode.NONE:
            self.promises.deleted.add(gone.topic_id.hex)
        self.deleting[name] -= 1

    async def grow(self, name: str) -> None:
        known = self.broker.node.topics.by_name.get(name)
        count = self.chance.randint(2, 30)
        request = CreatePartitionsRequest(
            topics=[CreatePartitionsTopic(name=name, count=count, assignments=None)],
            timeout_ms=1000,
            validate_only=False,
        )
        (grown,) = (await self.ask(request, 3)).results
        if (
            grown.error_code == ErrorCode.NONE
            and known is self.broker.node.topics.by_name.get(name)
            and known is not None
        ):
            self.noted(name, known.topic_id.hex, count)

    async def alter(self, name: str) -> None:
        value = str(self.chance.randrange(1_000_000, 2_000_000))
        changed = AlterableConfig(name="segment.bytes", config_operation=0, value=str(int(value) + 1_048_576))
        resource = AlterConfigsResource(resource_type=TOPIC, resource_name=name, configs=[changed])
        await self.ask(IncrementalAlterConfigsRequest(resources=[resource], validate_only=False), 1)

    async def produce(self, name: str) -> None:
        known = self.broker.node.topics.by_name.get(name)
        topic_id = "" if known is None else known.topic_id.hex
        index, self.number = self.chance.randrange(8), self.number + 1
        value = f"{topic_id} {self.number}"
        data = PartitionProduceData(index=index, records=encode_batch([(0, None, value.encode(), ())]))
        request = ProduceRequest(
            transactional_id=None,
            acks=-1,
            timeout_ms=9,
            topic_data=[TopicProduceData(name=name, partition_data=[data])],
        )
        (written,) = (await self.ask(request, 9)).responses[0].partition_responses
        if written.error_code == ErrorCode.NONE:
            assert topic_id, "nobody writes to a topic that nobody can see"
            self.promises.records.setdefault((topic_id, index), []).append(value)

    async def commit(self, name: str) -> None:
        known = self.broker.node.topics.by_name.get(name)
        metadata = "" if known is None else known.topic_id.hex
        committed = OffsetCommitRequestPartition(
            partition_index=self.chance.randrange(8), committed_offset=1, committed_metadata=metadata
        )
        topic = OffsetCommitRequestTopic(name=name, partitions=[committed])
        request = OffsetCommitRequest(group_id=self.chance.choice(GROUPS), member_id="", topics=[topic])
        await self.ask(request, 8)

    async def work(self) -> None:
        """A few requests, each on its own."""
        doings = (self.create, self.see, self.delete, self.grow, self.grow, self.alter, self.produce, self.commit)
        for _ in range(self.chance.randint(3, 25)):
            doing, name = self.chance.choice(doings), self.chance.choice(NAMES)
            self.tasks.append(asyncio.ensure_future(doing(name)))
            for _ in range(self.chance.choice((0, 1, 3, 5, 20))):
                await asyncio.sleep(0)
                self.look()

    async def finish(self, rounds: int) -> None:
        """Let what was asked get on, for so many rounds."""
        for _ in range(rounds):
            self.look()
            if all(task.done() for task in self.tasks):
                break
            await asyncio.sleep(0 if self.chance.random() < 0.9 else 0.001)

    async def over(self) -> None:
        """The node is gone: nobody is answered any more."""
        for task in self.tasks:
            task.cancel()
        for done in await asyncio.gather(*self.tasks, return_exceptions=True):
            if isinstance(done, Exception):
                raise done
        self.tasks = []

    # What must be so at every moment

    def look(self) -> None:
        topics, storage = self.broker.node.topics, self.broker.node.storage
        shown = {(each.topic, each.index): each for each in storage.partitions()}
        for name, topic in topics.by_name.items():
            assert topics.by_id[topic.topic_id] is topic
            assert topic.partitions, f"{name} has no partitions yet, and is seen"
            log_settings = topic.partitions[0].settings
            for index, partition in enumerate(topic.partitions):
                assert shown.pop((name, index)) is partition
                assert (partition.index, partition.topic_id) == (index, topic.topic_id)
                assert partition.settings == log_settings
        assert not shown, f"nobody knows the topics of {sorted(shown)}"
        assert len(topics.by_id) == len(topics.by_name)

    async def check(self) -> None:
        """After a start."""
        self.look()
        topics, promises = self.broker.node.topics, self.promises
        known = {topic.topic_id.hex: topic for topic in topics.by_name.values()}
        for topic_id, name in list(promises.made.items()):
            if topic_id not in known:
                assert topic_id in promises.deleted or self.deleting[name], f"{name} was made, and is not there"
                del promises.made[topic_id]
        self.deleting.clear()
        assert not promises.deleted & set(known), "a topic that was deleted is there"
        for topic_id, topic in known.items():
            assert len(topic.partitions) >= promises.counts.get(topic_id, 1)
            for partition in () if topic.is_internal else topic.partitions:
                assert isinstance(partition, Partition)
                found = [
                    record.value.decode()
                    for header, data in partition.scan()
                    for record in decode_batch(data, 0, header)
                    if record.value
                ]
                assert all(value.startswith(topic_id) for value in found), "records of another topic"
                missing = set(promises.records.get((topic_id, partition.index), ())) - set(found)
                assert not missing, f"acknowledged, and lost: {missing}"
        for group in GROUPS:
            offsets = self.broker.node.groups.fetch_offsets(group, None, False)
            assert isinstance(offsets, dict)
            for at, committed in offsets.items():
                assert at.topic in topics.by_name, f"{group} has an offset in {at}, which is deleted"
                assert getattr(committed, "metadata", None) == topics.by_name[at.topic].topic_id.hex
        ours = {f"{each.topic}-{each.index}" for each in self.broker.node.storage.partitions()}
        on_disk = {
            name for name in self.world.disk.list(self.broker.node.storage.path) if name.rpartition("-")[2].isdigit()
        }
        assert on_disk == ours


async def begin(world: World) -> None:
    await world.start()
    assert world.broker is not None
    await world.broker.node.ensure_coordinator("__consumer_offsets")
    world.broker.node.slices._steps = 1  # of every slice from now on


async def history(loop: VirtualLoop, seed: int) -> None:
    chance = random.Random(f"long work {seed}")
    world = World(loop, seed, {"num.partitions": 3})
    scene = Scene(world, chance)
    for _ in range(4):
        await begin(world)
        await scene.check()
        for _ in range(chance.randint(1, 3)):
            await scene.work()
            await scene.finish(chance.choice((0, 5, 50, 2000)))
        if chance.random() < 0.25:
            await world.stop()
        elif chance.random() < 0.5:
            world.kill()
        else:
            world.lose_power()
        await scene.over()
    await begin(world)
    await scene.check()
    for name in NAMES:  # and whatever was left of them, both can be made and used
        await scene.delete(name)
        await scene.create(name)
        await scene.produce(name)
        await scene.commit(name)
    await scene.check()
    await world.stop()


@pytest.mark.parametrize("seed", [*range(40), *(pytest.param(seed, marks=pytest.mark.soak) for seed in range(40, 200))])
def test_nobody_ever_sees_half_a_topic(seed: int) -> None:
    run(lambda loop: history(loop, seed))
