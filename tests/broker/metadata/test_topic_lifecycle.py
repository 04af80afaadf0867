"""Topics of every legal name are made, written to, deleted and made again, and the machine stops at every step."""

from __future__ import annotations

import asyncio
import logging
import uuid
from collections.abc import Collection, Coroutine, Iterator
from itertools import product
from pathlib import Path
from random import Random
from typing import Any, TypeVar

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.log.log_doubles import ROOT, StoppedClock, append, batch, run, values_of

from fencepost.broker.metadata.settings import Settings
from fencepost.broker.metadata.together import or_raised
from fencepost.broker.metadata.topic import NewTopic, Topic
from fencepost.broker.metadata.topic_rules import TopicRefused, topic_name_error
from fencepost.broker.metadata.topics import Topics
from fencepost.log import commit_log
from fencepost.log.checkpoint_files import write_partition_metadata
from fencepost.log.commit_log import StorageFailed
from fencepost.log.storage import Storage
from fencepost.protocol.errors import ErrorCode
from fencepost.runtime import Slices, Work
from fencepost.simulation.disk import PowerCut, SimulatedDisk
from fencepost.simulation.metadata import MemoryMetadataStore

T = TypeVar("T")
PARTITIONS = 2
NODE = {".lock", "commit-log", "fencepost.version"}
NAMES = [
    "t",
    "t" * 213,
    "t" * 214,
    "t" * 249,
    "t-0",
    "t-0-0",
    "t-delete",
    "t-0.00000000000000000000000000000000-delete",
    "...",
    "-",
    "-0",
    "commit-log",
    "." * 249,
]
HARD = st.sampled_from(["-0", "-1", "-delete", ".", "-", "_", "0", "a", "A" * 60, "a.0123456789abcdef" * 4, "x" * 213])
LEGAL = st.lists(HARD, min_size=1, max_size=6).map("".join).map(lambda name: name[-249:])


@pytest.fixture(autouse=True, scope="module")
def small_files() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(commit_log, "_ALLOCATION", 4096)
        yield


def nothing(_: Collection[str]) -> Work[bool]:
    """What others have to forget of a topic."""
    yield
    return True


class Node:
    """Topics on a disk that can be cut off, and what was acknowledged of each."""

    def __init__(self, seed: int, flush: str = "durable", steps: int = 0) -> None:
        self.disk = SimulatedDisk(Random(seed))
        self.flush = flush
        self.slices = Slices(steps=steps) if steps else Slices()
        self.store = MemoryMetadataStore()
        self.chance = Random(seed)
        self.clock = StoppedClock()
        self.acknowledged: dict[uuid.UUID, list[bytes]] = {}
        self.start()

    def start(self) -> None:
        given, life = Settings({"log.segment.delete.delay.ms": 0}), self.disk.life

        def failed(failure: StorageFailed) -> None:
            assert self.disk.off or life != self.disk.life, failure

        self.storage = Storage(self.disk, ROOT, given.log_settings(), self.clock, flush=self.flush, failed=failed)
        self.storage.take()
        self.storage.recover()
        self.topics = Topics(self.store, self.storage, given, self.chance)
        self.topics.load()
        self.storage.start()
        self.topics.deletions_finished(self.topics.half_deleted)

    async def end(self) -> None:
        """Nothing of it goes on: the checkpoint of its start is given up, too."""
        self.storage.abandon()
        await asyncio.sleep(0)

    async def create(self, *names: str) -> None:
        """With one write, if there are several."""
        wanted = [NewTopic(name, PARTITIONS, {}) for name in names]
        found = await self._answered(self.topics.create_together(wanted, self.slices))
        topics = [or_raised(found[name]) for name in names]
        for topic in topics:
            for partition in topic.partitions:
                append(self.storage.partition(topic.name, partition.index), batch(tag=f"{topic.topic_id}"))  # type: ignore[arg-type]
        if self.flush == "durable":
            await self.durable()
        self.acknowledged |= {topic.topic_id: [f"{topic.topic_id}".encode()] for topic in topics}

    async def delete(self, *names: str, settle: bool) -> None:
        topics = [self.topics.by_name[name] for name in names]
        for topic in topics:
            # Whoever has not heard that it is deleted may find it either way.
            self.acknowledged.pop(topic.topic_id, None)
        assert await self.slices.run(self.topics.withdraw_together(topics)) == {}
        await self._answered(self.topics.remove(topics, nothing, self.slices))
        if settle:
            await self.durable()

    async def _answered(self, work: Coroutine[Any, Any, T]) -> T:
        try:
            return await asyncio.wait_for(work, 10)
        except TimeoutError:
            assert self.disk.off, "only then it never becomes durable"
            raise PowerCut from None

    async def durable(self) -> None:
        while self.storage.durability.lsn < self.storage.last_appended:
            if self.disk.off:
                raise PowerCut
            await asyncio.sleep(0.001)

    def check(self) -> None:
        """What is there is what was acknowledged, of the topics that there are; of all others there is nothing."""
        assert self.storage.offline == {}
        assert self.acknowledged.keys() <= self.topics.by_id.keys()
        directories = set()
        for topic in self.topics.by_name.values():
            for partition in topic.partitions:
                directories.add(f"{topic.name}-{partition.index}")
                found = self.storage.partition(topic.name, partition.index)
                assert found is not None and found.topic_id == topic.topic_id
                expected = [f"{topic.topic_id}".encode()]
                least = self.acknowledged.get(topic.topic_id, [])
                assert values_of(found) in (expected, least), (
                    "nothing is lost, and nothing of an earlier topic is there"
                )
        assert set(self.disk.list(ROOT)) == NODE | directories


