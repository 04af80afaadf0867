"""A checkpoint is made a little at a time, and what happens in between is neither lost nor believed too early."""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from random import Random

import pytest
from tests.log.log_doubles import ROOT, Node, VirtualLoop, append, batch, delete_topic, run, topic_id, values_of

from fencepost.log import checkpointing
from fencepost.log.checkpoint import Checkpoint
from fencepost.log.checkpointing import Checkpoints
from fencepost.log.disk import File, LocalDisk
from fencepost.log.partition import Partition
from fencepost.log.segment import Segment
from fencepost.log.storage import Storage
from fencepost.protocol.types import Offset, ProducerId
from fencepost.runtime import Slices
from fencepost.simulation.disk import SimulatedDisk

MANY = 60


def sliced(names: list[tuple[str, int]], seed: int = 1) -> Node:
    """A node that writes one partition down in each turn of the event loop."""
    node = Node(SimulatedDisk(Random(seed)), names)
    storage = Storage(node.disk, ROOT, node.settings, node.clock, slices=Slices(steps=1))
    node.start(storage)
    return node


def generations(node: Node) -> list[str]:
    return node.disk.list(ROOT / "commit-log")


async def begun(node: Node) -> None:
    """Wait until a checkpoint is under way."""
    while len(generations(node)) < 2:  # noqa: ASYNC110 - nobody is told
        await asyncio.sleep(0.0001)


def test_others_get_their_turns_while_a_checkpoint_is_made(monkeypatch: pytest.MonkeyPatch) -> None:
    turns: list[int] = []
    write = Checkpoint.write

    def noting(checkpoint: Checkpoint, partition: Partition) -> None:
        loop = asyncio.get_running_loop()
        assert isinstance(loop, VirtualLoop)
        turns.append(loop.turns)
        write(checkpoint, partition)

    monkeypatch.setattr(Checkpoint, "write", noting)

    async def main() -> None:
        node = sliced([("t", number) for number in range(MANY)])
        await node.settled()
        for number in range(MANY):
            append(node.of("t", number), batch())
        await node.settled()
        turns.clear()
        node.storage.checkpoint_soon()
        taken = 0
        while len(turns) < MANY:
            # Others append everywhere, and it becomes durable.
            lsn = append(node.of("t", taken % MANY), batch(tag="meanwhile")).lsn
            taken += 1
            await asyncio.sleep(0.0002)
        assert len(set(turns)) == MANY, "one in each turn"
        assert taken > 3, "in between"
        await node.storage.durability.wait(lsn)
        await node.settled()
        assert len(generations(node)) == 1
        node.lose_power()
        assert sum(len(values_of(node.of("t", number))) for number in range(MANY)) == MANY + taken

    run(main())


