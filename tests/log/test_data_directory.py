"""What in a data directory is ours to remove, and what is left whatever happens."""

from __future__ import annotations

import asyncio
import os
import uuid
from pathlib import Path
from random import Random

import pytest
from tests.log.log_doubles import ROOT, Node, StoppedClock, append, batch, delete_topic, run, topic_id, values_of

from fencepost.log.data_directory import DirectoryUnusable
from fencepost.log.disk import Disk, LocalDisk
from fencepost.log.settings import LogSettings
from fencepost.log.storage import Storage
from fencepost.simulation.disk import SimulatedDisk

TWO = [("a", 0), ("b", 0)]
SEGMENT = f"{0:020d}.log"
GONE = uuid.UUID(int=7)


def tree(disk: Disk, path: Path = ROOT) -> dict[str, bytes]:
    """Every file below a directory with its content; a directory ends in a slash."""
    found: dict[str, bytes] = {}
    for name in disk.list(path):
        if disk.is_directory(path / name):
            found[f"{name}/"] = b""
            found |= {f"{name}/{inner}": data for inner, data in tree(disk, path / name).items()}
        else:
            file = disk.open(path / name)
            found[name] = file.pread(file.size(), 0)
            file.close()
    return found


def put(disk: Disk, path: Path, data: bytes = b"somebody's") -> None:
    disk.make_directory(path.parent)
    file = disk.open(path)
    file.truncate(0)
    file.pwrite(data, 0)
    file.close()


FOREIGN = [
    "orders-0-backup-20261121/" + SEGMENT,
    "other-0/" + SEGMENT,
    "other-0/partition.metadata",
    "a-0-copy/" + SEGMENT,
    "a-1/" + SEGMENT,
    "a-7",  # a file
    "x-0.aaaa-delete/" + SEGMENT,
    f"x-0.{GONE.hex}-delete.old/" + SEGMENT,
    "notes.txt",
    "-delete/" + SEGMENT,
    "__cluster_metadata-0/" + SEGMENT,
]