async def live(node: Node, names: list[str], settle: bool, together: bool) -> None:
    """Make and delete each of them twice, in turn or together."""
    requests = [names] if together else [[name] for name in names]
    for _ in range(2):
        for some in requests:
            await node.create(*some)
        for some in requests:
            await node.delete(*some, settle=settle)


def lives(
    seed: int,
    names: list[str],
    operation: int,
    power_loss: bool,
    settle: bool,
    flush: str = "durable",
    together: bool = False,
) -> bool:
    """Stop at that operation on the disk, start again, check, go on; false if there are not so many."""
    reached = False

    async def main() -> None:
        nonlocal reached
        node = Node(seed, flush)
        node.disk.cut_power_after(operation)
        try:
            await live(node, names, settle, together)
        except PowerCut:
            reached = True
        reached = reached or node.disk.off
        for _ in range(2):
            await node.end()
            (node.disk.power_loss if power_loss else node.disk.crash)()
            node.start()
            node.check()
        for name in names:
            if name in node.topics.by_name:
                await node.delete(name, settle=settle)
            await node.create(name)
        await node.durable()
        await node.storage.settle()  # A checkpoint that is under way holds back what is to be removed.
        await node.durable()
        node.check()
        node.storage.close()
        node.start()
        node.check()
        await node.end()

    run(main())
    return reached


@pytest.mark.parametrize(
    ("together", "settle", "power_loss", "flush"),
    [
        *product([False, True], [False, True], [False, True], ["durable"]),
        (False, False, False, "os"),
        *(
            pytest.param(*each, False, "os", marks=pytest.mark.soak)
            for each in [(False, True), (True, False), (True, True)]
        ),
    ],
)
def test_a_stop_at_every_step(power_loss: bool, flush: str, settle: bool, together: bool) -> None:
    for seed in range(3):
        operation = seed + 1
        while lives(seed, ["t", "t-0"], operation, power_loss, settle, flush, together):
            operation += 3
        assert operation > 50


@pytest.mark.parametrize("name", NAMES)
def test_every_name(name: str, caplog: pytest.LogCaptureFixture) -> None:
    assert topic_name_error(name) is None
    with caplog.at_level(logging.WARNING):
        for operation in (15, 22, 30, 40, 50, 10_000):
            for power_loss in (False, True):
                lives(1, [name], operation, power_loss, settle=False)
    assert caplog.messages == []


@settings(deadline=None, max_examples=60)
@given(st.lists(LEGAL, min_size=1, max_size=3, unique_by=lambda name: name.replace(".", "_")), st.data())
def test_all_names(names: list[str], data: st.DataObject) -> None:
    names = [name for name in names if topic_name_error(name) is None]
    operation = data.draw(st.integers(1, 120))
    power_loss, settle, together = (data.draw(st.booleans()) for _ in range(3))
    if names:
        lives(data.draw(st.integers(0, 5)), names, operation, power_loss, settle, together=together)


def test_a_name_whose_place_is_taken_is_refused_and_what_is_there_stays() -> None:
    async def main() -> None:
        node = Node(1)
        for place in ("other-1", "more-2"):
            node.disk.make_directory(ROOT / place)
            node.disk.open(ROOT / place / f"{0:020d}.log").pwrite(b"somebody's", 0)
        for _ in range(2):
            with pytest.raises(TopicRefused, match=r"/data/other-1 is there.*move it elsewhere") as refused:
                await node.topics.create("other", 2, {}, node.slices)
            assert refused.value.error is ErrorCode.KAFKA_STORAGE_ERROR
        await node.create("more")
        with pytest.raises(TopicRefused, match="/data/more-2 is there"):
            await node.topics.add_partitions(node.topics.by_name["more"], 3, node.slices)
        assert not node.disk.exists(ROOT / "other-0") and len(node.topics.by_name["more"].partitions) == 2
        await node.topics.create("other", 1, {}, node.slices)
        assert node.disk.open(ROOT / "other-1" / f"{0:020d}.log").pread(99, 0) == b"somebody's"
        await node.delete("more", settle=True)
        assert node.disk.list(ROOT / "more-2") == [f"{0:020d}.log"]

    run(main())