@pytest.mark.parametrize("seed", range(10))
def test_a_partition_that_cannot_be_written_down_is_made_again_from_its_records(
    seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also what was appended to it before its moment came, and after."""
    monkeypatch.setattr(checkpointing, "_TOGETHER", 1)
    damaged: list[Segment] = []
    write_indexes = Segment.write_indexes

    def refusing(segment: Segment) -> list[File]:
        if segment in damaged:
            raise OSError(5, "I/O error")
        return write_indexes(segment)

    monkeypatch.setattr(Segment, "write_indexes", refusing)

    async def main() -> None:
        node = sliced([("a", 0), ("b", 0)], seed)
        append(node.of("a"), batch())
        append(node.of("b"), batch(tag="1", producer=(7, 0, 0)))
        await node.settled()

        node.storage.checkpoint_soon()
        await node.settled()
        damaged.append(node.of("b").segments[-1])
        node.storage.checkpoint_soon()
        for number in range(1, 5):
            await asyncio.sleep(0.0003)
            append(node.of("b"), batch(tag=str(number + 1), producer=(7, 0, number)))
        await node.settled()
        assert len(generations(node)) == 1
        node.lose_power()
        assert values_of(node.of("b")) == [str(number).encode() for number in range(1, 6)]
        assert [each.last_sequence for each in node.of("b").producers.entries[ProducerId(7)].batches] == [0, 1, 2, 3, 4]

    run(main())


def test_what_cannot_be_written_down_is_said_once_and_again_when_it_had_been_well(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The start, each checkpoint and the stop try it; a line for each would say nothing new."""
    wrong: list[int] = []
    write_indexes = Segment.write_indexes

    def refusing(segment: Segment) -> list[File]:
        if wrong and "b-0" in str(segment.path):
            raise OSError(wrong[0], "no")
        return write_indexes(segment)

    monkeypatch.setattr(Segment, "write_indexes", refusing)

    def said() -> int:
        return sum("cannot be written, the next start makes them again" in text for text in caplog.messages)

    async def main() -> None:
        node = sliced([("a", 0), ("b", 0)])

        async def checkpoints() -> int:
            for _ in range(3):
                append(node.of("b"), batch())
                await node.settled()
                node.storage.checkpoint_soon()
                await node.settled()
            return said()

        assert await checkpoints() == 0
        wrong.append(13)
        assert await checkpoints() == 1
        wrong[0] = 5
        assert await checkpoints() == 2, "another reason"
        wrong.clear()
        assert await checkpoints() == 2
        wrong.append(5)
        assert await checkpoints() == 3
        node.storage.close()
        assert said() == 3

    run(main())


def test_of_several_generations_the_newest_goes_first_and_durably(monkeypatch: pytest.MonkeyPatch) -> None:
    """Else a power loss could leave one without those before it that was never completed."""

    async def main() -> None:
        node = sliced([("a", 0)])
        append(node.of("a"), batch())
        await node.settled()
        node.storage.checkpoint_soon()
        await begun(node)
        node.storage.abandon()
        node.disk.crash()  # type: ignore[attr-defined]
        seen: list[list[str]] = []
        sync_directory = node.disk.sync_directory

        def noting(path: Path) -> None:
            sync_directory(path)
            if path.name == "commit-log":
                seen.append([name[19:20] for name in generations(node)])

        monkeypatch.setattr(node.disk, "sync_directory", noting)
        node.start()
        await node.settled()
        found = ["2", "3"]
        assert seen == [found, ["2", "3", "4"], ["2", "4"], ["4"]]

    run(main())


def test_a_checkpoint_that_is_wanted_while_one_is_made_follows_it() -> None:
    async def main() -> None:
        node = sliced([("t", number) for number in range(5)])
        append(node.of("t", 0), batch())
        await node.settled()
        node.storage.checkpoint_soon()
        await begun(node)
        append(node.of("t", 0), batch())
        node.storage.checkpoint_soon()
        await node.settled()
        await asyncio.sleep(0.1)
        assert node.of("t", 0).checkpoint_offset == 2
        assert len(generations(node)) == 1

    run(main())


def test_nothing_is_removed_while_a_checkpoint_syncs_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its file would be closed under the hands of the sync."""
    asked, removed, early = list[int](), list[int](), list[int]()
    sync = Checkpoints._synced

    async def main() -> None:
        node = sliced([("t", 0)])

        async def synced(checkpoints: Checkpoints, files: Sequence[File]) -> None:
            asked.append(len(asked))
            node.storage.removals.now(partial(removed.append, asked[-1]))
            await sync(checkpoints, files)
            early.extend({asked[-1]} & {*removed})

        append(node.partition, batch())
        await node.settled()
        monkeypatch.setattr(Checkpoints, "_synced", synced)
        node.storage.checkpoint_soon()
        await node.settled()
        await asyncio.sleep(0.1)

    run(main())
    assert early == []
    assert removed == asked == [0, 1], "of the directory, and of what is in it"


@pytest.mark.parametrize("turns", range(12))
def test_who_stops_in_the_middle_of_a_checkpoint_waits_for_nothing_that_never_comes(turns: int) -> None:
    async def main() -> None:
        slices, node = Slices(steps=1), Node()
        storage = Storage(node.disk, ROOT, node.settings, node.clock, slices=slices)
        node.start(storage)
        append(node.partition, batch())
        await node.settled()
        storage.checkpoint_soon()
        for _ in range(turns):
            await asyncio.sleep(0)
        slices.close()
        async with asyncio.timeout(60):
            await storage.durability.wait(storage.lsn)
            await storage.settle()
        await asyncio.sleep(1)

    run(main())


@pytest.mark.parametrize("turns", range(0, 24, 2))
def test_a_partition_that_is_made_meanwhile_is_there_after_a_power_loss(turns: int) -> None:
    """Also where it is made while the directory is synced that its own is in."""

    async def main() -> None:
        for seed in range(20):
            node = sliced([("t", 0)], seed)
            await node.settled()
            append(node.of("t"), batch(tag="before"))
            await node.settled()
            node.storage.checkpoint_soon()
            for _ in range(turns):
                await asyncio.sleep(0.0001)
            node.names.append(("new", 0))
            node.storage.create_partition("new", topic_id("new"), 0)
            append(node.of("new"), batch(tag="meanwhile"))
            await node.settled()
            node.lose_power()
            assert node.storage.offline == {}
            assert values_of(node.of("new")) == [b"meanwhile"]
            node.storage.close()

    run(main())


@pytest.mark.parametrize("how", ["kill", "lose_power"])
@pytest.mark.parametrize("pause", [0.0, 0.0001, 0.0003])
def test_what_is_appended_while_a_checkpoint_syncs_its_partition_is_there_after_a_crash(pause: float, how: str) -> None:
    """Whichever append was the last one."""

    async def main() -> None:
        for count in range(1, 25):
            node = sliced([("t", 0)], count)
            append(node.of("t"), batch(tag="before"))
            await node.settled()
            node.storage.checkpoint_soon()
            for number in range(count):
                append(node.of("t"), batch(tag=f"{number}"))
                await asyncio.sleep(pause)
            await node.settled()
            getattr(node, how)()
            assert values_of(node.of("t")) == [b"before", *(b"%d" % number for number in range(count))]
            node.storage.close()

    run(main())


@pytest.mark.parametrize("how", ["kill", "lose_power"])
@pytest.mark.parametrize("turns", range(40))
def test_a_topic_that_is_made_anew_meanwhile_loses_nothing_to_the_one_before_it(turns: int, how: str) -> None:
    """Of that some was deleted, some is not durable yet, and the checkpoint may have written it down."""

    async def main() -> None:
        for seed in range(6):
            node = sliced([("t", 0)], seed)
            await node.settled()
            former = node.of("t")
            for number in range(3):
                append(former, batch(tag=f"former {number}"))
                former.roll()
            await node.settled()
            former.delete_records(Offset(2))
            assert former.has_segments_to_drop, "which waits for the checkpoint"
            node.storage.checkpoint_soon()
            append(former, batch(tag="last"))
            for _ in range(turns):
                await asyncio.sleep(0.0003)
            append(former, batch(tag="at last"))
            assert delete_topic(node.storage, "t")
            fresh = node.storage.create_partition("t", uuid.UUID(int=9), 0)
            assert isinstance(fresh, Partition)
            for number in range(3):
                append(fresh, batch(tag=f"{number}"))
            await node.settled()
            assert isinstance(node.disk, SimulatedDisk)
            node.disk.crash() if how == "kill" else node.disk.power_loss()
            node.names = []
            node.start(Again(node))
            assert node.storage.offline == {}
            assert values_of(node.of("t")) == [b"0", b"1", b"2"]
            node.storage.close()

    run(main())


class Again(Storage):
    """The same node, of which the topic that was made anew is known."""

    def __init__(self, node: Node) -> None:
        super().__init__(node.disk, ROOT, node.settings, node.clock)

    def recover(self) -> bool:
        may_lack_records = super().recover()
        self.create_partition("t", uuid.UUID(int=9), 0)
        return may_lack_records


@pytest.mark.parametrize("suffix", [".snapshot", ".window"])
def test_an_old_snapshot_that_cannot_be_removed_stops_nobody(
    suffix: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async def main() -> None:
        node = Node(LocalDisk(), root=tmp_path)
        append(node.partition, batch(tag="0"))
        node.storage.close()
        (path,) = (tmp_path / "t-0").glob(f"*{suffix}")
        path.unlink()
        path.mkdir()
        if suffix == ".window":
            path.with_suffix(".snapshot").unlink()
            path.with_suffix(".snapshot").touch()
        node.start()
        for number in (1, 2):
            append(node.partition, batch(tag=f"{number}"))
            await node.settled()
            node.storage.checkpoint_soon()
            await asyncio.sleep(0)
            await node.settled()
        node.restart()
        assert values_of(node.partition) == [b"0", b"1", b"2"]
        node.storage.close()
        assert f"cannot be removed, do it by hand: [Errno 21] Is a directory: '{path}'" in caplog.text

    run(main())


@pytest.mark.parametrize("seed", range(8))
def test_who_is_known_of_before_the_log_is_known_after_a_power_loss_without_the_newest_snapshot(seed: int) -> None:
    """A checkpoint syncs what was written down where its segments begin, too."""

    async def main() -> None:
        node = Node(SimulatedDisk(Random(seed)), segment_bytes=1000)
        append(node.partition, batch(producer=(7, 0, 0), size=900))
        append(node.partition, batch(producer=(8, 0, 0), size=900))
        assert node.partition.segments.bases == [0, 1]
        await node.settled()
        node.storage.checkpoint_soon()
        await node.settled()
        node.partition.delete_records(Offset(1))
        await node.settled()
        assert node.partition.segments.bases == [1]
        node.lose_power()
        assert [*node.partition.producers.entries] == [7, 8]
        newest = node.disk.open(ROOT / "t-0" / f"{node.partition.checkpoint_offset:020d}.snapshot")
        assert newest.size() > 0
        newest.truncate(newest.size() - 1)
        node.kill()
        assert [*node.partition.producers.entries] == [7, 8]

    run(main())


def test_a_segment_that_was_written_to_behind_a_checkpoint_is_synced_by_the_next_one_though_it_is_closed() -> None:
    async def main() -> None:
        node = Node()
        for _ in range(2):
            append(node.partition, batch())
        node.partition.roll()
        append(node.partition, batch())
        for offset, unsynced in ((1, [0, 2]), (2, [2]), (3, [2])):
            node.partition.checkpointed(Offset(offset))
            assert [segment.base_offset for segment in node.partition.unsynced_segments()] == unsynced

    run(main())
