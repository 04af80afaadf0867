"""Apache Kafka's index formats, and what a lookup in them gives."""

from __future__ import annotations

from pathlib import Path
from random import Random
from struct import pack

from fencepost.log.index import OffsetIndex, TimeIndex
from fencepost.simulation.disk import SimulatedDisk

PATH = Path("/x.index")


def test_an_offset_index_finds_the_entry_before() -> None:
    disk = SimulatedDisk(Random(1))
    index = OffsetIndex(disk, PATH)
    assert index.position_of(9) == 0
    for offset, position in ((3, 100), (7, 200), (9, 300)):
        index.append(offset, position)
    assert [index.position_of(offset) for offset in (0, 2, 3, 6, 7, 8, 9, 50)] == [0, 0, 100, 100, 200, 200, 300, 300]
    index.write().close()
    assert disk.open(PATH).pread(99, 0) == pack(">iiiiii", 3, 100, 7, 200, 9, 300)
    index.cut_to_position(200)
    index.append(8, 250)
    index.write().close()
    again = OffsetIndex(disk, PATH)
    assert (again.count, again.last()) == (2, (8, 250))


def test_a_partial_entry_is_passed_over() -> None:
    disk = SimulatedDisk(Random(1))
    disk.open(PATH).pwrite(pack(">ii", 3, 100) + b"\0\0\0", 0)
    assert OffsetIndex(disk, PATH).last() == (3, 100)


def test_a_time_index_takes_only_what_is_larger() -> None:
    disk = SimulatedDisk(Random(1))
    index = TimeIndex(disk, PATH)
    for timestamp, offset in ((50, 2), (50, 3), (40, 4), (60, 2), (70, 8)):
        index.append(timestamp, offset)
    assert [index.floor(timestamp) for timestamp in (50, 51, 70, 71)] == [0, 2, 2, 8]
    index.write().close()
    assert disk.open(PATH).pread(99, 0) == pack(">qiqi", 50, 2, 70, 8)
    index.cut_to_offset(8)
    assert index.last() == (50, 2)
