"""A disk that is full, at every write: nothing is lost, and what frees space is possible."""

from __future__ import annotations

import asyncio
import errno
import logging
from contextlib import suppress
from functools import partial
from pathlib import Path
from random import Random

import pytest
from tests.log.log_doubles import (
    ROOT,
    START,
    Node,
    append,
    append_transactional,
    batch,
    end,
    error_of,
    run,
    topic_id,
    values_of,
)

from fencepost.log import commit_log, space
from fencepost.log.checkpoint import Checkpoint, write_down
from fencepost.log.disk import DiskFull, File
from fencepost.log.partition import Appended, Partition
from fencepost.log.producer_state import Origin
from fencepost.log.upkeep import watch_space
from fencepost.protocol.errors import ErrorCode
from fencepost.protocol.types import Milliseconds, Offset
from fencepost.runtime import at_once
from fencepost.simulation.disk import SimulatedDisk
from fencepost.simulation.disk_layers import Node as Entry

CAPACITY = 60_000


@pytest.fixture(autouse=True)
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    """A world in which 60 KB are a disk."""
    monkeypatch.setattr(commit_log, "_ALLOCATION", 4096)
    monkeypatch.setattr(commit_log, "_LITTLE", 512)
    monkeypatch.setattr(space, "reserved", lambda total, _: total // 8)


def full_node(checkpoint_bytes: int = 64 * 1024 * 1024) -> Node:
    disk = SimulatedDisk(Random(1), capacity=CAPACITY)
    names = [("t", 0), ("t", 1), ("u", 0)]
    return Node(disk, names, segment_bytes=4000, file_delete_delay_ms=60_000, checkpoint_bytes=checkpoint_bytes)


async def fill(node: Node) -> list[bytes]:
    """Append until nothing is taken any more; what was taken in t-0."""
    taken: list[bytes] = []
    number, refused = 0, 0
    while refused < 20:
        partition = node.of("tu"[number % 2], 0)
        value = f"{number}:".encode()
        outcome = partition.append(batch(size=300, tag=value.decode()), Origin.CLIENT, START)
        if isinstance(outcome, Appended):
            if number % 2 == 0:
                taken.append(value)
        else:
            assert error_of(outcome) == ErrorCode.KAFKA_STORAGE_ERROR
            refused += 1
        number += 1
        if number % 7 == 0:
            await node.settled()
    await node.settled()
    return taken


def held(node: Node) -> list[bytes]:
    return [value.rstrip(b"\0") for value in values_of(node.of("t")) if value is not None]


@pytest.mark.parametrize("how", ["restart", "kill", "lose_power"])
def test_it_starts_again_and_has_everything(how: str) -> None:
    async def main() -> None:
        node = full_node()
        taken = await fill(node)
        for _ in range(3):
            getattr(node, how)()
            assert held(node) == taken
            taken += await fill(node)

    run(main())


@pytest.mark.parametrize("foreign", [False, True])
def test_a_deleted_topic_frees_its_space_at_once(foreign: bool) -> None:
    async def main() -> None:
        node = full_node()
        taken = await fill(node)
        if foreign:
            occupy(node)
        node.storage.delete_partition(node.of("u"))
        await asyncio.sleep(0.5)
        assert [name for name in node.disk.list(ROOT) if name.startswith("u-")] == []
        assert node.storage.space.refill()
        for number in range(3):
            append(node.partition, batch(tag=f"after{number}:"))
        await node.settled()
        node.names.remove(("u", 0))
        node.lose_power()
        assert held(node)[: len(taken)] == taken
        assert held(node)[len(taken) :] == [b"after0:", b"after1:", b"after2:"]

    run(main())


def test_what_only_the_commit_log_has_twice_is_given_back_without_a_restart() -> None:
    async def main() -> None:
        node = full_node()
        disk = node.disk
        assert isinstance(disk, SimulatedDisk)
        taken, rounds = await fill(node), 0
        while len(more := await fill(node)) or not rounds:
            taken, rounds = taken + more, rounds + 1
            at_once(watch_space(node.storage, Milliseconds(node.clock.at)))
            await asyncio.sleep(0.5)
        assert rounds > 2
        assert node.storage.failure is None
        records = sum(segment.size for name in "tu" for segment in node.of(name).segments)
        assert records > CAPACITY / 2
        assert held(node) == taken
        node.lose_power()
        assert held(node) == taken

    run(main())


def occupy(node: Node) -> None:
    """Somebody else writes until nothing is left."""
    disk = node.disk
    assert isinstance(disk, SimulatedDisk)
    disk.make_directory(ROOT.parent / "foreign")
    room = disk.room(ROOT)
    assert room is not None
    disk.open(ROOT.parent / "foreign" / "file").allocate(room.free)


@pytest.mark.parametrize("how", ["retention", "records"])
def test_lower_retention_and_deleted_records_free_space(how: str) -> None:
    async def main() -> None:
        node = full_node()
        await fill(node)
        occupy(node)
        for name in "tu":
            partition = node.of(name)
            if how == "retention":
                partition.settings = partition.settings.with_(retention_bytes=0)
            else:
                assert isinstance(partition.delete_records(Offset(-1)), int)
        for _ in range(3):
            at_once(watch_space(node.storage, Milliseconds(node.clock.at)))
            await asyncio.sleep(0.5)
        assert node.storage.failure is None
        end = node.partition.log_end_offset
        assert node.partition.log_start_offset == end
        append(node.partition, batch(size=300, tag="after:"))
        await node.settled()
        node.lose_power()
        assert held(node) == [b"after:"]
        assert node.partition.log_start_offset == end

    run(main())


@pytest.mark.parametrize("share", range(0, 100, 4))
def test_however_full_it_was_when_it_began(share: int) -> None:
    """Whatever step the space ends at: what was acknowledged is there, and a start is possible."""

    async def main() -> None:
        node = full_node(checkpoint_bytes=6000)
        disk = node.disk
        assert isinstance(disk, SimulatedDisk)
        disk.make_directory(ROOT.parent / "foreign")
        disk.open(ROOT.parent / "foreign" / "file").allocate(share * 300)
        taken = await fill(node)
        at_once(watch_space(node.storage, Milliseconds(node.clock.at)))
        await node.settled()
        assert node.storage.failure is None
        node.kill()
        assert held(node) == taken
        node.restart()
        node.lose_power()
        assert held(node) == taken

    run(main())


def test_it_is_said_every_ten_minutes_at_most(caplog: pytest.LogCaptureFixture) -> None:
    async def main() -> None:
        node = full_node()
        await fill(node)
        for _ in range(100):
            at_once(watch_space(node.storage, Milliseconds(node.clock.at)))
            await node.settled()
        assert len(caplog.messages) == 1
        assert "delete topics or records" in caplog.messages[0]
        node.clock.at += 600_000
        at_once(watch_space(node.storage, Milliseconds(node.clock.at)))
        assert len(caplog.messages) == 2
        node.storage.abandon()

    with caplog.at_level(logging.WARNING):
        run(main())


class ShortOf(SimulatedDisk):
    """Has no space left from that use on that is counted down to."""

    def __init__(self) -> None:
        super().__init__(Random(1))
        self.left: int | None = None

    def open(self, path: Path) -> File:
        self._count()
        return super().open(path)

    def meet(self, use: str, node: Entry) -> None:  # noqa: ARG002 - whichever it is
        if use == "write":
            self._count()

    def _count(self) -> None:
        if self.left is not None:
            self.left -= 1
            if self.left < 0:
                raise DiskFull(errno.ENOSPC, "no space left")


@pytest.mark.parametrize("what", ["roll", "written down", "checkpoint", "topic"])
def test_what_does_not_succeed_leaves_no_file_open(what: str) -> None:
    """Who is refused tries again, as often as a client can."""

    async def attempt(uses: int) -> bool:
        disk = ShortOf()
        node = Node(disk, segment_bytes=1000)
        append_transactional(node.partition, (7, 0, 0))
        end(node.partition, 7, 0, False)
        append(node.partition, batch(producer=(8, 0, 0), size=500))
        await node.settled()
        before = disk.descriptors_used
        disk.left = uses
        outcome: object = None
        if what == "roll":
            outcome = node.partition.append(batch(size=500), Origin.CLIENT, START)
        elif what == "checkpoint":
            checkpoint = Checkpoint(node.storage.disk, {})
            outcome = node.storage.space.manages(partial(checkpoint.write, node.partition))
            checkpoint.close()
        elif what == "written down":
            outcome = node.storage.space.manages(partial(write_down, node.storage.disk, node.partition))
        else:
            with suppress(DiskFull):
                outcome = node.storage.create_partition("new", topic_id("new"), 0)
        reached = disk.left < 0
        disk.left = None
        if reached:
            assert not isinstance(outcome, Appended | Partition) and outcome is not True
            assert disk.descriptors_used == before + len(node.partition.segments) - 1
        node.storage.abandon()
        return reached

    async def main() -> None:
        uses = 0
        while await attempt(uses):
            uses += 1
        assert uses > 4

    run(main())


def test_what_is_deleted_while_a_checkpoint_has_no_room_is_removed(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its space may be what the checkpoint lacks."""

    def no_room(*_: object) -> None:
        raise DiskFull(errno.ENOSPC, "no space is left")

    async def main() -> None:
        node = Node(partitions=[("t", 0), ("u", 0)], file_delete_delay_ms=0)
        append(node.partition, batch())
        await node.settled()
        with monkeypatch.context() as patch:
            patch.setattr(Checkpoint, "write", no_room)
            node.storage.checkpoint_soon()
            await asyncio.sleep(0.1)
            node.storage.delete_partition(node.of("u"))
            await asyncio.sleep(0.1)
            assert not [name for name in node.disk.list(ROOT) if name.startswith("u-")]
        append(node.partition, batch())
        await node.settled()
        assert node.partition.checkpoint_offset == 2, "who stops waits for a checkpoint that has room again"

    run(main())


def test_a_checkpoint_that_was_asked_for_and_cannot_begin_is_begun_after_the_next_sync(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def no_room(*_: object) -> None:
        raise DiskFull(errno.ENOSPC, "no space is left")

    async def main() -> None:
        node = Node()
        append(node.partition, batch())
        await node.settled()
        with monkeypatch.context() as patch:
            patch.setattr(commit_log.CommitLog, "begin", no_room)
            node.storage.checkpoint_soon()
            await asyncio.sleep(0.1)
        append(node.partition, batch())
        await node.settled()
        assert node.partition.checkpoint_offset == 2

    run(main())
