"""Whatever the disk does to the cleaner, it goes on with what it can, and the node ends only where it must."""

from __future__ import annotations

import asyncio
import errno
from collections.abc import Callable
from pathlib import Path
from random import Random
from typing import Any

import pytest
from tests.log.cleaner_doubles import SETTINGS, cleaner_of
from tests.log.log_doubles import START, Node, append, run

from fencepost.log.cleaner import rewriting, swapping
from fencepost.log.damage import FileDamaged
from fencepost.log.disk import DiskFull, File, NoDescriptors
from fencepost.log.partition import Partition
from fencepost.log.settings import LONG
from fencepost.protocol.batch import BatchHeader
from fencepost.protocol.records import encode_batch
from fencepost.simulation.disk import SimulatedDisk

NAMES = [("a", 0), ("b", 0), ("c", 0)]


class Disk(SimulatedDisk):
    """Fails where it is told to."""

    def __init__(self) -> None:
        super().__init__(Random(1))
        self.error: OSError | None = None
        self.where = ""

    def open(self, path: Path) -> File:
        self._meet(path)
        return super().open(path)

    def rename(self, old: Path, new: Path) -> None:
        self._meet(new)
        super().rename(old, new)

    def _meet(self, path: Path) -> None:
        if self.error is not None and self.where in f"{path}|":
            raise self.error


async def filled(disk: Disk, **settings: Any) -> Node:
    """Journals that have something to clean, and must roll before they can."""
    node = Node(disk, NAMES, **{**SETTINGS, "segment_bytes": 1_000_000, "journal_roll_bytes": 1_000, **settings})
    for name, _ in NAMES:
        for _ in range(20):
            append(node.of(name), encode_batch([(START, b"k", bytes(200), ())]))
    await node.settled()
    return node


def records(node: Node, name: str) -> int:
    return len(list(node.of(name).scan()))


async def look(node: Node) -> None:
    """Let the cleaner look many times."""
    for _ in range(20):
        node.clock.at += 1_000
        await asyncio.sleep(1)


@pytest.mark.parametrize(
    "error",
    [
        OSError(errno.EIO, "Input/output error"),
        OSError(errno.EROFS, "Read-only file system"),
        PermissionError(errno.EACCES, "Permission denied"),
        DiskFull(errno.ENOSPC, "No space left on device"),
        NoDescriptors(errno.EMFILE, "Too many open files"),
    ],
)
def test_a_journal_that_cannot_begin_a_segment_stops_neither_the_others_nor_itself_for_good(error: OSError) -> None:
    async def main() -> None:
        disk = Disk()
        node = await filled(disk)
        disk.error, disk.where = error, "/a-0/"
        cleaner = cleaner_of(node)
        cleaner.start()
        await look(node)
        assert records(node, "a") == 20
        if not isinstance(error, (DiskFull, NoDescriptors)):  # these are everybody's
            assert records(node, "b") < 20 and records(node, "c") < 20
        disk.error = None
        await look(node)
        assert [records(node, name) < 20 for name, _ in NAMES] == [True] * 3
        assert node.storage.failure is None
        cleaner.close()

    run(main())


@pytest.mark.parametrize("error", [None, DiskFull(errno.ENOSPC, "No space left on device")])
@pytest.mark.parametrize("before", range(5))
def test_a_clock_that_is_set_back_puts_off_nothing(before: int, error: OSError | None) -> None:
    async def main() -> None:
        disk = Disk()
        node = await filled(disk)
        disk.error, disk.where = error, ".cleaned|"
        cleaner = cleaner_of(node, unsettled_bytes=10**9)
        cleaner.start()
        for _ in range(before):
            node.clock.at += 700
            await asyncio.sleep(0.7)
        if error is not None:
            await look(node)
        node.clock.at -= 30 * 24 * 3600 * 1000
        disk.error = None
        await look(node)
        assert [records(node, name) < 20 for name, _ in NAMES] == [True] * 3
        assert disk.exists(node.root / "cleaner-offset-checkpoint")
        cleaner.close()

    run(main())


@pytest.mark.parametrize("raised", [FileDamaged(Path("/data/a-0/x.index"), "is short"), OSError(errno.EIO, "EIO")])
def test_so_does_one_whose_indexes_cannot_be_written_down(raised: Exception, monkeypatch: pytest.MonkeyPatch) -> None:
    roll = Partition.roll

    def failing(partition: Partition) -> Any:
        if partition.topic == "a":
            raise raised
        return roll(partition)

    async def main() -> None:
        node = await filled(Disk())
        cleaner = cleaner_of(node)
        cleaner.start()
        with monkeypatch.context() as patch:
            patch.setattr(Partition, "roll", failing)
            await look(node)
            assert [records(node, name) < 20 for name, _ in NAMES] == [False, True, True]
        await look(node)
        assert records(node, "a") < 20 and node.storage.failure is None
        cleaner.close()

    run(main())


