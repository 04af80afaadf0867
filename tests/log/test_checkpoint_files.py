"""The small files beside the segments, in Apache Kafka's formats."""

from __future__ import annotations

import uuid
from pathlib import Path
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fencepost.log import checkpoint_files as files
from fencepost.protocol.types import LeaderEpoch, Offset
from fencepost.simulation.disk import SimulatedDisk

ROOT = Path("/")
TOPIC = uuid.UUID("01234567-89ab-cdef-fedc-ba9876543210")


def text(disk: SimulatedDisk, name: str) -> bytes:
    return disk.open(ROOT / name).pread(1000, 0)


def test_partition_metadata() -> None:
    disk = SimulatedDisk(Random(1))
    assert files.read_topic_id(disk, ROOT) is None
    files.write_partition_metadata(disk, ROOT, TOPIC)
    assert text(disk, "partition.metadata") == b"version: 0\ntopic_id: ASNFZ4mrze_-3LqYdlQyEA"
    assert files.read_topic_id(disk, ROOT) == TOPIC
    file = disk.open(ROOT / "partition.metadata")
    kept = file.pread(99, 0)
    for content in (b"", bytes(len(kept))):
        file.truncate(0)
        file.pwrite(content, 0)
        assert files.read_topic_id(disk, ROOT) is None, "as a power loss may leave it"


def test_partition_metadata_has_the_number_of_the_partition_behind_what_apache_kafka_reads() -> None:
    disk = SimulatedDisk(Random(1))
    directory = ROOT / "a-b-12"
    disk.make_directory(directory)
    assert files.read_identity(disk, directory) == (None, None)
    files.write_partition_metadata(disk, directory, TOPIC)
    assert text(disk, "a-b-12/partition.metadata") == (b"version: 0\ntopic_id: ASNFZ4mrze_-3LqYdlQyEA\npartition: 12\n")
    assert files.read_identity(disk, directory) == (TOPIC, 12)
    for shorter in range(43, 57):
        files.write_partition_metadata(disk, directory, TOPIC)
        disk.open(directory / "partition.metadata").truncate(shorter)
        assert files.read_identity(disk, directory) == (TOPIC, None), "half of a number is none"
        files.add_index(disk, directory)
        assert files.read_identity(disk, directory).topic_id == TOPIC


@given(st.integers(0, 42), st.integers(0, 255))
def test_a_changed_character_gives_another_id_or_is_told(at: int, character: int) -> None:
    disk = SimulatedDisk(Random(1))
    files.write_partition_metadata(disk, ROOT, TOPIC)
    kept = text(disk, "partition.metadata")
    disk.open(ROOT / "partition.metadata").pwrite(bytes((character,)), at)
    try:
        found = files.read_topic_id(disk, ROOT)
    except ValueError:
        return
    # The last letter has four bits that mean nothing.
    same = kept[at] == character or at < len("version: 0\n") or at == len(kept) - 1
    assert isinstance(found, uuid.UUID) and (found != TOPIC or same)


def test_leader_epochs() -> None:
    disk = SimulatedDisk(Random(1))
    assert files.read_leader_epochs(disk, ROOT) is None
    files.write_leader_epochs(disk, ROOT, [(LeaderEpoch(0), Offset(0)), (LeaderEpoch(4), Offset(17))])
    assert text(disk, "leader-epoch-checkpoint") == b"0\n2\n0 0\n4 17\n"
    assert files.read_leader_epochs(disk, ROOT) == [(0, 0), (4, 17)]
    assert disk.list(ROOT) == ["leader-epoch-checkpoint"]


@pytest.mark.parametrize(
    ("found", "refused"),
    [
        (b"", ""),
        (b"1\n", ""),
        (b"2\n", "use the newer Fencepost"),
        *(
            (wrong, "/fencepost.version is damaged")
            for wrong in (b"x", b"1\x1a", b"\0\0", "\u00b2".encode(), b"\xff\n", b"1\n" + bytes(10_000), b"9" * 5_000)
        ),
    ],
)
def test_the_format_of_the_directory(found: bytes, refused: str) -> None:
    disk = SimulatedDisk(Random(1))
    disk.open(ROOT / "fencepost.version").pwrite(found, 0)
    if refused:
        with pytest.raises(ValueError, match=refused) as told:
            files.check_version(disk, ROOT, 1, ValueError)
        assert len(str(told.value)) < 300, "a sentence, however long the file is"
    else:
        files.check_version(disk, ROOT, 1, ValueError)
        assert text(disk, "fencepost.version") == found, "it is only looked at"
        files.write_version(disk, ROOT, 1)
        assert text(disk, "fencepost.version") == (found or b"1\n")


def test_what_a_crash_left_of_another_file_is_not_part_of_the_next_one() -> None:
    disk = SimulatedDisk(Random(1))
    disk.open(ROOT / "starts.tmp").pwrite(b"1234567890\n", 0)
    files.write_starts(disk, ROOT, 7)
    assert text(disk, "starts") == b"7\n"
    assert files.read_starts(disk, ROOT) == 7


@pytest.mark.parametrize(
    ("written", "number"),
    [
        (None, 0),
        (b"0\n", 0),
        (b"12\n", 12),
        (b"12", 12),
        (b"", None),
        (b"-1\n", None),
        (b"1 2\n", None),
        (b"\xff", None),
    ],
)
def test_a_number_of_starts_is_one_only_where_there_is_nothing_else(written: bytes | None, number: int | None) -> None:
    disk = SimulatedDisk(Random(1))
    if written is not None:
        disk.open(ROOT / "starts").pwrite(written, 0)
    assert files.read_starts(disk, ROOT) == number


def test_nothing_is_left_of_a_longer_file_that_was_there() -> None:
    disk = SimulatedDisk(Random(1))
    disk.open(ROOT / "partition.metadata").pwrite(b"version: 0\ntopic_id: " + b"x" * 100, 0)
    files.write_partition_metadata(disk, ROOT, TOPIC)
    assert text(disk, "partition.metadata") == b"version: 0\ntopic_id: ASNFZ4mrze_-3LqYdlQyEA"


@pytest.mark.parametrize("epochs", [[(0, 0), (1, 0)], [(0, 0), (1, 17), (3, 17), (4, 18)]])
def test_nothing_may_have_been_written_in_a_leader_epoch(epochs: list[tuple[LeaderEpoch, Offset]]) -> None:
    disk = SimulatedDisk(Random(1))
    files.write_leader_epochs(disk, ROOT, epochs)
    assert files.read_leader_epochs(disk, ROOT) == epochs
