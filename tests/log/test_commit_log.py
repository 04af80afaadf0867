"""The commit log: what of it counts after a crash, and when it says that something is durable."""

from __future__ import annotations

import asyncio
from pathlib import Path
from random import Random

import pytest
from tests.log.log_doubles import run

from fencepost.log.commit_log import REST_SECONDS, CommitLog, StorageFailed
from fencepost.log.commit_log_entries import DURABLE_ENTRY, DURABLE_SIZE, FRAME, HEADER_SIZE, Kind, NamedFile
from fencepost.log.commit_log_reading import read_generation
from fencepost.log.disk import DiskFull
from fencepost.log.replay import Replay
from fencepost.protocol.types import Lsn, Offset
from fencepost.runtime import Work
from fencepost.simulation.disk import SimulatedDisk

ROOT = Path("/log")


def begun(disk: SimulatedDisk, generation: int = 1) -> CommitLog:
    disk.make_directory(ROOT)

    def failed(failure: StorageFailed) -> None:
        raise failure

    log = CommitLog(disk, ROOT, failed)
    log.begin(generation)
    return log


def named(number: int = 1, size: int = 0, next_offset: int = 0) -> NamedFile:
    return NamedFile(number, size, Offset(next_offset), bytes(16), f"t-0/{next_offset:020d}.log")


def no_steps() -> Work[None]:
    yield from ()


def replayed(disk: SimulatedDisk) -> Replay:
    replay = Replay()
    replay.read(disk, CommitLog(disk, ROOT, lambda _: None))
    return replay


def test_entries_end_at_the_first_that_is_damaged() -> None:
    disk = SimulatedDisk(Random(1))
    log = begun(disk)
    log.add_file(named())
    for number in range(3):
        log.add_bytes(1, 10 * number, bytes(10))
    log.flush_now()
    whole = disk.open(log.path(1)).pread(1000, 0)
    ends = []
    for at in range(HEADER_SIZE, 250):
        file = disk.open(log.path(1))
        file.pwrite(bytes([whole[at] ^ 0x41]), at)
        ends.append(len(list(read_generation(file.pread(1000, 0), 1, True).entries)))
        file.pwrite(whole[at : at + 1], at)
    assert ends == sorted(ends) and set(ends) == {0, 1, 2, 3, 4}
    assert read_generation(whole, 2, True).entries == [], "of another generation"


def test_the_mark_behind_the_last_sync_is_written_after_a_rest_and_never_in_front_of_what_is_under_way() -> None:
    async def main() -> None:
        disk = SimulatedDisk(Random(1))
        log = begun(disk)
        log.add_file(named())

        def is_marked() -> bool:
            data = disk.open(log.path(1)).pread(10_000, 0)
            return found(data) > 0 and _is_durable(data, found(data))

        def found(data: bytes) -> int:
            return read_generation(data, 1, True).end - DURABLE_SIZE

        for number in range(10):
            log.add_bytes(1, number, b"x")
            assert log.flush(lambda: None, no_steps, lambda: None)
            await log.durability.wait(log.appended)
            await asyncio.sleep(REST_SECONDS / 3)
            assert not is_marked(), "the next sync says it"
        await asyncio.sleep(2 * REST_SECONDS)
        assert is_marked()
        log.add_bytes(1, 10, b"y")
        log.close()
        await asyncio.sleep(1)
        assert is_marked(), "nothing is written after close"

    run(main())


def _is_durable(data: bytes, at: int) -> bool:
    return data[at + FRAME.size] == Kind.DURABLE and DURABLE_ENTRY.unpack_from(data, at + FRAME.size)[1] == at


def test_durable_is_said_after_the_sync_and_in_order() -> None:
    async def main() -> None:
        log = begun(SimulatedDisk(Random(1)))
        said: list[str] = []
        log.add_file(named())
        first = log.add_bytes(1, 0, b"x")
        log.durability.when(first, lambda: said.append("first"))
        assert log.flush(lambda: said.append("taken"), no_steps, lambda: said.append("done"))
        second = log.add_bytes(1, 1, b"y")
        log.durability.when(second, lambda: said.append("second"))
        assert not log.flush(lambda: None, no_steps, lambda: None), "one sync at a time"
        assert (said, log.durability.lsn, log.idle) == (["taken"], 0, False)
        await asyncio.sleep(1)
        assert (said, log.durability.lsn) == (["taken", "done", "first"], first)
        log.flush_now()
        assert (said[3:], log.durability.lsn, log.idle) == (["second"], second, True)
        log.durability.when(second, lambda: said.append("at once"))
        assert said[4:] == ["at once"]

    run(main())


