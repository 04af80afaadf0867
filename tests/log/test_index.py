"""Apache Kafka's index formats, and what a lookup in them gives."""

from __future__ import annotations

from pathlib import Path
from random import Random
from struct import pack

import pytest
from crc32c import crc32c
from tests.log.log_doubles import run, synced

from fencepost.log.damage import FileDamaged
from fencepost.log.disk import LocalDisk
from fencepost.log.index import OffsetIndex, TimeIndex
from fencepost.log.segment_sums import FileSum
from fencepost.protocol.types import Milliseconds
from fencepost.simulation.disk import SimulatedDisk

PATH = Path("/x.index")


def test_an_offset_index_finds_the_entry_before() -> None:
    disk = SimulatedDisk(Random(1))
    index = OffsetIndex(disk, PATH)
    assert index.floor(9) is None
    for offset, position in ((3, 100), (7, 200), (9, 300)):
        index.append(offset, position)
    assert [index.floor(offset) for offset in (0, 2, 3, 6, 7, 8, 9, 50)] == [
        *[None, None, (3, 100), (3, 100)],
        *[(7, 200), (7, 200), (9, 300), (9, 300)],
    ]
    index.write().close()
    assert disk.open(PATH).pread(99, 0) == pack(">iiiiii", 3, 100, 7, 200, 9, 300)
    index.cut_to(200)
    index.append(8, 250)
    index.write().close()
    again = OffsetIndex(disk, PATH)
    assert (again.count, again.last()) == (2, (8, 250))


@pytest.mark.parametrize("kind", [OffsetIndex, TimeIndex])
@pytest.mark.parametrize("seed", range(10))
def test_what_is_known_of_an_index_is_what_is_in_it_however_it_was_cut_and_written(
    kind: type[OffsetIndex | TimeIndex], seed: int
) -> None:
    chance, disk = Random(seed), SimulatedDisk(Random(seed))
    index, entries = kind(disk, PATH), list[tuple[int, int]]()
    for number in range(60):
        what = chance.choice(["append", "append", "append", "write", "cut"])
        if what == "append":
            first = entries[-1] if entries else (0, 0)
            entries.append((first[0] + chance.randrange(1, 9), first[1] + chance.randrange(1, 9)))
            index.append(Milliseconds(entries[-1][0]), entries[-1][1])
        elif what == "cut":
            limit = chance.choice(entries)[1] + chance.randrange(2) if entries else number
            index.cut_to(limit)
            entries = [entry for entry in entries if entry[1] < limit]
        else:
            index.write().close()
            data = disk.open(PATH).pread(10_000, 0)
            assert data == b"".join(pack(">ii" if kind is OffsetIndex else ">qi", *entry) for entry in entries)
            assert index.sum == FileSum(len(data), crc32c(data))
        assert (index.count, index.last()) == (len(entries), entries[-1] if entries else None)


def test_a_partial_entry_is_passed_over() -> None:
    disk = SimulatedDisk(Random(1))
    disk.open(PATH).pwrite(pack(">ii", 3, 100) + b"\0\0\0", 0)
    assert OffsetIndex(disk, PATH).last() == (3, 100)


def test_a_time_index_takes_only_what_is_larger() -> None:
    disk = SimulatedDisk(Random(1))
    index = TimeIndex(disk, PATH)
    for timestamp, offset in ((50, 2), (50, 3), (40, 4), (60, 2), (70, 8)):
        index.append(Milliseconds(timestamp), offset)
    assert [index.floor(Milliseconds(timestamp)) for timestamp in (50, 51, 70, 71)] == [None, (50, 2), (50, 2), (70, 8)]
    index.write().close()
    assert disk.open(PATH).pread(99, 0) == pack(">qiqi", 50, 2, 70, 8)
    index.cut_to(8)
    assert index.last() == (50, 2)


@pytest.mark.parametrize("kind", [OffsetIndex, TimeIndex])
def test_what_a_power_loss_leaves_behind_the_synced_entries_is_dropped(kind: type[OffsetIndex | TimeIndex]) -> None:
    async def main() -> None:
        left_something = 0
        for seed in range(300):
            random = Random(seed)
            disk = SimulatedDisk(random)
            trusted, later = random.randrange(1, 90), random.randrange(1, 200)
            index = kind(disk, PATH)
            for number in range(trusted):
                index.append(Milliseconds(10 + 3 * number), 20 + 7 * number)
            await synced(disk, index.write())
            disk.sync_directory(PATH.parent)
            for number in range(trusted, trusted + later):
                index.append(Milliseconds(10 + 3 * number), 20 + 7 * number)
            index.write().close()
            disk.power_loss()
            again = kind(disk, PATH)
            left_something += again.count not in (trusted, trusted + later)
            again.cut_to(20 + 7 * trusted)
            assert (again.count, again.last()) == (trusted, (7 + 3 * trusted, 13 + 7 * trusted)), f"seed {seed}"
        assert left_something > 10, "a disk that keeps or loses everything shows nothing"

    run(main())


@pytest.mark.parametrize("kind", [OffsetIndex, TimeIndex])
def test_what_stands_in_its_place_is_named_with_what_to_do(kind: type[OffsetIndex | TimeIndex], tmp_path: Path) -> None:
    path = tmp_path / "index"
    path.mkdir()
    with pytest.raises(FileDamaged, match=f"{path} cannot be opened: .*; put back a copy of it, or move it away"):
        _ = kind(LocalDisk(), path).count
