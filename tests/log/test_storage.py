"""Opening, closing, checkpoints and topics of a whole node."""

from __future__ import annotations

import asyncio
from pathlib import Path
from random import Random

import pytest
from tests.log.log_doubles import (
    ROOT,
    Node,
    append,
    append_transactional,
    batch,
    bytes_of,
    delete_topic,
    end,
    run,
    topic_id,
    values_of,
)

from fencepost.log import storage as storage_module
from fencepost.log.commit_log import StorageFailed
from fencepost.log.disk import LocalDisk
from fencepost.log.partition import Partition
from fencepost.log.storage import DirectoryUnusable, Storage
from fencepost.protocol.types import NO_LSN, Offset
from fencepost.simulation.disk import SimulatedDisk

TWO = [("a", 0), ("b", 0)]


def test_a_directory_has_one_broker_and_a_known_format() -> None:
    async def main() -> None:
        node = Node()
        second = Storage(node.disk, ROOT, node.settings, node.clock)
        with pytest.raises(DirectoryUnusable, match="another running broker"):
            second.take()
        node.storage.close()
        node.disk.open(ROOT / "fencepost.version").pwrite(b"9", 0)
        for _ in range(2):  # who is refused has not got it
            with pytest.raises(DirectoryUnusable, match="format '9'"):
                second.take()

    run(main())


def test_flush_has_two_values() -> None:
    with pytest.raises(ValueError, match="'durable' or 'os'"):
        Node(flush="never")


@pytest.mark.parametrize("flush", ["durable", "os"])
@pytest.mark.parametrize("local", [False, True])
def test_a_stop_and_a_kill_lose_nothing(flush: str, local: bool, tmp_path: Path) -> None:
    async def main() -> None:
        disk = LocalDisk() if local else None
        node = Node(disk, TWO, flush, tmp_path if local else ROOT, segment_bytes=300, checkpoint_bytes=500)
        for number in range(20):
            append(node.of("ab"[number % 2]), batch(tag=f"{number}"))
        append_transactional(node.of("a"), (7, 0, 0))
        await node.settled()
        kept = [bytes_of(node.of(name)) for name in "ab"]
        node.restart()
        assert [bytes_of(node.of(name)) for name in "ab"] == kept
        end(node.of("a"), 7, 0, False)
        await node.settled()
        if local:
            node.storage.abandon()
            node.start()
        else:
            node.kill()
        assert node.of("a").high_watermark == 12
        assert [tuple(t) for t in node.of("a").segments.aborted_transactions(Offset(0), Offset(99))] == [
            (7, 10, 11, 12)
        ]

    run(main())


@pytest.mark.parametrize("first", ["durable", "os"])
def test_the_flush_mode_may_change_after_a_kill(first: str) -> None:
    async def main() -> None:
        node = Node(flush=first)
        append(node.partition, batch(tag="1"))
        await node.settled()
        node.flush = "os" if first == "durable" else "durable"
        node.kill()
        append(node.partition, batch(tag="2"))
        await node.settled()
        node.flush = first
        node.kill()
        assert values_of(node.partition) == [b"1", b"2"]

    run(main())


def test_what_was_durable_survives_a_restart_with_flush_os() -> None:
    """The bytes are in the commit log alone: they must be applied, whatever the mode of the next run."""

    async def main() -> None:
        for seed in range(20):
            node = Node(SimulatedDisk(Random(seed)))
            append(node.partition, batch(tag="1", size=2000))
            await node.settled()
            node.flush = "os"
            node.lose_power()
            assert node.partition.high_watermark == 1

    run(main())


def test_a_checkpoint_leaves_one_generation_and_its_snapshot() -> None:
    async def main() -> None:
        node = Node(checkpoint_bytes=400)
        for number in range(12):
            append(node.partition, batch(producer=(7, 0, number)))
            await node.settled()
        assert len(node.disk.list(ROOT / "commit-log")) == 1
        snapshots = [name for name in node.disk.list(ROOT / "t-0") if name.endswith(".snapshot")]
        assert snapshots == [f"{node.partition.checkpoint_offset:020d}.snapshot"]
        assert 0 < node.partition.checkpoint_offset <= 12

    run(main())


def test_a_full_disk_puts_a_checkpoint_off() -> None:
    async def main() -> None:
        disk = SimulatedDisk(Random(1))
        node = Node(disk, checkpoint_bytes=300)
        append(node.partition, batch(size=100))
        disk.capacity = disk.used() + 1000
        append(node.partition, batch(size=10))
        append(node.partition, batch(size=10))
        await node.settled()
        assert node.storage.failure is None and node.partition.high_watermark == 3
        disk.capacity = None
        append(node.partition, batch())
        await node.settled()
        assert node.partition.checkpoint_offset >= 3

    run(main())


