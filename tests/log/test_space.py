"""What is said and refused as a disk runs out of bytes, and of files, and the reserve that is held of it."""

from __future__ import annotations

import errno
import logging
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import pytest
from tests.log.log_doubles import StoppedClock

from fencepost.log.disk import DiskFull, Room
from fencepost.log.space import AT_ONCE, NAME, Space, reserved

MEBIBYTE = 1024 * 1024
TOTAL = 64 * 1024 * MEBIBYTE
MANY = 1_000_000
TEN_MINUTES = 600_000


class SmallDisk:
    """Says what room it has; its only file is the reserve."""

    def __init__(self, free: int = TOTAL, files: int | None = MANY) -> None:
        self.free, self.files = free, files
        self.held = 0
        self.taken = list[int]()
        """How many bytes each allocation has added, or tried to add."""

    def room(self, path: Path) -> Room:
        assert path == Path("/data")
        return Room(free=self.free, total=TOTAL, free_files=self.files)

    def open(self, path: Path) -> Any:
        assert path == Path("/data") / NAME
        return self

    def exists(self, path: Path) -> bool:
        return path == Path("/data") / NAME and self.held > 0

    def remove(self, path: Path) -> None:
        assert self.exists(path)
        self.free, self.held = self.free + self.held, 0

    def size(self) -> int:
        return self.held

    def close(self) -> None:
        """It has no descriptor."""

    def truncate(self, size: int) -> None:
        self.free, self.held = self.free + self.held - size, size

    def allocate(self, size: int) -> None:
        self.taken.append(size - self.held)
        if size - self.held > self.free:
            raise DiskFull(errno.ENOSPC, "full")
        self.free, self.held = self.free - size + self.held, size


def space_on(disk: Any, clock: StoppedClock | None = None) -> Space:
    return Space(disk, Path("/data"), clock or StoppedClock())


@pytest.mark.parametrize(
    ("free", "files", "fits"),
    [
        (10 * 16 * 1024, 40, True),
        (10 * 16 * 1024 - 1, 40, False),
        (10 * 16 * 1024, 39, False),
        (10 * 16 * 1024, None, True),
        (TOTAL, 0, False),
    ],
)
def test_ten_partitions_are_made_where_there_is_room_for_their_bytes_and_their_files(
    free: int, files: int | None, fits: bool
) -> None:
    assert space_on(SmallDisk(free, files)).has_room_for(10) is fits


@pytest.mark.parametrize(
    ("free", "files", "said"),
    [(TOTAL, MANY, ""), (1000 * MEBIBYTE, MANY, "1000 of 65536 MiB left"), (TOTAL, 63, "can have 63 more files")],
)
def test_what_a_disk_has_little_of_is_said_every_ten_minutes(
    free: int, files: int, said: str, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.WARNING)
    clock = StoppedClock()
    space = space_on(SmallDisk(free, files), clock)
    for times in (1, 1, 2):
        space.watch()
        assert len(caplog.messages) == (times if said else 0)
        assert all(said in message for message in caplog.messages)
        clock.at += TEN_MINUTES // 2 if times == 1 else TEN_MINUTES


def test_a_disk_that_is_full_within_a_second_is_warned_of_by_what_is_written(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.WARNING)
    disk, looks = SmallDisk(3000 * MEBIBYTE), 0
    space = space_on(disk)
    while not caplog.messages:
        before = space._unwatched
        space.written(MEBIBYTE)
        looks += space._unwatched >= before
        disk.free -= MEBIBYTE
    assert 1000 * MEBIBYTE < disk.free < 1024 * MEBIBYTE
    assert looks < 30, "it is asked seldom what room the disk has"
    for _ in range(1000):
        space.written(MEBIBYTE)
    assert len(caplog.messages) == 1


