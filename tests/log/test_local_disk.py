"""What only the machine's disk does: run out of things, write in parts, and sync what others leave to it."""

from __future__ import annotations

import asyncio
import errno
import os
import threading
from collections.abc import Callable
from pathlib import Path

import pytest

from fencepost.log.disk import DirectoryInUse, DiskFull, File, LocalDisk, NoDescriptors, _LocalFile


@pytest.mark.parametrize(("number", "kind"), [("ENOSPC", DiskFull), ("EDQUOT", DiskFull), ("EMFILE", NoDescriptors)])
@pytest.mark.parametrize("call", ["pwrite", "posix_fallocate"])
def test_what_has_run_out_may_be_there_again_later(
    call: str, number: str, kind: type[OSError], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: object) -> int:
        raise OSError(getattr(errno, number), os.strerror(getattr(errno, number)))

    file = LocalDisk().open(tmp_path / "a")
    monkeypatch.setattr(os, call, refuse)
    with pytest.raises(kind):
        file.pwrite(b"x", 0) if call == "pwrite" else file.allocate(1)


@pytest.mark.parametrize("number", [errno.EMFILE, errno.ENFILE], ids=["the process", "the machine"])
def test_a_disk_says_whose_descriptors_are_used_up_alike(
    number: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: object) -> int:
        raise OSError(number, os.strerror(number))

    monkeypatch.setattr(os, "open", refuse)
    with pytest.raises(NoDescriptors):
        LocalDisk().open(tmp_path / "a")


def test_what_the_system_writes_and_reads_in_parts_is_whole(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write, read = os.pwrite, os.pread
    file = LocalDisk().open(tmp_path / "a")
    monkeypatch.setattr(os, "pwrite", lambda fd, data, at: write(fd, memoryview(data)[:3], at))
    monkeypatch.setattr(os, "pread", lambda fd, count, at: read(fd, min(count, 3), at))
    file.pwrite(b"0123456789", 1)
    assert file.pread(100, 0) == b"\x000123456789"
    assert file.pread(5, 2) == b"12345"


def test_of_a_directory_more_than_its_data_is_synced(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its entries are what counts, and not every file system takes them for data."""
    synced: list[str] = []
    monkeypatch.setattr(os, "fsync", lambda fd: synced.append(os.readlink(f"/proc/self/fd/{fd}")))
    LocalDisk().sync_directory(tmp_path)
    assert synced == [str(tmp_path)]


@pytest.mark.parametrize("number", [0, 3, 7, 39])
def test_whichever_of_many_files_cannot_be_synced_that_is_told(number: int, tmp_path: Path) -> None:
    def failing(_: int) -> None:
        raise OSError(errno.EIO, "Input/output error")

    disk = LocalDisk()
    files = [disk.open(tmp_path / f"{each}") for each in range(40)]
    for each, file in enumerate(files):
        assert isinstance(file, _LocalFile)
        file.sync = failing if each == number else lambda _: None
    with pytest.raises(OSError, match="Input/output error"):
        disk.sync_now(files)


def test_what_is_kept_for_root_is_not_free(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    found = os.statvfs(tmp_path)
    fields = list(found)
    fields[1:5] = 512, 100, 30, 20  # bytes of a block, blocks, free ones, those of them that anybody may use
    monkeypatch.setattr(os, "statvfs", lambda _: os.statvfs_result(fields))
    room = LocalDisk().room(tmp_path)
    assert room is not None and (room.free, room.total) == (20 * 512, 100 * 512)


def test_who_is_refused_a_lock_holds_nothing(tmp_path: Path) -> None:
    disk = LocalDisk()
    release = disk.lock(tmp_path / ".lock")
    before = os.listdir("/proc/self/fd")
    with pytest.raises(DirectoryInUse):
        disk.lock(tmp_path / ".lock")
    assert os.listdir("/proc/self/fd") == before
    release()


def _places_of_syncs(file: File, sync: Callable[[], None]) -> list[bool]:
    """Have a file synced by `sync`; whether each of its syncs was done in place, as far as they are."""
    places: list[bool] = []

    def syncing(_: int) -> None:
        places.append(threading.current_thread() is threading.main_thread())
        sync()

    assert isinstance(file, _LocalFile)
    file.sync = syncing
    return places


async def _synced(disk: LocalDisk, file: File) -> OSError | None:
    waiter: asyncio.Future[OSError | None] = asyncio.get_running_loop().create_future()
    disk.sync([file], waiter.set_result)
    return await waiter


def test_a_little_is_synced_in_place_as_long_as_the_disk_is_quick(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    now = took = 0.0

    def sync() -> None:
        nonlocal now
        now += took

    async def main() -> list[bool]:
        nonlocal took
        monkeypatch.setattr(asyncio.get_running_loop(), "time", lambda: now)
        disk = LocalDisk()
        file = disk.open(tmp_path / "a")
        places = _places_of_syncs(file, sync)
        for seconds in (0.0005, 0.02, 0.02, 0.0005, 0.0005):
            took = seconds
            file.pwrite(b"x", 0)
            assert await _synced(disk, file) is None
        return places

    assert asyncio.run(main()) == [True, True, False, False, True]


@pytest.mark.parametrize("size", [64 * 1024, 64 * 1024 + 1])
def test_others_are_served_while_much_of_one_file_is_synced(size: int, tmp_path: Path) -> None:
    """What is written meanwhile is little, and its sync is done in place again."""
    begun, may_end = threading.Event(), threading.Event()
    is_much = size > 64 * 1024

    def sync() -> None:
        begun.set()
        assert may_end.wait(10)

    async def main() -> list[bool]:
        disk = LocalDisk()
        file = disk.open(tmp_path / "a")
        places = _places_of_syncs(file, sync)
        file.pwrite(bytes(size - 1), 0)
        file.pwrite(b"x", size - 1)
        if is_much:
            waiting = asyncio.ensure_future(_synced(disk, file))
            await asyncio.to_thread(begun.wait, 10)
            file.pwrite(b"meanwhile", 0)
            may_end.set()
            assert await waiting is None
        may_end.set()
        assert await _synced(disk, file) is None
        return places

    assert asyncio.run(main()) == ([False, True] if is_much else [True])