def test_a_failed_sync_ends_the_node() -> None:
    async def main() -> None:
        disk, failures = SimulatedDisk(Random(1)), list[Exception]()
        node = Node(disk)
        node.failed = failures.append
        node.restart()
        appended = append(node.partition, batch())
        disk.sync_error = OSError(5, "I/O error")
        await asyncio.sleep(1)
        assert "I/O error" in str(failures[0])
        assert node.storage.failure is failures[0]
        assert node.storage.durability.lsn < appended.lsn and node.partition.high_watermark == 0

    run(main())


@pytest.mark.parametrize("again", [False, True])
@pytest.mark.parametrize("crash", ["none", "kill", "power"])
@pytest.mark.parametrize("settle", [False, True])
def test_a_deleted_topic_stays_deleted(again: bool, crash: str, settle: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """Large batches, which stand in the segment alone, small ones, which the commit log could bring back, and both."""
    monkeypatch.setattr(storage_module, "EXTENT_THRESHOLD", 500)

    async def main(seed: int) -> None:
        disk = SimulatedDisk(Random(seed))
        node = Node(disk, TWO, segment_bytes=3000)
        for size in (0, 1000, 10, 2000):
            append(node.of("a"), batch(size=size, tag="old"))
            append(node.of("b"), batch(size=size))
            if seed % 2:
                await node.settled()
        await node.storage.durability.wait(node.storage.last_appended if seed % 3 else NO_LSN)
        kept = node.of("b").high_watermark
        delete_topic(node.storage, "a")
        identifier = topic_id("a")
        if again:
            identifier = topic_id("another a")
            node.storage.create_partition("a", identifier, 0)
        if settle:
            await node.settled()
        if crash != "none":
            node.storage.failure = StorageFailed("it is dead, and what it had scheduled must not run")
        if crash == "none":
            await node.settled()
            node.storage.close()
        elif crash == "kill":
            disk.crash()
        else:
            disk.power_loss()
        # The metadata no longer has the old topic.
        node.names = [("b", 0)]
        node.storage = Storage(disk, ROOT, node.settings, node.clock)
        node.storage.take()
        node.storage.recover()
        node.storage.create_partition("b", topic_id("b"), 0)
        if again:
            node.storage.create_partition("a", identifier, 0)
        node.storage.start()
        assert node.of("b").high_watermark >= kept
        if again:
            assert values_of(node.of("a")) == []
            append(node.of("a"), batch(tag="new"))
            await node.settled()
            assert values_of(node.of("a")) == [b"new"]
        else:
            assert disk.list(ROOT) == [".lock", "b-0", "commit-log", "fencepost.version"]

    for seed in range(20):
        run(main(seed))


@pytest.mark.parametrize("power_loss", [False, True])
def test_a_deleted_topic_leaves_nothing_in_one_that_has_its_name(
    power_loss: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Both stand in one generation of the commit log: the old one's bytes, and the new one's, or that it has them."""
    monkeypatch.setattr(storage_module, "EXTENT_THRESHOLD", 500)

    async def main(seed: int) -> None:
        random, disk = Random(seed), SimulatedDisk(Random(seed))
        node = Node(disk, [("a", 0)])
        for _ in range(3):
            append(node.of("a"), batch(size=random.choice((10, 300, 1000)), tag="old"))
        await node.settled()
        delete_topic(node.storage, "a")
        await node.settled()
        anew = node.storage.create_partition("a", topic_id("another a"), 0)
        assert isinstance(anew, Partition)
        for _ in range(3):
            append(anew, batch(size=random.choice((10, 300, 1000)), tag="new"))
        await node.settled()
        given = bytes_of(anew)
        node.storage.abandon()
        disk.power_loss() if power_loss else disk.crash()
        node.storage = Storage(disk, ROOT, node.settings, node.clock)
        node.storage.take()
        node.storage.recover()
        anew = node.storage.create_partition("a", topic_id("another a"), 0)
        node.storage.start()
        assert isinstance(anew, Partition), anew
        assert bytes_of(anew) == given

    for seed in range(20):
        run(main(seed))


def test_a_partition_whose_directory_a_power_loss_took_is_there_whatever_others_have() -> None:
    async def main() -> None:
        taken = 0
        for seed in range(25):
            disk = SimulatedDisk(Random(seed))
            node = Node(disk)
            append(node.partition, batch())
            await node.settled()
            node.storage.checkpoint_soon()
            await asyncio.sleep(0.1)
            assert node.partition.checkpoint_offset == 1
            node.names.append(("made", 0))
            node.storage.create_partition("made", topic_id("made"), 0)
            append(node.of("made"), batch(tag="acknowledged"))
            await node.storage.durability.wait(node.storage.last_appended)
            node.storage.abandon()
            disk.power_loss()
            taken += not disk.exists(ROOT / "made-0")
            node.start()
            assert values_of(node.of("made")) == [b"acknowledged"]
        assert taken > 2

    run(main())
