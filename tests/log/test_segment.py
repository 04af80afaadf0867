"""A segment finds its batches, whatever their sizes, and writes indexes that find them again."""

from __future__ import annotations

import os
from pathlib import Path
from random import Random

import pytest
from tests.log.log_doubles import START, batch

from fencepost.log.damage import FileDamaged
from fencepost.log.disk import LocalDisk
from fencepost.log.segment import Segment
from fencepost.log.transaction_index import AbortedTransaction, TransactionIndex
from fencepost.protocol.batch import read_header, stamp
from fencepost.protocol.types import LeaderEpoch, Offset, ProducerId
from fencepost.simulation.disk import SimulatedDisk
from fencepost.simulation.disk_faults import FaultyDisk

BASE = 1000


def filled(disk: SimulatedDisk, sizes: list[int]) -> tuple[Segment, list[tuple[int, int, int]]]:
    """A segment of batches of two records, and (first offset, position, size) of each."""
    segment, places = Segment(disk, Path("/"), Offset(BASE), 1, 200), []
    for number, size in enumerate(sizes):
        data, offset = bytearray(batch(2, size=size, timestamp=START + number)), BASE + 2 * number
        stamp(data, 0, Offset(offset), LeaderEpoch(0))
        places.append((offset, segment.append(data, read_header(data), Offset(offset)), len(data)))
    return segment, places


@pytest.mark.parametrize("sizes", [[], [0], [10] * 40, [600_000, 0, 600_000, 5, 1_200_000, 7], [20_000] * 5])
def test_batches_are_found_before_and_after_a_restart(sizes: list[int]) -> None:
    disk = SimulatedDisk(Random(1))
    segment, places = filled(disk, sizes)
    for file in segment.write_indexes():
        file.close()
    for found in (segment, Segment(disk, Path("/"), Offset(BASE), 2, 200)):
        assert [(h.base_offset, at, len(data)) for at, h, data in found.walk(0)] == places
        for offset, position, _ in places:
            assert found.locate(Offset(offset)) == found.locate(Offset(offset + 1)) == position
        assert found.locate(Offset(BASE + 2 * len(sizes))) is None
        assert found.max_timestamp == (START + len(sizes) if sizes else -1)


def test_a_segment_that_cannot_be_opened_keeps_no_descriptor(tmp_path: Path) -> None:
    """Each start of a node would have one less otherwise."""
    (tmp_path / f"{BASE:020d}.txnindex").mkdir()
    before = os.listdir("/proc/self/fd")
    for _ in range(3):
        with pytest.raises(OSError, match="directory"):
            Segment(LocalDisk(), tmp_path, Offset(BASE), 1, 200)
    assert os.listdir("/proc/self/fd") == before


@pytest.mark.parametrize("left", [0, 1, -1])
def test_nothing_is_written_behind_a_gap(left: int) -> None:
    """Zeros would stand in the place of what somebody has cut off."""
    segment, places = filled(SimulatedDisk(Random(1)), [10, 10])
    written = segment.size
    length = left if left >= 0 else written - 1
    segment.file.truncate(length)
    data = bytearray(batch(2))
    with pytest.raises(FileDamaged, match=f"at byte {length}: the file ends there, and had {written} bytes; put back"):
        segment.append(data, read_header(data), Offset(BASE + 2 * len(places)))
    assert (segment.size, segment.file.size()) == (written, length)


def test_a_partial_batch_is_not_walked() -> None:
    disk = SimulatedDisk(Random(1))
    segment, places = filled(disk, [10, 10, 10])
    for cut in range(1, places[2][2]):
        assert len(list(segment.walk(0, segment.size - cut))) == 2


def test_indexes_are_cut_behind_a_position() -> None:
    disk = SimulatedDisk(Random(1))
    segment, places = filled(disk, [100] * 20)
    offset, position, _ = places[10]
    segment.cut_indexes(position, Offset(offset))
    assert (segment.indexes.offsets.floor(10_000) or (0, position))[1] < position
    assert segment.max_timestamp <= START + 10


