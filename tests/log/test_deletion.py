"""What is deleted goes, and nothing that only has its name or its place."""

from __future__ import annotations

import asyncio
import uuid
from pathlib import Path
from random import Random

import pytest
from tests.log.log_doubles import ROOT, Node, append, batch, delete_topic, run, topic_id, values_of
from tests.log.test_data_directory import GONE, SEGMENT, put

from fencepost.log.checkpoint_files import write_partition_metadata
from fencepost.log.data_directory import DeletedTopic, deleted_name, remove_partition, survey
from fencepost.log.disk import LocalDisk
from fencepost.log.partition import Partition, Refused
from fencepost.log.storage import Storage
from fencepost.log.upkeep import upkeep
from fencepost.protocol.types import Milliseconds, Offset
from fencepost.runtime import at_once
from fencepost.simulation.disk import SimulatedDisk


def test_what_is_known_to_be_deleted_is_removed(caplog: pytest.LogCaptureFixture) -> None:
    """By its name, in today's form and yesterday's, or by its topic id; yet never what somebody has put there."""
    names = {
        f"old-0.{GONE.hex}-delete": GONE,
        f"empty-0.{GONE.hex}-delete": None,
        "killed-3": GONE,
        f"mine-0.{GONE.hex}-delete": GONE,
        f"lying-0.{GONE.hex}-delete": uuid.UUID(int=8),
        "alive-0": uuid.UUID(int=8),
    }

    async def main() -> None:
        node = Node()
        node.storage.close()
        disk = node.disk
        for name, identifier in names.items():
            for file in (SEGMENT, f"{0:020d}.index", f"{5:020d}.snapshot", "leader-epoch-checkpoint"):
                put(disk, ROOT / name / file)
            if identifier is not None:
                write_partition_metadata(disk, ROOT / name, identifier)
        put(disk, ROOT / f"mine-0.{GONE.hex}-delete" / "my notes")
        put(disk, ROOT / f"mine-0.{GONE.hex}-delete" / f"{0:020d}.d" / "a file in a directory of that name")
        node.storage = Storage(disk, ROOT, node.settings, node.clock)
        node.storage.take()
        node.storage.recover()
        node.storage.deleted = {GONE: DeletedTopic("killed", 4)}
        node.storage.create_partition("t", topic_id("t"), 0)
        node.storage.start()
        left = {name for name in disk.list(ROOT) if name in names}
        assert left == {f"mine-0.{GONE.hex}-delete", f"lying-0.{GONE.hex}-delete", "alive-0"}
        kept = disk.list(ROOT / f"mine-0.{GONE.hex}-delete")
        assert kept == [f"{0:020d}.d", "my notes"], "whatever is ours has gone"
        assert len(disk.list(ROOT / "alive-0")) == 5

    run(main())
    assert [line for line in caplog.messages if "my notes" in line] and len(caplog.messages) == 2


def test_what_cannot_be_removed_is_said(tmp_path: Path) -> None:
    disk = LocalDisk()
    put(disk, tmp_path / "a-0" / SEGMENT)

    class Stubborn(LocalDisk):
        def remove(self, path: Path) -> None:
            raise PermissionError(13, "Permission denied", str(path))

    assert "cannot be removed: [Errno 13] Permission denied" in remove_partition(Stubborn(), tmp_path / "a-0")
    assert remove_partition(disk, tmp_path / "a-0") == "" and not (tmp_path / "a-0").exists()
    assert remove_partition(disk, tmp_path / "a-0") == ""


def test_a_directory_that_has_the_name_of_a_file_of_ours_is_left_and_said(tmp_path: Path) -> None:
    """Files of ours that come after it go."""
    disk, theirs = LocalDisk(), f"{0:020d}.index"
    for name in (f"{theirs}/a note", SEGMENT, f"{0:020d}.timeindex"):
        put(disk, tmp_path / "a-0" / name)
    assert f"somebody has put {theirs} there" in remove_partition(disk, tmp_path / "a-0")
    assert disk.list(tmp_path / "a-0") == [theirs]
    assert disk.list(tmp_path / "a-0" / theirs) == ["a note"]