def test_that_producers_are_refused_is_said_although_it_was_said_that_little_is_left(
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level(logging.WARNING)
    clock = StoppedClock()
    space = space_on(SmallDisk(1000 * MEBIBYTE), clock)
    space.watch()
    for _ in range(2):
        space.refused(DiskFull(errno.ENOSPC, "full"))
        space.watch()
    assert ["refused" in message for message in caplog.messages] == [False, True]
    clock.at += TEN_MINUTES
    space.watch()
    assert ["refused" in message for message in caplog.messages] == [False, True, False]


def test_a_clock_that_is_set_back_keeps_no_warning_from_the_log(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.WARNING)
    clock = StoppedClock()
    space = space_on(SmallDisk(1000 * MEBIBYTE), clock)
    for times in (1, 2, 2):
        space.watch()
        assert len(caplog.messages) == times
        clock.at -= 1 if times == 1 else 0


@pytest.mark.parametrize("starts", [True, False])
def test_a_start_has_the_reserve_until_it_is_refused(starts: bool) -> None:
    disk = SmallDisk(free=0)
    disk.held = 1234
    space = space_on(disk)
    space.open()
    assert (disk.free, disk.held) == (1234, 0)
    disk.free = 2 * TOTAL if starts else disk.free
    if starts:
        space.hold(10)
    space.close()
    assert disk.held == (reserved(TOTAL, 10) if starts else 1234)
    assert disk.free == (2 * TOTAL - disk.held if starts else 0)


@pytest.mark.parametrize(("files", "is_short"), [(63, True), (64, False), (None, False)])
def test_a_disk_that_can_have_few_more_files_is_short_of_space(files: int | None, is_short: bool) -> None:
    space = space_on(SmallDisk(files=files))
    space.hold(10)
    assert space.is_short is is_short


def test_what_a_change_on_a_full_disk_leaves_of_the_reserve_is_held_again_at_once() -> None:
    """Nobody else may have it before the next one who is refused, or the next look."""
    disk = SmallDisk()
    space = space_on(disk)
    space.hold(10)
    whole, disk.free = disk.held, 0

    def changed_and_freed() -> None:
        disk.allocate(disk.held + 1)
        disk.free, disk.held = disk.free + 1, 0

    space.attempt(changed_and_freed)
    assert (disk.held, disk.free, space.is_whole) == (whole, 0, True)


@pytest.mark.parametrize("frees", [True, False])
def test_a_stop_has_the_reserve_whole_for_the_next_start_if_it_can_be_had(frees: bool) -> None:
    """Else somebody else takes what the last checkpoint gave back, and the start is refused."""
    disk = SmallDisk()
    space = space_on(disk)
    space.hold(10)
    whole, disk.free = disk.held, 0

    def checkpoint() -> None:
        disk.allocate(disk.held + 1)
        disk.held -= 1

    space.attempt(checkpoint)
    assert disk.held == 0, "one byte is missing to have it back"
    disk.free = TOTAL if frees else whole - 1
    space.close()
    assert disk.held == (whole if frees else 0)


def test_of_a_directory_that_cannot_be_asked_nothing_is_said_or_refused(caplog: pytest.LogCaptureFixture) -> None:
    class Gone(SmallDisk):
        def room(self, path: Path) -> Room:
            raise FileNotFoundError(errno.ENOENT, "No such file or directory", str(path))

    space = space_on(Gone())
    space.hold(10)
    space.watch()
    assert space.has_room_for(10) and not space.is_short and space.is_ample(10)
    assert caplog.messages == []


def test_the_reserve_grows_with_the_partitions_and_does_not_shrink() -> None:
    disk = SmallDisk()
    space = space_on(disk)
    for partitions, held in ((10, 10), (5000, 5000), (20, 5000)):
        while space.hold(partitions):
            pass
        assert (disk.held, space.is_whole) == (reserved(TOTAL, held), True)


def test_a_growing_reserve_is_taken_in_steps_and_is_whole_after_each() -> None:
    """A disk in memory writes zeros for all that is taken at once, and nobody else is served meanwhile."""
    disk = SmallDisk()
    space = space_on(disk)
    space.hold(10)
    disk.taken.clear()
    while space.hold(5000):
        assert space.is_whole
        space.must_be_left()
    assert sum(disk.taken) == reserved(TOTAL, 5000) - reserved(TOTAL, 10)
    assert max(disk.taken) == AT_ONCE


def test_a_large_reserve_that_was_let_go_is_taken_back_in_steps() -> None:
    disk = SmallDisk()
    space = space_on(disk)
    space.hold(5000)
    assert disk.taken == [reserved(TOTAL, 5000)], "a node that only starts serves nobody yet"
    disk.free = 0
    with pytest.raises(DiskFull):
        space.attempt(lambda: disk.allocate(TOTAL))
    assert disk.held == AT_ONCE
    disk.taken.clear()
    while not space.is_whole:
        with pytest.raises(DiskFull) if disk.held + AT_ONCE < space.size else nullcontext():
            space.must_be_left()
    assert max(disk.taken) == AT_ONCE and disk.held == reserved(TOTAL, 5000)


def test_a_reserve_for_which_there_is_no_room_is_not_tried_for() -> None:
    """Every producer who is refused asks for it, and a disk in memory first fills all that is free, to give it back."""
    disk = SmallDisk()
    space = space_on(disk)
    space.hold(10)
    disk.truncate(0)
    space.is_whole, disk.free = False, space.size - 1
    disk.taken.clear()
    for _ in range(3):
        with pytest.raises(DiskFull):
            space.must_be_left()
    assert (disk.taken, disk.held) == ([], 0)


def test_what_the_reserve_lacks_is_taken_when_it_is_there() -> None:
    disk = SmallDisk(free=MEBIBYTE)
    space = space_on(disk)
    space.hold(10)
    assert (disk.held, space.is_whole, space.is_short) == (0, False, True)
    with pytest.raises(DiskFull):
        space.must_be_left()
    disk.free = TOTAL
    space.must_be_left()
    assert (disk.held, space.is_whole, space.is_short) == (reserved(TOTAL, 10), True, False)


@pytest.mark.parametrize(
    ("total", "partitions", "held"),
    [
        (4 * MEBIBYTE, 0, MEBIBYTE),
        (16 * MEBIBYTE, 1000, 2 * MEBIBYTE),
        (64 * MEBIBYTE, 0, 4 * MEBIBYTE),
        (1 << 40, 0, 4 * MEBIBYTE),
        (1 << 40, 1000, 4 * MEBIBYTE + 1000 * 20 * 1024),
    ],
)
def test_the_reserve_is_that_of_a_checkpoint_but_an_eighth_of_a_small_disk(
    total: int, partitions: int, held: int
) -> None:
    assert reserved(total, partitions) == held
