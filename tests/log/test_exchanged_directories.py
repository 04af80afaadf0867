"""Directories of partitions of one topic that are in each other's place, or in which there is a copy of another one."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.log.log_doubles import ROOT, Node, append, batch, run, values_of
from tests.log.test_data_directory import put, tree

from fencepost.log.checkpoint_files import read_identity
from fencepost.simulation.disk import SimulatedDisk


def swap(disk: SimulatedDisk, one: Path, other: Path) -> None:
    aside = one.with_name("aside")
    for old, fresh in ((one, aside), (other, one), (aside, other)):
        disk.rename(old, fresh)
        disk.sync_directory(ROOT)


def copy_over(disk: SimulatedDisk, one: Path, other: Path) -> None:
    """The same files for both."""
    for name in disk.list(other):
        disk.remove(other / name)
    for name, data in tree(disk, one).items():
        put(disk, other / name, data)


@pytest.mark.parametrize("flush", ["durable", "os"])
@pytest.mark.parametrize("end", ["stopped", "killed"])
@pytest.mark.parametrize("checkpoint_bytes", [1, 1 << 20])
def test_partitions_in_each_others_place_are_not_served_nor_written_to(
    flush: str, end: str, checkpoint_bytes: int
) -> None:
    """Of one topic and of one length.  When they are put back everything is there."""

    async def main() -> None:
        node = Node(partitions=[("a", 0), ("a", 1), ("a", 12)], flush=flush, checkpoint_bytes=checkpoint_bytes)
        disk = node.disk
        assert isinstance(disk, SimulatedDisk)
        for index in (0, 1, 12):
            append(node.of("a", index), batch(tag=f"{index:02d}"))
            await node.settled()
        node.storage.close() if end == "stopped" else disk.crash()
        swap(disk, ROOT / "a-1", ROOT / "a-12")
        before = tree(disk, ROOT / "a-1") | tree(disk, ROOT / "a-12")
        for _ in range(2):
            node.start()
            for index, said in ((1, 12), (12, 1)):
                assert f"says that the directory is of partition {said}" in node.storage.offline["a", index].reason
            assert values_of(node.of("a")) == [b"00"]
            assert tree(disk, ROOT / "a-1") | tree(disk, ROOT / "a-12") == before
            node.storage.close()
        swap(disk, ROOT / "a-1", ROOT / "a-12")
        node.start()
        for index in (0, 1, 12):
            assert values_of(node.of("a", index)) == [f"{index:02d}".encode()]

    run(main())


def test_a_copy_of_another_partition_in_the_place_of_one_is_not_served() -> None:
    async def main() -> None:
        node = Node(partitions=[("a", 0), ("a", 1)])
        disk = node.disk
        assert isinstance(disk, SimulatedDisk)
        for index in range(2):
            append(node.of("a", index), batch(tag=f"{index}"))
        node.storage.close()
        copy_over(disk, ROOT / "a-0", ROOT / "a-1")
        node.start()
        assert node.storage.offline["a", 1].directory == ROOT / "a-1"
        assert values_of(node.of("a")) == [b"0"]

    run(main())


@pytest.mark.parametrize("cut", range(len(b"\npartition: 0\n") + 1))
def test_the_directory_of_an_older_version_is_served_and_told_from_now_on(cut: int) -> None:
    """It says no number; nor does one in which a power loss left a part of that, or zeros."""

    async def main() -> None:
        node = Node(partitions=[("a", 0), ("a", 1)])
        disk = node.disk
        assert isinstance(disk, SimulatedDisk)
        for index in range(2):
            append(node.of("a", index), batch(tag=f"{index}"))
        node.storage.close()
        written = {index: tree(disk, ROOT / f"a-{index}")["partition.metadata"] for index in range(2)}
        for index, whole in written.items():
            of_kafka, line = whole[:43], whole[43:]
            assert len(line) == len(b"\npartition: 0\n")
            left = line[:cut] if index else line[:cut] + bytes(len(line) - cut)
            put(disk, ROOT / f"a-{index}" / "partition.metadata", of_kafka + left)
        node.start()
        for index in range(2):
            assert values_of(node.of("a", index)) == [f"{index}".encode()]
            assert tree(disk, ROOT / f"a-{index}")["partition.metadata"].startswith(written[index][:43])
        node.storage.close()
        swap(disk, ROOT / "a-0", ROOT / "a-1")
        node.start()
        assert len(node.storage.offline) == 2

    run(main())


@pytest.mark.parametrize("has_zeros", [False, True])
@pytest.mark.parametrize("cut", range(len(b"\npartition: 12\n") + 1))
def test_half_of_a_number_that_a_power_loss_left_is_not_taken_for_one(cut: int, has_zeros: bool) -> None:
    """Nor does it become one when the whole is written behind it."""

    async def main() -> None:
        node = Node(partitions=[("a", 12)])
        disk, file = node.disk, ROOT / "a-12" / "partition.metadata"
        assert isinstance(disk, SimulatedDisk)
        append(node.of("a", 12), batch(tag="12"))
        node.storage.close()
        whole = tree(disk, ROOT / "a-12")["partition.metadata"]
        left = whole[: 43 + cut]
        put(disk, file, left + bytes(len(whole) - len(left)) if has_zeros else left)
        for _ in range(2):
            node.start()
            assert values_of(node.of("a", 12)) == [b"12"]
            assert read_identity(disk, ROOT / "a-12").partition == 12
            node.storage.close()

    run(main())