@pytest.mark.parametrize(
    ("name", "is_removed"),
    [
        ("t-1", True),
        ("t-0-backup-20261121", False),
        ("t-2", False),
        ("t-01", False),
        ("tt-0", False),
        ("t-\u0661", False),
    ],
)
@pytest.mark.parametrize("identified", [False, True])
def test_a_copy_of_a_deleted_partition_is_not_removed_with_it(name: str, is_removed: bool, identified: bool) -> None:
    """It has the topic's id, but a name that none of the topic's partitions had."""
    disk = SimulatedDisk(Random(1))
    put(disk, ROOT / name / SEGMENT)
    if identified:
        write_partition_metadata(disk, ROOT / name, GONE)
    found = survey(disk, ROOT, in_use=(), deleted={GONE: DeletedTopic("t", 2)})
    assert (found.deleted, found.strays) == (([name], []) if is_removed else ([], [name]))


@pytest.mark.parametrize("name", ["a", "a" * 249, "a-0", "-" * 249, "a-0.deleted-delete", ".", "a" * 213, "a" * 214])
@pytest.mark.parametrize("index", [0, 9999])
def test_the_name_of_what_is_deleted_fits(name: str, index: int) -> None:
    gone = deleted_name(f"{name}-{index}", GONE.bytes)
    assert len(gone) <= 255 and gone.endswith(f"-{index}.{GONE.hex}-delete")
    assert name.startswith(gone.removesuffix(f"-{index}.{GONE.hex}-delete"))


@pytest.mark.parametrize(("its_id", "deleted"), [("old", ["t-0"]), ("new", []), (None, ["t-0"])])
def test_only_the_topic_that_was_deleted_is_removed_and_none_of_its_name(
    its_id: str | None, deleted: list[str]
) -> None:
    """Without an id, which a power loss may have taken, the name tells."""
    disk, ids = SimulatedDisk(Random(1)), {"old": uuid.UUID(int=1), "new": uuid.UUID(int=2)}
    disk.make_directory(ROOT / "t-0")
    if its_id is not None:
        write_partition_metadata(disk, ROOT / "t-0", ids[its_id])
    found = survey(disk, ROOT, in_use=(), deleted={ids["old"]: DeletedTopic("t", 1)})
    assert (found.deleted, found.strays) == (deleted, [] if deleted else ["t-0"])


@pytest.mark.parametrize("count", range(1, 5))
@pytest.mark.parametrize("fails", ["kill", "power"])
def test_what_was_begun_in_the_place_of_a_deleted_partition_and_not_durable_stops_no_start(
    fails: str, count: int
) -> None:
    """The segments of the new one are not named yet, and those of the old one are, as removed."""

    async def main() -> None:
        disk = SimulatedDisk(Random(count))
        node = Node(disk, segment_bytes=150)
        for number in range(5):
            append(node.partition, batch(5, tag=f"old {number}"))
        node.restart()
        await node.settled()
        assert delete_topic(node.storage, "t")
        await node.settled()
        new = uuid.uuid4()
        node.storage.create_partition("t", new, 0)
        for number in range(count):
            append(node.partition, batch(2, tag=f"{number}"))
        node.storage.abandon()
        (disk.crash if fails == "kill" else disk.power_loss)()
        for _ in range(2):
            storage = Storage(disk, ROOT, node.settings, node.clock)
            storage.take()
            storage.recover()
            found = storage.create_partition("t", new, 0)
            storage.start()
            assert isinstance(found, Partition), found
            assert values_of(found) == []
            storage.close()

    run(main())


@pytest.mark.parametrize("count", range(1, 5))
def test_what_was_written_in_the_place_of_a_deleted_partition_survives_a_kill_where_nothing_is_synced(
    count: int,
) -> None:
    """Its segments begin at the offsets of removed ones, and all but the first are not named yet."""

    async def main() -> None:
        disk = SimulatedDisk(Random(count))
        node = Node(disk, flush="os", segment_bytes=150)
        for number in range(5):
            append(node.partition, batch(tag=f"old {number}"))
        await node.settled()
        assert delete_topic(node.storage, "t")
        new = uuid.uuid4()
        node.storage.create_partition("t", new, 0)
        await node.settled()
        for number in range(count):
            append(node.partition, batch(tag=f"{number}"))
        node.storage.abandon()
        disk.crash()
        storage = Storage(disk, ROOT, node.settings, node.clock, flush="os")
        storage.take()
        storage.recover()
        found = storage.create_partition("t", new, 0)
        storage.start()
        assert isinstance(found, Partition), found
        assert values_of(found) == [b"%d" % number for number in range(count)]
        storage.close()

    run(main())


