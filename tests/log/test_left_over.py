"""What is left over on the disk goes, and what is needed once more stays."""

from __future__ import annotations

import uuid
from random import Random

import pytest
from tests.log.log_doubles import ROOT, Node, append, batch, run
from tests.log.test_data_directory import put

from fencepost.log import opening
from fencepost.log.checkpoint import completed
from fencepost.log.checkpoint_files import write_partition_metadata
from fencepost.log.offline import OfflinePartition, PartitionDamaged
from fencepost.log.partition import Partition
from fencepost.log.producer_snapshot import snapshot_exists, snapshot_offsets, write_snapshot
from fencepost.protocol.types import Offset
from fencepost.simulation.disk import SimulatedDisk

T = ROOT / "t-0"


@pytest.mark.parametrize("seed", range(8))
def test_what_a_start_has_removed_does_not_come_back_when_power_is_lost_after_it(seed: int) -> None:
    """As an index whose segment a power loss took: a new segment would find it."""

    async def main() -> None:
        disk = SimulatedDisk(Random(seed))
        node = Node(disk)
        append(node.partition, batch(3))
        node.restart()
        left = [T / f"{9:020d}{suffix}" for suffix in (".index", ".timeindex", ".txnindex")]
        for path in left:
            put(disk, path)
            file = disk.open(path)
            disk.sync_now([file])
            file.close()
        disk.sync_directory(T)
        node.kill()
        assert [path for path in left if disk.exists(path)] == []
        node.storage.abandon()
        disk.power_loss()
        assert [path for path in left if disk.exists(path)] == []

    run(main())


def test_what_was_known_of_producers_behind_the_last_checkpoint_is_not_known_after_a_start() -> None:
    """Where the log comes to that offset again it would be taken for what was written down then."""

    async def main() -> None:
        node = Node()
        append(node.partition, batch(3))
        node.restart()
        files = write_snapshot(node.disk, T, Offset(9), [])
        node.disk.sync_now(files)
        for file in files:
            file.close()
        node.kill()
        assert not snapshot_exists(node.disk, T, Offset(9))
        assert snapshot_exists(node.disk, T, Offset(3))

    run(main())


def test_what_was_known_of_producers_where_a_segment_begins_outlasts_each_checkpoint() -> None:
    """It is all that says who is known of before the log, when the older segments are gone."""

    async def main() -> None:
        node = Node()
        for _ in range(3):
            append(node.partition, batch(3))
            node.partition.roll()
        append(node.partition, batch(1))
        for offset in (3, 5, 6, 9, 10):
            for file in write_snapshot(node.disk, T, Offset(offset), []):
                file.close()
        completed(node.disk, node.partition, Offset(10))
        assert set(snapshot_offsets(node.disk, T)) - {0} == {3, 6, 9, 10}

    run(main())


@pytest.mark.parametrize("is_ours", [True, False])
def test_nothing_is_said_any_more_of_a_partition_that_could_not_be_opened_once_it_is_deleted(
    is_ours: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nor is it to be remembered that it is deleted: it is not there under its name, or is another topic's."""

    def fail(*_: object) -> None:
        raise PartitionDamaged("it is said to be damaged")

    async def main() -> None:
        node = Node()
        append(node.partition, batch(3))
        await node.settled()
        with monkeypatch.context() as patched:
            patched.setattr(opening, "recover", fail)
            node.restart()
        offline = node.storage.offline["t", 0]
        assert isinstance(offline, OfflinePartition)
        aside = node.storage._checkpoints.aside
        assert aside.directories() == ["t-0"]
        if not is_ours:
            node.disk.remove(T / "partition.metadata")
            write_partition_metadata(node.disk, T, uuid.UUID(int=9))
        assert node.storage.delete_partition(offline)
        assert aside.directories() == []
        assert node.disk.exists(T) == (not is_ours)
        assert not isinstance(node.storage.partition("t", 0), Partition)

    run(main())
