"""What many partitions cost: counted, because time says little on a busy machine."""

from __future__ import annotations

import asyncio
import gc
import weakref
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from random import Random

import pytest
from crc32c import crc32c
from tests.log.log_doubles import Node, VirtualLoop, append, batch, run

from fencepost.log import commit_log_entries, durability
from fencepost.log.commit_log import StorageFailed
from fencepost.log.disk import File, SyncDone
from fencepost.log.partition import Partition
from fencepost.protocol.types import Isolation, Offset
from fencepost.simulation.disk import SimulatedDisk


class CountingDisk(SimulatedDisk):
    """Counts what it is asked."""

    def __init__(self) -> None:
        super().__init__(Random(1))
        self.counted: Counter[str] = Counter()

    def sync_now(self, files: Sequence[File]) -> None:
        self.counted["syncs"] += len(files)
        super().sync_now(files)

    def sync_directory(self, path: Path) -> None:
        self.counted["syncs"] += 1
        super().sync_directory(path)

    def list(self, path: Path) -> list[str]:
        self.counted["listings"] += 1
        return super().list(path)


def cost(partitions: int, clean: bool) -> Counter[str]:
    """Of a start after a stop or a kill, with a record in every partition."""
    disk = CountingDisk()

    async def main() -> None:
        node = Node(disk, [("t", number) for number in range(partitions)])
        for number in range(partitions):
            append(node.of("t", number), batch())
        await node.settled()
        if clean:
            node.storage.close()
        else:
            disk.crash()
        disk.counted.clear()
        node.start()

    run(main())
    return disk.counted


@pytest.mark.parametrize("clean", [True, False])
def test_a_start_asks_little_of_the_disk_for_each_partition(clean: bool) -> None:
    few, many = cost(10, clean), cost(40, clean)
    each = {what: (many[what] - few[what]) / 30 for what in few}
    # After a kill: the replayed segment, then the checkpoint's directory, segment, indexes and snapshot.
    assert each["syncs"] <= (0 if clean else 8)
    assert each["listings"] <= 6


class SlowDisk(SimulatedDisk):
    """Takes a minute for what is synced while others go on."""

    def sync(self, files: Sequence[File], done: SyncDone) -> None:
        asyncio.get_running_loop().call_later(60, lambda: SimulatedDisk.sync(self, files, done))


MANY = 2500


def turn() -> int:
    loop = asyncio.get_running_loop()
    assert isinstance(loop, VirtualLoop)
    return loop.turns


def test_what_has_come_together_while_the_disk_was_slow_is_written_and_told_a_little_at_a_time(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Entries are made, high watermarks follow and those who wait are called in many turns, in their order."""
    framed_in: Counter[int] = Counter()
    advanced_in: Counter[int] = Counter()
    told_in: Counter[int] = Counter()
    told: list[int] = []
    advance = Partition.advance

    def counted(payload: bytes, seed: int = 0) -> int:
        framed_in[turn()] += 1
        return crc32c(payload, seed)

    def noted(partition: Partition, end: int) -> None:
        advanced_in[turn()] += 1
        advance(partition, Offset(end))

    async def main() -> None:
        node = Node(SlowDisk(Random(1)), [("t", number) for number in range(MANY)])
        monkeypatch.setattr(commit_log_entries, "crc32c", counted)
        monkeypatch.setattr(Partition, "advance", noted)
        append(node.of("t", 0), batch())
        await asyncio.sleep(1)  # Now a sync is under way.

        def tell(number: int) -> None:
            partition = node.of("t", number)
            assert partition.high_watermark == partition.log_end_offset, "who is told may read"
            told_in[turn()] += 1
            told.append(number)

        for number in range(MANY):
            lsn = append(node.of("t", number), batch()).lsn
            node.storage.durability.when(lsn, lambda number=number: tell(number))  # type: ignore[misc]
        await node.storage.durability.wait(lsn)
        await node.settled()
        await asyncio.sleep(1)
        assert told == list(range(MANY))
        assert max(framed_in.values()) <= 1.1 * commit_log_entries.PIECE_ENTRIES
        assert max(advanced_in.values()) <= 200
        assert max(told_in.values()) <= durability.CALLED_AT_ONCE
        node.lose_power()
        assert [node.of("t", number).log_end_offset for number in range(MANY)] == [2] + [1] * (MANY - 1)

    run(main())


@pytest.mark.parametrize("ended_by", ["crash", "abandon", "failure"])
def test_a_node_that_ends_between_two_pieces_of_a_sync_writes_no_more(
    ended_by: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(commit_log_entries, "PIECE_ENTRIES", 3)

    async def main() -> None:
        failures: list[Exception] = []
        node = Node(partitions=[("t", number) for number in range(50)])
        node.storage.close()
        node.failed = failures.append
        node.start()
        for number in range(50):
            lsn = append(node.of("t", number), batch()).lsn
        told: list[int] = []
        node.storage.durability.when(lsn, lambda: told.append(1))
        for _ in range(5):
            await asyncio.sleep(0)
        commit_log = max(node.disk.list(node.root / "commit-log"))
        before = node.disk.open(node.root / "commit-log" / commit_log).pread(100_000, 0)
        if ended_by == "crash":
            assert isinstance(node.disk, SimulatedDisk)
            node.disk.crash()
        elif ended_by == "abandon":
            node.storage.abandon()
        else:
            node.storage.fail(StorageFailed("something else"))
        await asyncio.sleep(1)
        after = node.disk.open(node.root / "commit-log" / commit_log).pread(100_000, 0)
        assert (after, told) == (before, [])
        assert ended_by == "crash" or len(failures) == (ended_by == "failure")
        node.failed = None
        node.start()
        ends = [node.of("t", number).log_end_offset for number in range(50)]
        assert ends == sorted(ends, reverse=True) and 0 < sum(ends) < 50, "a prefix of what was appended"

    run(main())


def test_a_deleted_partition_leaves_without_the_garbage_collector() -> None:
    """10,000 of them are a quarter of a million objects: they are not left for it to find."""

    async def main() -> None:
        node = Node(partitions=[("t", 0), ("u", 0)], file_delete_delay_ms=0)
        for _ in range(3):
            append(node.of("t"), batch())
            await node.settled()
        partition = node.of("t")
        partition.read(Offset(0), 100, Isolation.READ_COMMITTED)
        partition.when_readable(lambda: None)
        gone = weakref.ref(partition)
        gc.disable()
        try:
            node.storage.delete_partition(partition)
            await node.settled()
            del partition
            assert gone() is None
        finally:
            gc.enable()

    run(main())