@pytest.mark.parametrize("local", [False, True])
def test_what_nobody_knows_is_named_in_one_line_and_left(
    local: bool, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async def main() -> None:
        root = tmp_path if local else ROOT
        disk: Disk = LocalDisk() if local else SimulatedDisk(Random(1))
        for name in FOREIGN:
            put(disk, root / name)
        before = tree(disk, root)
        node = Node(disk, TWO, root=root)
        append(node.of("a"), batch())
        await node.settled()
        for again in (node.restart, lambda: node.storage.abandon(), node.start, node.restart):
            again()
        node.storage.close()
        assert before.items() <= tree(disk, root).items()
        said = [line for line in caplog.messages if "is left as it is" in line]
        assert len(said) == 4 and len(caplog.messages) == 4
        assert said[0].count(",") < 8 and "and 5 more" in said[0]

    run(main())


@pytest.mark.parametrize("inside", [False, True])
def test_whatever_it_is_called_a_line_of_the_log_is_one_line(
    inside: bool, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """A stray, or what somebody has put into the directory of a topic that is deleted."""
    names = ["a\n2026-11-25 CRITICAL it all burns", "b\x1b[31m", os.fsdecode(b"c\xff\xfe"), "d\r", "e e"]

    async def main() -> None:
        node = Node(LocalDisk(), TWO, root=tmp_path, file_delete_delay_ms=0)
        for name in names:
            (node.partition.directory if inside else tmp_path).joinpath(name).mkdir()
        if inside:
            node.storage.delete_partition(node.partition)
            await node.settled()
        else:
            node.restart()
        node.storage.close()

    run(main())
    (line,) = caplog.messages
    assert line.isprintable() and all(part in line for part in (r"burns", r"\x1b", r"\udcff", "e e"))


AMONG_OURS = [
    "notes.log",
    "1.log",
    f"{0:020d} (copy).log",
    f"-{0:019d}.log",
    "x.index",
    "x.snapshot",
    f"{0:020d}.log.bak",
    "x.log.deleted",
    "x.log.cleaned",
    f"{0:020d}.cleaned.txt",
    "\u0663" * 20 + ".log",
]


@pytest.mark.parametrize("flush", ["durable", "os"])
def test_somebodys_files_among_ours_stop_nothing_and_stay(flush: str) -> None:
    """By their suffixes they might be segments, snapshots, generations of the commit log, or what is to be removed."""

    async def main() -> None:
        node = Node(flush=flush, file_delete_delay_ms=0, segment_bytes=100)
        put_among_ours = {f"{place}/{name}" for place in ("t-0", "commit-log") for name in AMONG_OURS}
        for name in put_among_ours:
            put(node.disk, ROOT / name)
        for number in range(3):
            append(node.partition, batch(tag=f"{number}"))
            node.storage.checkpoint_soon()
            await asyncio.sleep(0)
            await node.settled()
            (node.kill, node.restart, node.lose_power)[number]()
            for name in put_among_ours:
                put(node.disk, ROOT / name)  # a power loss has taken them
        node.restart()
        assert values_of(node.partition) == [b"0", b"1", b"2"]
        found = tree(node.disk)
        assert {name for name, data in found.items() if data == b"somebody's"} == put_among_ours

    run(main())


def test_somebodys_segment_in_an_offline_partition_is_not_said_to_be_deleted() -> None:
    async def main() -> None:
        node = Node(partitions=TWO)
        append(node.of("a"), batch())
        await node.settled()
        node.storage.close()
        put(node.disk, ROOT / "a-0" / "partition.metadata", b"?")
        put(node.disk, ROOT / "a-0" / "notes.log")
        node.start()
        node.storage.delete_partition(node.storage.offline["a", 0])
        await node.settled()
        node.names = [("b", 0)]
        node.kill()
        assert node.disk.exists(ROOT / "a-0" / "notes.log")

    run(main())


def test_a_users_file_in_a_partition_outlives_its_topic(caplog: pytest.LogCaptureFixture) -> None:
    async def main() -> None:
        node = Node(partitions=TWO, file_delete_delay_ms=0)
        mine = [f"{0:020d}.log.bak", f"{0:020d}.log.deleted.1", f"{0:020d}.log.gz", f"{0:020d}.mine", "mine.txt"]
        for name in mine:
            put(node.disk, ROOT / "a-0" / name)
        for name in ("log.deleted", "index.cleaned", f"{9:020d}.swap"):
            put(node.disk, ROOT / "a-0" / f"{0:020d}.{name}")
        delete_topic(node.storage, "a")
        await node.settled()
        (gone,) = [name for name in node.disk.list(ROOT) if name.startswith("a-0")]
        assert node.disk.list(ROOT / gone) == mine
        node.names = [("b", 0)]
        node.kill()
        assert node.disk.list(ROOT / gone) == mine

    run(main())
    assert "mine.txt there" in caplog.text


@pytest.mark.parametrize("clean", [False, True])
def test_a_directory_of_another_id_is_not_written_to(clean: bool) -> None:
    """One changed letter in partition.metadata, or another directory in its place: offline, and not a byte changes.

    When the file is put right everything is there that was acknowledged, though it was in the commit log alone.
    """

    async def main(seed: int) -> None:
        disk = SimulatedDisk(Random(seed))
        node = Node(disk, TWO, checkpoint_bytes=1500)
        for number in range(9):
            append(node.of("a"), batch(tag=f"{number}", size=100))
            append(node.of("b"), batch())
            await node.settled()
        if clean:
            node.storage.close()
        elif seed % 2:
            disk.crash()
        else:
            disk.power_loss()
        file = disk.open(ROOT / "a-0" / "partition.metadata")
        right = file.pread(99, 0)
        if not right:
            return  # the power loss took it
        file.pwrite(b"A" if right[30:31] != b"A" else b"B", 30)
        if seed % 3 == 0:
            put(disk, ROOT / "a-0" / SEGMENT, b"another topic's records")
        before = tree(disk, ROOT / "a-0")
        node.start()
        for number in range(3):
            assert "has topic id" in node.storage.offline["a", 0].reason
            assert tree(disk, ROOT / "a-0") == before
            append(node.of("b"), batch(size=900))
            await node.settled()
            node.restart() if number % 2 else node.kill()
        if seed % 3:
            file = disk.open(ROOT / "a-0" / "partition.metadata")
            file.pwrite(right, 0)
            node.kill()
            assert values_of(node.of("a")) == [f"{n}".encode() + bytes(100) for n in range(9)]

    for seed in range(12):
        run(main(seed))


@pytest.mark.parametrize(
    ("content", "why"),
    [(b"version: 0\ntopic_jd: ASNFZ4mrze_-3LqYdlQyEA", "cannot be read"), (b"\xff", "cannot be read")],
)
def test_an_id_that_cannot_be_read_stops_the_partition(content: bytes, why: str) -> None:
    async def main() -> None:
        node = Node(partitions=TWO)
        append(node.of("a"), batch(tag="kept"))
        node.storage.close()
        right = tree(node.disk, ROOT / "a-0")["partition.metadata"]
        put(node.disk, ROOT / "a-0" / "partition.metadata", content)
        node.start()
        assert why in node.storage.offline["a", 0].reason
        put(node.disk, ROOT / "a-0" / "partition.metadata", right)
        node.kill()
        assert values_of(node.of("a")) == [b"kept"]

    run(main())


@pytest.mark.parametrize("what", ["a directory", "a pipe", "a link to nothing"])
def test_what_stands_in_the_place_of_an_id_stops_its_partition_only(what: str, tmp_path: Path) -> None:
    """And nobody at all where the partition is a stray, or has the name of a deleted one."""

    def put_it(directory: Path) -> None:
        directory.mkdir(exist_ok=True)
        path = directory / "partition.metadata"
        path.unlink(missing_ok=True)
        if what == "a directory":
            path.mkdir()
        elif what == "a pipe":
            os.mkfifo(path)
        else:
            path.symlink_to(tmp_path / "nowhere")

    async def main(root: Path) -> None:
        node = Node(LocalDisk(), TWO, root=root)
        for name in ("a", "b"):
            append(node.of(name), batch(tag="kept"))
        await node.settled()
        node.storage.abandon()
        for name in ("a-0", "stray-0", f"stray-0.{GONE.hex}-delete"):
            put_it(root / name)
        for _ in range(2):
            node.start()
            assert str(root / "a-0" / "partition.metadata") in node.storage.offline["a", 0].reason
            assert values_of(node.of("b")) == [b"kept"]
            node.storage.close()
        place = root / "a-0" / "partition.metadata"
        place.rmdir() if place.is_dir() else place.unlink()
        node.start()
        assert values_of(node.of("a")) == [b"kept"]
        node.storage.close()
        assert not (tmp_path / "nowhere").exists()

    run(main(tmp_path / "data"))


@pytest.mark.parametrize("clean", [False, True])
def test_a_directory_that_was_taken_away_can_be_put_back(clean: bool) -> None:
    async def main() -> None:
        node = Node(partitions=TWO)
        append(node.of("a"), batch(tag="kept"))
        await node.settled()
        node.restart()
        append(node.of("a"), batch(tag="kept too"))
        await node.settled()
        node.storage.close() if clean else node.storage.abandon()
        node.disk.rename(ROOT / "a-0", ROOT / "elsewhere")
        for _ in range(2):
            node.start()
            assert "is gone" in node.storage.offline["a", 0].reason
            assert not node.disk.exists(ROOT / "a-0"), "it is not made anew, empty"
            node.storage.close()
        put(node.disk, ROOT / "a-0", b"a file")
        node.start()
        assert "is no directory" in node.storage.offline["a", 0].reason
        node.storage.close()
        node.disk.remove(ROOT / "a-0")
        node.disk.rename(ROOT / "elsewhere", ROOT / "a-0")
        node.start()
        assert values_of(node.of("a")) == [b"kept", b"kept too"]

    run(main())


def test_partitions_that_the_metadata_forgot_come_back_whole() -> None:
    """An older copy of the metadata was put back, for a while: what it does not know is a stray and loses nothing."""

    async def main(seed: int) -> None:
        disk = SimulatedDisk(Random(seed))
        node = Node(disk, TWO, checkpoint_bytes=1000)
        for number in range(seed):
            append(node.of("a"), batch(tag=f"{number}"))
            append(node.of("b"), batch(size=100))
            await node.settled()
        for number in range(2):
            node.names = [("b", 0)]
            node.kill() if seed % 2 or number else node.lose_power()
            append(node.of("b"), batch(size=2000))
            await node.settled()
        node.names = TWO
        node.kill()
        assert values_of(node.of("a")) == [f"{number}".encode() for number in range(seed)]

    for seed in range(8):
        run(main(seed))


def test_a_stray_that_is_moved_away_stops_nobody_and_its_name_is_free() -> None:
    async def main() -> None:
        node = Node(partitions=TWO)
        append(node.of("a"), batch(tag="old"))
        await node.settled()
        node.names = [("b", 0)]
        node.restart()
        assert node.storage.in_the_way("a", 0) == ROOT / "a-0"
        node.disk.rename(ROOT / "a-0", ROOT / "elsewhere")
        node.disk.sync_directory(ROOT)
        assert node.storage.in_the_way("a", 0) is None
        another = topic_id("another a")
        node.storage.create_partition("a", another, 0)
        append(node.of("a"), batch(tag="new"))
        await node.settled()
        disk = node.disk
        assert isinstance(disk, SimulatedDisk)
        for crash in (disk.crash, disk.power_loss, lambda: node.storage.close()):
            crash()
            node.storage = Storage(node.disk, ROOT, node.settings, node.clock)
            node.storage.take()
            node.storage.recover()
            node.storage.create_partition("a", another, 0)
            node.storage.create_partition("b", topic_id("b"), 0)
            node.storage.start()
            assert values_of(node.of("a")) == [b"new"]
            await node.settled()

    run(main())


def test_a_directory_of_apache_kafka_is_not_touched() -> None:
    disk = SimulatedDisk(Random(1))
    put(disk, ROOT / "meta.properties", b"version=1\n")
    put(disk, ROOT / "orders-0" / SEGMENT)
    before = tree(disk)
    storage = Storage(disk, ROOT, LogSettings(), StoppedClock())
    with pytest.raises(DirectoryUnusable, match=r"is one of Apache Kafka.*choose another --data"):
        storage.take()
    assert tree(disk) == before


def test_a_symbolic_link_is_followed_for_nothing_but_a_partition(tmp_path: Path) -> None:
    """A partition may lie on another disk; a deleted one's link goes, with the partition's files behind it."""

    async def main() -> None:
        node = Node(LocalDisk(), TWO, root=tmp_path / "data", file_delete_delay_ms=0)
        append(node.of("a"), batch(tag="kept"))
        await node.settled()
        node.storage.close()
        elsewhere, foreign = tmp_path / "elsewhere", tmp_path / "foreign"
        (tmp_path / "data" / "a-0").rename(elsewhere)
        (tmp_path / "data" / "a-0").symlink_to(elsewhere)
        put(LocalDisk(), foreign / SEGMENT)
        (tmp_path / "data" / "other-0").symlink_to(foreign)
        (tmp_path / "data" / "broken-0").symlink_to(tmp_path / "nowhere")
        node.start()
        assert values_of(node.of("a")) == [b"kept"]
        assert node.storage.in_the_way("broken", 0) is not None
        delete_topic(node.storage, "a")
        await node.settled()
        assert list(elsewhere.iterdir()) == []
        node.storage.close()
        assert [path.name for path in foreign.iterdir()] == [SEGMENT]
        assert sorted(path.name for path in (tmp_path / "data").iterdir() if path.is_symlink()) == [
            "broken-0",
            "other-0",
        ]

    run(main())
