"""The aborted transactions of a segment: Apache Kafka's format, and what a reader is told (facts §6.9)."""

from __future__ import annotations

from itertools import combinations
from pathlib import Path
from random import Random
from struct import pack

import pytest
from tests.log.log_doubles import ROOT, Node, append, append_transactional, batch, end, run, synced

from fencepost.log.reading import Fetched
from fencepost.log.transaction_index import AbortedTransaction, TransactionIndex
from fencepost.protocol.types import Isolation, Offset, ProducerId
from fencepost.simulation.disk import SimulatedDisk

ENTRIES = [
    AbortedTransaction(ProducerId(1), Offset(0), Offset(5), Offset(2)),
    AbortedTransaction(ProducerId(2), Offset(2), Offset(9), Offset(10)),
    AbortedTransaction(ProducerId(1), Offset(12), Offset(14), Offset(15)),
]


def index_of(entries: list[AbortedTransaction]) -> TransactionIndex:
    index = TransactionIndex()
    for entry in entries:
        index.append(entry)
    return index


def test_the_format() -> None:
    index = index_of(ENTRIES)
    data = index.encode()
    assert data[:34] == pack(">hqqqq", 0, 1, 0, 5, 2)
    disk, path = SimulatedDisk(Random(1)), Path("/x")
    assert TransactionIndex.read(disk, path).entries == []
    assert not disk.exists(path)
    disk.open(path).pwrite(data + data[:20], 0)
    assert TransactionIndex.read(disk, path).entries == ENTRIES
    disk.open(path).pwrite(b"\0\1", 34)
    assert TransactionIndex.read(disk, path).entries == ENTRIES[:1]


def test_markers_come_in_order() -> None:
    index = index_of(ENTRIES[:2])
    with pytest.raises(AssertionError, match="in order"):
        index.append(ENTRIES[1])
    index.cut(Offset(9))
    assert index.entries == ENTRIES[:1]


def test_every_range_gets_all_that_touch_it() -> None:
    for lower, upper in combinations(range(18), 2):
        found: list[AbortedTransaction] = []
        last = index_of(ENTRIES).collect(Offset(lower), Offset(upper), found)
        assert found == [e for e in ENTRIES if e.last_offset >= lower and e.first_offset < upper]
        assert last == any(entry.last_stable_offset >= upper for entry in ENTRIES)


def test_what_a_power_loss_leaves_behind_the_synced_entries_is_not_in_the_way() -> None:
    """Zeros, above all, look like an entry.  Half of one may, with large offsets: recovery looks for its marker."""

    async def main() -> None:
        left_something = 0
        for seed in range(300):
            random = Random(seed)
            disk = SimulatedDisk(random)
            file = disk.open(Path("/x"))
            trusted, later = random.randrange(90), random.randrange(1, 90)
            entries = [
                AbortedTransaction(ProducerId(7), Offset(10 * n), Offset(10 * n + 9), Offset(10 * n + 10))
                for n in range(trusted + later)
            ]
            file.pwrite(index_of(entries[:trusted]).encode(), 0)
            await synced(disk, file)
            disk.sync_directory(Path("/"))
            file = disk.open(Path("/x"))
            file.pwrite(index_of(entries).encode(), 0)
            disk.power_loss()
            file = disk.open(Path("/x"))
            left_something += file.pread(file.size(), 0) != index_of(entries[: file.size() // 34]).encode()
            index = TransactionIndex.read(disk, Path("/x"))
            index.cut(Offset(10 * trusted))
            assert index.entries == entries[:trusted], f"seed {seed}"
        assert left_something > 10, "a disk that keeps or loses everything shows nothing"

    run(main())


def test_an_index_that_is_left_without_its_segment_is_nothing_of_the_next_one_that_begins_there() -> None:
    """A power loss may take a segment and leave what stands beside it."""

    async def main() -> None:
        node = Node()
        append_transactional(node.partition, (7, 0, 0))
        end(node.partition, 7, 0, False)
        await node.settled()
        node.restart()
        directory, begins = ROOT / "t-0", node.partition.log_end_offset
        for suffix in (".index", ".timeindex", ".txnindex"):
            left = node.disk.open(directory / f"{begins:020d}{suffix}")
            left.pwrite(index_of([AbortedTransaction(ProducerId(8), begins, Offset(begins + 1), begins)]).encode(), 0)
            left.close()
        node.restart()
        names = node.disk.list(directory)
        assert not [name for name in names if name.startswith(f"{begins:020d}.") and name.endswith("index")]
        node.partition.roll()
        append(node.partition, batch(2))
        await node.settled()
        fetched = node.partition.read(begins, 10_000, Isolation.READ_COMMITTED)
        assert isinstance(fetched, Fetched)
        assert fetched.aborted == []

    run(main())