def test_a_log_whose_age_cannot_be_read_is_left_and_the_others_are_cleaned(monkeypatch: pytest.MonkeyPatch) -> None:
    async def main() -> None:
        node = await filled(Disk(), max_compaction_lag_ms=LONG - 1)
        for name, _ in NAMES:
            node.of(name).roll()
        broken = node.of("a").segments[0]
        headers_from = type(broken).headers_from

        def damaged(segment: Any, *at: int) -> Any:
            if segment is broken:
                raise FileDamaged(segment.path, "is shorter than it was")
            return headers_from(segment, *at)

        monkeypatch.setattr(type(broken), "headers_from", damaged)
        cleaner = cleaner_of(node)
        cleaner.start()
        await look(node)
        monkeypatch.undo()
        assert [log.topic for log in cleaner.uncleanable] == ["a"]
        assert [records(node, name) < 20 for name, _ in NAMES] == [False, True, True]
        assert node.storage.failure is None
        cleaner.close()

    run(main())


@pytest.mark.parametrize("error", [MemoryError(), ValueError("nobody thought of that")])
def test_a_pass_that_fails_in_whatever_way_stops_no_other(error: Exception, monkeypatch: pytest.MonkeyPatch) -> None:
    spans = rewriting.spans

    def failing(header: BatchHeader, body: bytes) -> Any:
        if b"odd" in body:
            raise error
        return spans(header, body)

    async def main() -> None:
        node = await filled(Disk())
        append(node.of("a"), encode_batch([(START, b"odd", b"", ()), (START, b"odd", b"", ())]))
        monkeypatch.setattr(rewriting, "spans", failing)
        cleaner = cleaner_of(node)
        cleaner.start()
        await look(node)
        assert [log.topic for log in cleaner.uncleanable] == ["a"] and all(cleaner.uncleanable.values())
        assert [records(node, name) < 20 for name, _ in NAMES] == [False, True, True]
        assert node.storage.failure is None
        cleaner.close()

    run(main())


@pytest.mark.parametrize("error", [OSError(errno.EIO, "EIO"), DiskFull(errno.ENOSPC, "full")])
@pytest.mark.parametrize("where", ["cleaner-offset-checkpoint.tmp|", "cleaner-offset-checkpoint|"])
def test_where_it_notes_what_is_clean_a_full_disk_is_waited_for_and_a_broken_one_ends_the_node(
    where: str, error: OSError
) -> None:
    async def main() -> None:
        disk = Disk()
        node = await filled(disk)
        failures: list[Exception] = []
        node.storage._failed = failures.append
        disk.error, disk.where = error, where
        cleaner = cleaner_of(node)
        cleaner.start()
        await look(node)
        is_waited_for = isinstance(error, DiskFull)
        assert (failures == []) == is_waited_for
        if is_waited_for:
            disk.error = None
            await look(node)
            assert disk.exists(node.root / "cleaner-offset-checkpoint")
        cleaner.abandon()

    run(main())


async def sync_fails(number: int) -> tuple[bool, bool]:
    """Whether that many syncs of files and directories come before the logs are clean, and whether the next ends it."""
    disk = Disk()
    node = await filled(disk)
    failures: list[Exception] = []
    node.storage._failed = failures.append
    disk.fail_sync_after(number)
    cleaner = cleaner_of(node)
    cleaner.start()
    await look(node)
    cleaner.abandon()
    outcome = disk.sync_failed, len(failures) == 1 and node.storage.failure is failures[0]
    disk.fail_sync_after(10**9)
    disk.power_loss()
    node.start()
    for name, _ in NAMES:
        batches = [header for header, _ in node.of(name).scan()]
        assert batches[-1].base_offset == 19, "the newest record of the key is there"
    return outcome


def test_whichever_sync_fails_while_logs_are_cleaned_the_node_ends() -> None:
    for number in range(200):
        reached, ended = run(sync_fails(number))
        assert ended == reached, f"sync {number} failed, and the node went on"
        if not reached:
            break
    assert 20 < number < 199


def test_what_is_wrong_once_a_swap_is_decided_ends_the_node(monkeypatch: pytest.MonkeyPatch) -> None:
    """Some of the old files may be gone: what memory knows of them is not to be built on."""

    def failing(error: Exception) -> Callable[..., None]:
        def carry_out(*_: Any) -> None:
            raise error

        return carry_out

    async def main(error: Exception) -> None:
        node = await filled(Disk())
        failures: list[Exception] = []
        node.storage._failed = failures.append
        cleaner = cleaner_of(node)
        cleaner.start()
        with monkeypatch.context() as patch:
            patch.setattr(swapping, "carry_out", failing(error))
            await look(node)
        assert len(failures) == 1 and not cleaner.uncleanable
        cleaner.abandon()
        node.kill()
        assert min(records(node, name) for name, _ in NAMES) < 20, "the start has carried it out"

    for error in (OSError(errno.EIO, "EIO"), NoDescriptors(errno.EMFILE, "Too many open files")):
        run(main(error))


def test_that_there_is_no_space_is_said_once_and_again_when_there_had_been_some(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async def main() -> None:
        disk = Disk()
        node = await filled(disk)
        cleaner = cleaner_of(node)
        cleaner.start()
        for _ in range(2):
            disk.error, disk.where = (
                DiskFull(errno.ENOSPC, "No space left on device"),
                "/a-0/00000000000000000000.log.cleaned",
            )
            for _ in range(20):
                append(node.of("a"), encode_batch([(START, b"k", bytes(200), ())]))
            await look(node)
            disk.error = None
            await look(node)
            assert records(node, "a") < 20
        cleaner.close()

    run(main())
    assert len([line for line in caplog.messages if "no space is left to compact" in line]) == 2