def test_what_was_aborted_behind_a_cut_is_forgotten_whatever_the_batches_before_it_are() -> None:
    """A start that needs nothing of a damaged batch is not stopped by it: who reads it is told."""
    disk, places = without_sums([0] * 20)
    index = TransactionIndex()
    for first, last in ((9, 10), (12, 15)):
        index.append(
            AbortedTransaction(ProducerId(7), Offset(BASE + first), Offset(BASE + last), Offset(BASE + last + 1))
        )
    disk.open(Path(f"/{BASE:020d}.txnindex")).pwrite(index.encode(), 0)
    offset, position, _ = places[10]
    disk.open(Path(f"/{BASE:020d}.log")).pwrite(b"\xff" * 8, places[9][1])
    segment = Segment(disk, Path("/"), Offset(BASE), 2, 200)
    assert len(segment.transactions) == 2
    segment.cut_indexes(position, Offset(offset))
    assert segment.transactions.entries == []


def test_removal_takes_every_file() -> None:
    disk = SimulatedDisk(Random(1))
    segment, _ = filled(disk, [10])
    for file in segment.write_indexes():
        file.close()
    segment.remove()
    assert disk.list(Path("/")) == []


def without_sums(times: list[int]) -> tuple[FaultyDisk, list[tuple[int, int, int]]]:
    """The files of a segment with batches of these times, and (last offset, position, size) of each."""
    disk = FaultyDisk(Random(1))
    segment, places = Segment(disk, Path("/"), Offset(BASE), 1, 200), []
    for number, time in enumerate(times):
        data, offset = bytearray(batch(size=50, timestamp=START + time)), BASE + number
        stamp(data, 0, Offset(offset), LeaderEpoch(0))
        places.append((offset, segment.append(data, read_header(data), Offset(offset)), len(data)))
    for file in segment.write_indexes():
        file.close()
    disk.remove(segment.path.with_suffix(".checksums"))
    return disk, places


@pytest.mark.parametrize("seed", range(20))
@pytest.mark.parametrize("which", [[".timeindex"], [".index"], [".index", ".timeindex"]])
def test_the_newest_is_known_at_a_cut_whatever_the_indexes_have_lost(which: list[str], seed: int) -> None:
    random = Random(seed)
    times = [max(number + random.randrange(-20, 20), 0) for number in range(60)]
    disk, places = without_sums(times)
    for suffix in which:
        path = Path(f"/{BASE:020d}{suffix}")
        data = disk.bytes_at(path)
        left = random.choice((0, random.randrange(len(data)), len(data)))
        disk.overwrite(path, random.choice((data[:left], random.randbytes(left))))
    count = random.randrange(1, 60)
    segment = Segment(disk, Path("/"), Offset(BASE), 2, 200)
    segment.cut_indexes(places[count][1], Offset(BASE + count))
    assert segment.max_timestamp == START + max(times[:count])


def test_a_note_of_the_largest_time_counts_only_where_its_batch_has_that_time() -> None:
    """An index may be damaged, or of another log."""
    segment, places = filled(SimulatedDisk(Random(1)), [10] * 5)
    end = BASE + 2 * len(places)
    for number, (offset, position, size) in enumerate(places):
        segment.indexes.max_timestamp_offset = Offset(offset + 1)
        if number == len(places) - 1:
            assert segment.newest_before(Offset(end)) == (position, position + size)
        else:
            start, stop = segment.newest_before(Offset(end))
            assert stop is None and start <= places[-1][1]


@pytest.mark.parametrize(("first", "fits"), [(0x7FFFFFFE, True), (0x7FFFFFFF, False)])
def test_no_offset_of_a_segment_is_further_from_its_first_than_its_indexes_can_say(first: int, fits: bool) -> None:
    """Of two records the second one counts."""
    segment, _ = filled(SimulatedDisk(Random(1)), [0])
    data = bytearray(batch(2))
    stamp(data, 0, Offset(BASE + first), LeaderEpoch(0))
    if fits:
        assert segment.header(data, 0, 0, BASE).base_offset == BASE + first
    else:
        with pytest.raises(FileDamaged, match="cannot stand behind"):
            segment.header(data, 0, 0, BASE)


def test_a_gap_in_a_file_that_has_become_shorter_is_a_hole() -> None:
    """What was there may have been cut out of it, and what comes then moved to the front."""
    disk = SimulatedDisk(Random(1))
    segment = Segment(disk, Path("/"), Offset(BASE), 1, 200)
    for offset in (BASE, BASE + 10):
        data = bytearray(batch(2, size=500))
        stamp(data, 0, Offset(offset), LeaderEpoch(0))
        segment.append(data, read_header(data), Offset(offset))
    assert [header.base_offset for _, header in segment.headers_from(0)] == [BASE, BASE + 10]
    segment.file.truncate(segment.size - 1)
    with pytest.raises(FileDamaged, match="the file ends there"):
        list(segment.headers_from(0))