def test_what_is_before_a_gap_does_not_count() -> None:
    disk = SimulatedDisk(Random(1))
    for generation in (1, 2, 4, 5):
        log = begun(disk, generation)
        log.add_file(named(1, 10 * generation, 0))
        log.flush_now()
        log.close()
    replay = replayed(disk)
    assert (replay.newest, replay.files[f"t-0/{0:020d}.log"].size) == (5, 40)


def test_a_checkpoint_that_is_not_complete_is_not_believed() -> None:
    disk = SimulatedDisk(Random(1))
    first = begun(disk, 1)
    first.add_ready(True)
    first.flush_now()
    second = begun(disk, 2)
    second.name_pending([named(1, 500, 7)])
    second.flush_now()
    known = replayed(disk).files[f"t-0/{7:020d}.log"]
    assert (known.size, known.checkpoint_size, known.checkpoint_offset) == (0, 0, 7)
    disk.remove(first.path(1))
    known = replayed(disk).files[f"t-0/{7:020d}.log"]
    assert (known.size, known.checkpoint_size, known.checkpoint_offset) == (500, 500, 7)


def test_what_was_synced_counts_although_its_checkpoint_is_not_complete() -> None:
    disk = SimulatedDisk(Random(1))
    first = begun(disk, 1)
    first.add_file(named(1, 100, 7))
    first.add_bytes(1, 100, bytes(10))
    first.add_file(named(2, 0, 20))
    first.add_file(NamedFile(3, 5, Offset(20), bytes(15) + b"x", f"t-0/{8:020d}.log"))
    first.add_ready(True)
    first.flush_now()
    second = begun(disk, 2)
    second.add_file(named(5, 999, 20))
    second.add_bytes(5, 0, bytes(30))
    second.add_synced(5, 10, Offset(21))
    second.add_synced(6, 10, Offset(21))
    second.flush_now()
    replay = replayed(disk)
    found = {
        base: (known.size, known.checkpoint_size, known.checkpoint_offset)
        for base, known in replay.segments_of("t-0").items()
    }
    assert found[Offset(20)] == (30, 10, 21)
    assert found[Offset(7)] == (110, 100, -1), "nothing older is needed"
    assert found[Offset(8)] == (5, 5, 20), "of another topic"


def test_an_entry_of_a_newer_version_is_refused() -> None:
    disk = SimulatedDisk(Random(1))
    log = begun(disk)
    log._add(b"\x63")
    log.flush_now()
    with pytest.raises(StorageFailed, match="kind 99"):
        replayed(disk)


def test_where_there_is_little_space_it_takes_little() -> None:
    disk = SimulatedDisk(Random(1), capacity=1024 * 1024)
    log = begun(disk)
    log.reserve(512 * 1024)
    with pytest.raises(DiskFull):
        log.reserve(1024 * 1024)


def test_space_that_is_taken_while_a_sync_is_under_way_is_not_said_to_be_durable() -> None:
    """A power loss may take it back, and a file that is shorter than it says was cut."""

    async def main() -> None:
        disk = SimulatedDisk(Random(1))
        log = begun(disk)
        log.add_file(named())
        synced = disk.open(log.path(1)).size()
        assert log.flush(lambda: None, no_steps, lambda: None)
        log.reserve(1024 * 1024)
        await log.durability.wait(log.appended)
        await asyncio.sleep(3 * REST_SECONDS)
        data = disk.open(log.path(1)).pread(10_000, 0)
        mark = read_generation(data, 1, True).end - DURABLE_SIZE
        assert _is_durable(data, mark)
        assert DURABLE_ENTRY.unpack_from(data, mark + FRAME.size)[2] == synced < disk.open(log.path(1)).size()

    run(main())


def test_who_ends_a_node_waits_no_longer_for_a_disk_that_has_failed() -> None:
    async def main() -> None:
        log = CommitLog(SimulatedDisk(Random(1)), Path("/data/commit-log"), lambda _: None)
        ending = asyncio.ensure_future(log.durability.wait_or_fail(Lsn(1)))
        await asyncio.sleep(0)
        assert not ending.done()
        log.stop()
        await asyncio.wait_for(ending, 10)

    run(main())


def test_the_mark_of_one_generation_is_none_of_the_next_one() -> None:
    """It is bound to its place: nothing behind it could be read."""

    async def main() -> None:
        disk = SimulatedDisk(Random(1))
        log = begun(disk)
        log.add_file(named())
        log.flush_now()
        log._mark_end()
        assert log._mark is not None
        log.begin(2)
        log.add_file(named(2, next_offset=7))
        log.flush_now()
        found = read_generation(disk.open(log.path(2)).pread(1_000_000, 0), 2, True)
        assert (len(found.entries), found.gaps) == (1, [])

    run(main())