def test_a_deletion_that_could_not_be_done_is_done_by_the_next_start() -> None:
    """A directory that cannot be renamed now: the topic is gone, and what was left of it goes later."""

    async def main() -> None:
        node = Node(1)
        await node.create("t")
        rename = node.disk.rename

        def refuse(*_: Path) -> None:
            raise PermissionError(13, "Permission denied")

        node.disk.rename = refuse  # type: ignore[assignment]
        await node.delete("t", settle=True)
        node.disk.rename = rename  # type: ignore[method-assign]
        assert node.disk.exists(ROOT / "t-0")
        with pytest.raises(TopicRefused, match="/data/t-0 is there"):
            await node.topics.create("t", 1, {}, node.slices)
        await node.create("another")
        node.disk.power_loss()
        node.start()
        node.check()
        await node.create("t")
        node.check()

    run(main())


@pytest.mark.parametrize("turns", range(-8, 16))
def test_a_topic_may_be_made_again_while_the_deleted_one_of_its_name_is_still_going(turns: int) -> None:
    """Before the first of its files goes, too."""

    async def main() -> None:
        node = Node(abs(turns), steps=1)
        topic = await node.topics.create("t", 8, {}, node.slices)
        node.topics.withdraw(topic)
        works = [node.topics.remove([topic], nothing, node.slices), node.topics.create("t", 8, {}, node.slices)]
        under_way = []
        for work in works if turns >= 0 else reversed(works):
            under_way.append(asyncio.ensure_future(work))
            for _ in range(abs(turns)):
                await asyncio.sleep(0)
        await asyncio.gather(*under_way)
        await node.storage.settle()
        node.check()
        node.disk.power_loss()
        node.start()
        node.check()
        await node.end()

    run(main())


@pytest.mark.parametrize("turns", range(16))
def test_a_topic_that_is_deleted_while_it_grows_stays_deleted(turns: int) -> None:
    async def main() -> None:
        node = Node(turns, steps=1)
        await node.create("t")
        topic = node.topics.by_name["t"]
        growing = asyncio.ensure_future(node.topics.add_partitions(topic, PARTITIONS + 5, node.slices))
        for _ in range(turns):
            await asyncio.sleep(0)
        had_grown = growing.done()
        await node.delete("t", settle=True)
        if had_grown:
            await growing
        else:
            with pytest.raises(TopicRefused, match="deleted meanwhile") as refused:
                await growing
            assert refused.value.error is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        await node.storage.settle()
        assert node.topics.by_name == node.topics.by_id == {}
        await node.create("t")
        node.check()
        node.disk.power_loss()
        node.start()
        node.check()
        await node.end()

    run(main())


@pytest.mark.parametrize("noted", [None, b"t"])
def test_a_copy_of_a_deleted_topics_partition_outlives_it(noted: bytes | None) -> None:
    """Not only while the node runs: the deletion is still known at the next start.  An older Fencepost noted less."""

    async def main() -> None:
        node = Node(1)
        await node.create("t")
        (topic_id,) = (topic.topic_id for topic in node.topics.by_name.values())
        await node.delete("t", settle=True)
        copies = {"t-0-backup-20261121", *(["t-2"] if noted is None else [])}
        for name in {*copies, "t-1"}:
            node.disk.make_directory(ROOT / name)
            write_partition_metadata(node.disk, ROOT / name, topic_id)
        if noted is not None:
            assert node.store.write({f"deleted-topic/{topic_id}": (noted, 1)})
        await node.end()
        node.start()
        assert {name for name in node.disk.list(ROOT) if name.startswith("t")} == copies

    run(main())


def test_deleted_topics_are_not_remembered_for_ever() -> None:
    async def main() -> None:
        node = Node(1)
        for _ in range(20):
            await node.create("t")
            await node.delete("t", settle=True)
            assert len(node.store.list("deleted-topic/")) == 1
        await node.create("t")
        assert node.store.list("deleted-topic/") == {}

    run(main())


def test_topics_that_are_deleted_together_are_not_compared_with_each_other(monkeypatch: pytest.MonkeyPatch) -> None:
    """A thousand in one request would be half a million comparisons, in one step."""

    def compared(*_: object) -> bool:
        raise AssertionError("topics are compared")

    monkeypatch.setattr(Topic, "__eq__", compared)

    async def main() -> None:
        node = Node(1)
        names = [f"t{number}" for number in range(20)]
        for name in names:
            await node.create(name)
        topics = [node.topics.by_name[name] for name in names]
        for topic in topics:
            node.topics.withdraw(topic)
        await node.topics.remove(topics, nothing, node.slices)
        for name in names:
            await node.create(name)

    run(main())
