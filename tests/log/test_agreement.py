"""A start goes on beside the generations that it found only where these say just what is there."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from random import Random

import pytest
from tests.log.histories import World, live, small_files
from tests.log.history_model import Violation
from tests.log.log_doubles import ROOT, Node, append, batch, run, topic_id, values_of

from fencepost.log.agreement import agrees, named_segments
from fencepost.log.checkpointing import Checkpoints
from fencepost.log.data_directory import DeletedTopic
from fencepost.log.partition import Partition
from fencepost.log.replay import KnownFile, Replay
from fencepost.log.storage import Storage
from fencepost.protocol.types import Offset
from fencepost.simulation.disk import SimulatedDisk

NAMES = [("a", 0), ("b", 0)]


class Found:
    """What a start has found: two partitions of two segments each, and what the commit log says of them."""

    def __init__(self, node: Node) -> None:
        self.partitions: list[Partition] = [node.of("a"), node.of("b")]
        self.replay = Replay()
        self.replay.ready = True
        for partition in self.partitions:
            for segment in partition.segments:
                self.know(f"{partition.directory.name}/{segment.path.name}", segment.size, partition.topic)

    def know(self, path: str, size: int, topic: str = "a") -> KnownFile:
        return self.replay._know(path, topic_id(topic).bytes, size, Offset(0))

    def newest(self) -> KnownFile:
        return self.replay.segments_of("a-0")[self.partitions[0].segments.bases[-1]]


def _remove(found: Found) -> None:
    found.newest().removed = True


def _longer(found: Found) -> None:
    found.newest().size += 1


def _shorter(found: Found) -> None:
    found.newest().size -= 1


def _aside(found: Found) -> None:
    found.newest().aside = True


def _of_another_topic(found: Found) -> None:
    found.newest().topic_id = topic_id("b").bytes


def _one_more_segment(found: Found) -> None:
    """It was begun in vain: what was to stand before it is lost."""
    found.know(f"a-0/{99:020d}.log", 0)


def _not_opened(found: Found) -> None:
    del found.partitions[0]


def _not_known(found: Found) -> None:
    for known in found.replay.segments_of("a-0").values():
        known.removed = True


def _start_is_noted(found: Found) -> None:
    found.replay.starts["a-0"] = Offset(1)


def _start_has_moved(found: Found) -> None:
    found.partitions[0].log_start_offset = Offset(1)


def _start_of_what_is_gone(found: Found) -> None:
    found.replay.starts["gone-0"] = Offset(5)


def _not_ready(found: Found) -> None:
    found.replay.ready = False


def _damaged(found: Found) -> None:
    found.replay.damaged = True


def _sizes_not_kept(found: Found) -> None:
    found.replay.sizes_kept = False


def _adopting(found: Found) -> None:
    found.replay.adopting = True


def filled() -> Node:
    node = Node(SimulatedDisk(Random(1)), NAMES, segment_bytes=100)
    for topic, _ in NAMES:
        for _ in range(2):
            append(node.of(topic), batch())
    assert all(len(node.of(topic).segments) == 2 for topic, _ in NAMES)
    return node


def test_the_older_generations_go_on_to_count_where_everything_is_as_they_say() -> None:
    async def main() -> None:
        found = Found(filled())
        found.replay.starts["gone-0"] = Offset(0)  # as a deletion leaves it
        assert agrees(found.replay, found.partitions)
        numbers = {segment.number for partition in found.partitions for segment in partition.segments}
        assert set(named_segments(found.replay, found.partitions)) == numbers

    run(main())


@pytest.mark.parametrize(
    "change",
    [
        _remove,
        _longer,
        _shorter,
        _aside,
        _of_another_topic,
        _one_more_segment,
        _not_opened,
        _not_known,
        _start_is_noted,
        _start_has_moved,
        _start_of_what_is_gone,
        _not_ready,
        _damaged,
        _sizes_not_kept,
        _adopting,
    ],
)
def test_anything_else_is_written_down_before_anybody_is_served(change: Callable[[Found], None]) -> None:
    async def main() -> None:
        found = Found(filled())
        change(found)
        assert not agrees(found.replay, found.partitions)

    run(main())


def test_random_lives_begin_with_a_checkpoint_under_way_and_lose_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    """They are killed and lose their power in the middle of it, with what was appended meanwhile, again and again."""
    small_files(monkeypatch)
    begun = cut = 0
    begin, give_up = Checkpoints.begin_at_start, Checkpoints.give_up
    first: dict[int, object] = {}

    def beginning(checkpoints: Checkpoints, *how: object) -> None:
        nonlocal begun
        begin(checkpoints, *how)  # type: ignore[arg-type]
        begun += 1
        first[id(checkpoints)] = checkpoints._task

    def giving_up(checkpoints: Checkpoints) -> None:
        nonlocal cut
        task = first.pop(id(checkpoints), None)
        cut += task is not None and task is checkpoints._task
        give_up(checkpoints)

    monkeypatch.setattr(Checkpoints, "begin_at_start", beginning)
    monkeypatch.setattr(Checkpoints, "give_up", giving_up)
    for seed in range(30):
        world = World(seed, SimulatedDisk(Random(seed)))
        try:
            run(live(world, lives=8, steps=40))
        except Violation as broken:
            raise AssertionError(f"seed {seed}: {broken}") from broken
    assert begun > 100
    assert cut > 20, "in the middle of it"


def test_nothing_that_an_older_generation_names_is_taken_for_settled_before_that_is_gone() -> None:
    """After another crash its bytes would be written into what the cleaner has put in its place."""

    async def main() -> None:
        node = Node(SimulatedDisk(Random(1)), NAMES, segment_bytes=100)
        for number in range(3):
            append(node.of("a"), batch(tag=f"{number}"))
        await node.settled()
        node.kill()
        partition = node.of("a")
        assert len(node.disk.list(ROOT / "commit-log")) == 2, "it serves, and both count"
        named = [segment for segment in partition.segments if node.storage._log.names(segment.number)]
        assert named == list(partition.segments)
        partition.unsynced_from = partition.segments.bases[-1]
        assert not any(node.storage.is_settled(partition, segment) for segment in partition.segments)
        await node.settled()
        assert len(node.disk.list(ROOT / "commit-log")) == 1
        assert [node.storage.is_settled(partition, each) for each in partition.segments] == [True, True, False]
        assert values_of(partition) == [b"0", b"1", b"2"]

    run(main())


def test_who_is_stopped_at_once_leaves_everything_written_down() -> None:
    async def main() -> None:
        node = Node(SimulatedDisk(Random(1)), NAMES, segment_bytes=100)
        append(node.of("a"), batch(tag="0"))
        await node.settled()
        for number in range(1, 4):
            node.kill()
            node.restart()
            append(node.of("a"), batch(tag=f"{number}"))
            await node.settled()
            assert len(node.disk.list(ROOT / "commit-log")) == 1
        assert values_of(node.of("a")) == [b"0", b"1", b"2", b"3"]

    run(main())


def test_a_deletion_that_was_not_finished_is_finished_before_anybody_is_served() -> None:
    """Else what an older generation says of the deleted topic might be taken for what is made in its place."""

    async def main() -> None:
        node = Node(SimulatedDisk(Random(1)), NAMES)
        append(node.of("b"), batch(tag="0"))
        await node.settled()
        node.storage.delete_partition(node.of("b"))
        await asyncio.sleep(0)
        await node.settled()
        node.names = [("a", 0)]
        storage = Storage(node.disk, ROOT, node.settings, node.clock)
        storage.deleted = {topic_id("b"): DeletedTopic("b", 1)}
        node.disk.crash()  # type: ignore[attr-defined]
        node.start(storage)
        assert len(node.disk.list(ROOT / "commit-log")) == 1
        assert not [name for name in node.disk.list(ROOT) if name.startswith("b-0")]

    run(main())