def test_what_a_start_has_removed_stays_removed_after_a_power_loss() -> None:
    """Nobody knows by then that it was deleted: it would be a stray for ever."""

    async def main() -> None:
        for seed in range(20):
            node = Node(SimulatedDisk(Random(seed)))
            node.storage.close()
            put(node.disk, ROOT / "killed-3" / SEGMENT)
            write_partition_metadata(node.disk, ROOT / "killed-3", GONE)
            for directory in (ROOT / "killed-3", ROOT):
                node.disk.sync_directory(directory)
            node.storage = Storage(node.disk, ROOT, node.settings, node.clock)
            node.storage.take()
            node.storage.recover()
            node.storage.deleted = {GONE: DeletedTopic("killed", 4)}
            node.storage.create_partition("t", topic_id("t"), 0)
            node.storage.start()
            assert isinstance(node.disk, SimulatedDisk)
            node.lose_power()
            assert not node.disk.exists(ROOT / "killed-3")

    run(main())


def test_retention_of_a_deleted_topic_takes_nothing_of_the_one_that_is_made_anew() -> None:
    async def main() -> None:
        node = Node(None, [("s", 0), ("t", 0)], retention_ms=1000)
        for topic in "st":
            append(node.of(topic), batch(4))
        await node.settled()
        looking = upkeep(node.storage, Milliseconds(node.clock.at + 5000))
        next(looking)
        assert (node.of("s").log_start_offset, node.of("t").log_start_offset) == (4, 0)
        assert delete_topic(node.storage, "t")
        fresh = node.storage.create_partition("t", uuid.UUID(int=9), 0)
        assert isinstance(fresh, Partition)
        append(fresh, batch(2, timestamp=node.clock.at + 5000, tag="new"))
        at_once(looking)
        await node.storage.durability.wait(node.storage.last_appended)
        node.storage.abandon()
        assert isinstance(node.disk, SimulatedDisk)
        node.disk.crash()
        storage = Storage(node.disk, ROOT, node.settings, node.clock)
        storage.take()
        storage.recover()
        fresh = storage.create_partition("t", uuid.UUID(int=9), 0)
        assert isinstance(fresh, Partition)
        storage.start()
        assert values_of(fresh) == [b"new", b"new"]
        assert (fresh.log_start_offset, fresh.log_end_offset, fresh.segments.bases) == (0, 2, [0])

    run(main())


def test_a_segment_that_was_dropped_of_a_deleted_topic_is_not_looked_for_in_the_one_that_is_made_anew() -> None:
    """Its files have gone with the topic's directory, and others have their names."""

    async def main() -> None:
        node = Node()
        append(node.partition, batch(4))
        node.partition.roll()
        append(node.partition, batch())
        await node.settled()
        node.restart()
        assert not isinstance(node.partition.delete_records(Offset(4)), Refused)
        assert node.partition.segments.bases == [4]
        assert delete_topic(node.storage, "t")
        fresh = node.storage.create_partition("t", uuid.UUID(int=9), 0)
        assert isinstance(fresh, Partition)
        append(fresh, batch(2, tag="new"))
        await node.storage.durability.wait(node.storage.last_appended)
        await node.settled()
        assert [name for name in node.disk.list(ROOT / "t-0") if name.endswith((".log", ".deleted"))] == [SEGMENT]

    run(main())


@pytest.mark.parametrize("delay_ms", [0, 5_000])
def test_files_of_a_deleted_topic_go_when_file_delete_delay_ms_is_over(delay_ms: int) -> None:
    """Until then whoever still reads them may, and nobody finds them under their name."""

    async def main() -> None:
        node = Node(file_delete_delay_ms=delay_ms)
        append(node.partition, batch())
        await node.settled()
        delete_topic(node.storage, "t")
        await node.settled()
        left = deleted_name("t-0", topic_id("t").bytes)
        await asyncio.sleep(delay_ms / 1000 - 1 if delay_ms else 1)
        assert node.disk.exists(ROOT / left) == (delay_ms > 0)
        await asyncio.sleep(2)
        assert not node.disk.exists(ROOT / left)
        assert not node.disk.exists(ROOT / "t-0")

    run(main())


@pytest.mark.parametrize("stops", [True, False])
def test_a_node_that_has_ended_removes_nothing_any_more(stops: bool) -> None:
    """What was to go later goes at the next start: another node may have the directory by then."""

    async def main() -> None:
        node = Node(file_delete_delay_ms=1000)
        append(node.partition, batch())
        await node.settled()
        delete_topic(node.storage, "t")
        await node.settled()
        (node.storage.close if stops else node.storage.abandon)()
        await asyncio.sleep(2)
        assert node.disk.exists(ROOT / deleted_name("t-0", topic_id("t").bytes))

    run(main())
