"""What a segment's files were: any damage to the record of it is seen, and a file that was appended to is the same."""

from __future__ import annotations

from pathlib import Path
from random import Random

import pytest
from crc32c import crc32c

from fencepost.log.segment_sums import FileSum, SegmentSums, read_sums
from fencepost.protocol.types import Milliseconds, Offset
from fencepost.simulation.disk import SimulatedDisk

PATH, INDEX = Path("/0.checksums"), Path("/0.index")
SUMS = SegmentSums(
    100, Offset(7), Milliseconds(1_600_000_000_000), Offset(3), FileSum(8, 1), FileSum(0, 0), FileSum(34, 2**32 - 1)
)


def written() -> SimulatedDisk:
    disk = SimulatedDisk(Random(1))
    file = SUMS.write(disk, PATH)
    disk.sync_now([file])
    file.close()
    return disk


def content(disk: SimulatedDisk) -> bytes:
    file = disk.open(PATH)
    return file.pread(file.size(), 0)


def test_what_was_written_is_read() -> None:
    assert read_sums(written(), PATH) == SUMS


@pytest.mark.parametrize("bit", range(8))
def test_no_damaged_byte_is_believed(bit: int) -> None:
    whole = content(written())
    for at in range(len(whole)):
        disk = written()
        disk.open(PATH).pwrite(bytes([whole[at] ^ 1 << bit]), at)
        assert read_sums(disk, PATH) is None, at


def test_nor_is_one_of_another_length() -> None:
    size = len(content(written()))
    for length in (0, 1, size - 1):
        disk = written()
        disk.open(PATH).truncate(length)
        assert read_sums(disk, PATH) is None
    disk = written()
    disk.open(PATH).pwrite(b"\0", size)
    assert read_sums(disk, PATH) is None


@pytest.mark.parametrize(("there", "is_of"), [(b"12345678", True), (b"12345678 more", True), (b"1234567", False)])
def test_a_file_that_was_appended_to_begins_as_it_was(there: bytes, is_of: bool) -> None:
    disk = written()
    disk.open(INDEX).pwrite(there, 0)
    assert FileSum(8, crc32c(b"12345678")).is_of(disk, INDEX) is is_of
    assert not FileSum(8, crc32c(b"12345679")).is_of(disk, INDEX)
