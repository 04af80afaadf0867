"""One contract, held by the machine's disk and by the simulated one; and what only the simulated one does."""

from __future__ import annotations

import asyncio
import errno
import os
import threading
from pathlib import Path
from random import Random

import pytest
from tests.log.log_doubles import run

from fencepost.log.disk import DirectoryInUse, Disk, DiskFull, File, LocalDisk, _LocalFile
from fencepost.log.open_files import OpenFiles
from fencepost.simulation.disk import PowerCut, SimulatedDisk


@pytest.fixture(params=["local", "simulated", "local, few open", "simulated, few open"])
def place(request: pytest.FixtureRequest, tmp_path: Path) -> tuple[Disk, Path]:
    """A disk and a directory on it."""
    kind, _, few = request.param.partition(", ")
    disk: Disk = LocalDisk() if kind == "local" else SimulatedDisk(Random(1))
    root = tmp_path if kind == "local" else Path("/data")
    disk.make_directory(root)
    return OpenFiles(disk, 2) if few else disk, root


def test_a_file_holds_what_is_written(place: tuple[Disk, Path]) -> None:
    disk, root = place
    file = disk.open(root / "a")
    assert file.size() == 0
    file.pwrite(b"hello", 0)
    file.pwrite(memoryview(b"world"), 7)
    assert file.pread(100, 0) == b"hello\0\0world"
    assert file.pread(2, 1) == b"el"
    assert file.pread(5, 12) == b""
    file.pwrite(b"J", 0)
    file.truncate(3)
    assert (file.size(), file.pread(9, 0)) == (3, b"Jel")
    file.allocate(8)
    assert file.pread(9, 0) == b"Jel\0\0\0\0\0"
    file.allocate(2)
    assert file.size() == 8
    file.close()
    assert disk.open(root / "a").pread(3, 0) == b"Jel"


def test_two_handles_show_one_file(place: tuple[Disk, Path]) -> None:
    disk, root = place
    one, two = disk.open(root / "a"), disk.open(root / "a")
    one.pwrite(b"x", 0)
    assert two.pread(1, 0) == b"x"


def test_a_removed_file_can_still_be_read(place: tuple[Disk, Path]) -> None:
    disk, root = place
    file = disk.open(root / "a")
    file.pwrite(b"x", 0)
    disk.remove(root / "a")
    disk.remove(root / "a")
    assert not disk.exists(root / "a")
    assert file.pread(1, 0) == b"x"
    assert disk.open(root / "a").size() == 0


def test_directories(place: tuple[Disk, Path]) -> None:
    disk, root = place
    disk.make_directory(root / "b" / "c")
    disk.make_directory(root / "b" / "c")
    disk.open(root / "b" / "z").close()
    disk.open(root / "b" / "a").close()
    assert disk.list(root / "b") == ["a", "c", "z"]
    assert disk.list(root / "nowhere") == []
    disk.sync_directory(root / "b")
    handle = disk.open_directory(root / "b")
    disk.sync_now([handle])
    handle.close()
    disk.rename(root / "b", root / "d")
    assert disk.list(root) == ["d"]
    assert disk.is_directory(root / "d") and not disk.is_directory(root / "d" / "a")
    assert not disk.is_directory(root / "nowhere")
    with pytest.raises(OSError, match="not empty"):
        disk.remove_directory(root / "d")
    for name in ("a", "z"):
        disk.remove(root / "d" / name)
    disk.remove_directory(root / "d" / "c")
    disk.remove_directory(root / "d")
    disk.remove_directory(root / "d")
    assert not disk.exists(root / "d")
    with pytest.raises(FileNotFoundError):
        disk.open(root / "nowhere" / "a")
    with pytest.raises(FileNotFoundError):
        disk.rename(root / "nowhere", root / "somewhere")


def test_renaming_replaces(place: tuple[Disk, Path]) -> None:
    disk, root = place
    disk.open(root / "a").pwrite(b"new", 0)
    disk.open(root / "b").pwrite(b"older", 0)
    disk.rename(root / "a", root / "b")
    assert disk.list(root) == ["b"]
    assert disk.open(root / "b").pread(9, 0) == b"new"


def test_a_lock_is_held_once(place: tuple[Disk, Path]) -> None:
    disk, root = place
    release = disk.lock(root / ".lock")
    with pytest.raises(DirectoryInUse):
        disk.lock(root / ".lock")
    release()
    disk.lock(root / ".lock")()


@pytest.mark.parametrize("count", [1, 3, 40])
def test_a_sync_reports(place: tuple[Disk, Path], count: int) -> None:
    disk, root = place

    async def main() -> OSError | None:
        files = [disk.open(root / f"{number}") for number in range(count)]
        for file in files:
            file.pwrite(b"x", 0)
        disk.sync_now(files)
        waiter: asyncio.Future[OSError | None] = asyncio.get_running_loop().create_future()
        disk.sync(files, waiter.set_result)
        return await waiter

    assert (run(main()) if root == Path("/data") else asyncio.run(main())) is None


@pytest.mark.parametrize("startable", range(5))
@pytest.mark.parametrize("fails", [False, True])
@pytest.mark.parametrize("count", [3, 40])
def test_a_sync_reports_however_few_threads_can_be_started(
    count: int, fails: bool, startable: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    started = 0
    start = threading.Thread.start

    def starting(thread: threading.Thread) -> None:
        nonlocal started
        started += 1
        if started > startable:
            raise RuntimeError("can't start new thread")
        start(thread)

    told: list[int] = []

    def syncing(fd: int) -> None:
        """Tells of the error once, as Linux does."""
        told.append(fd)
        if fails and len(told) == 1:
            raise OSError(errno.EIO, "Input/output error")

    async def main() -> list[OSError | None]:
        disk = LocalDisk()
        files = [disk.open(tmp_path / f"{number}") for number in range(count)]
        for file in files:
            assert isinstance(file, _LocalFile)
            file.sync = syncing
        outcomes = []
        with monkeypatch.context() as patch:
            patch.setattr(threading.Thread, "start", starting)
            for _ in range(2):
                waiter: asyncio.Future[OSError | None] = asyncio.get_running_loop().create_future()
                disk.sync(files, waiter.set_result)
                outcomes.append(await asyncio.wait_for(waiter, 10))
        assert fails or len(set(told)) == count
        return outcomes

    first, second = asyncio.run(main())
    assert (first is not None) is fails and second is None


def test_what_was_synced_for_want_of_a_thread_is_not_synced_again_when_there_is_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By then the files may be others, and an error that they have would be told to nobody."""
    synced: list[int] = []

    def starting(_: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    async def main() -> None:
        disk = LocalDisk()
        files = [disk.open(tmp_path / f"{number}") for number in range(3)]
        for file in files:
            assert isinstance(file, _LocalFile)
            file.sync = synced.append
        for start in (starting, threading.Thread.start):
            with monkeypatch.context() as patch:
                patch.setattr(threading.Thread, "start", start)
                waiter: asyncio.Future[OSError | None] = asyncio.get_running_loop().create_future()
                disk.sync(files, waiter.set_result)
                assert await asyncio.wait_for(waiter, 10) is None

    asyncio.run(main())
    assert len(synced) == 6


def test_a_closed_file_cannot_be_synced(place: tuple[Disk, Path]) -> None:
    disk, root = place
    file = disk.open(root / "a")
    file.close()
    file.close()
    with pytest.raises(OSError, match=r"9|closed"):
        disk.sync_now([file])


@pytest.mark.parametrize("disk", [LocalDisk(), OpenFiles(LocalDisk(), 2)])
def test_what_is_no_file_is_named_and_nothing_is_made_where_a_link_leads(disk: Disk, tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "directory").mkdir()
    (tmp_path / "link").symlink_to(tmp_path / "nowhere")
    (tmp_path / "circle").symlink_to(tmp_path / "circle")
    for name in ("pipe", "directory", "link", "circle"):
        with pytest.raises(OSError, match=r"[Ii]s a |No such file|symbolic links") as refused:
            disk.open(tmp_path / name)
        assert str(refused.value.filename) == str(tmp_path / name)
    assert not (tmp_path / "nowhere").exists()
    (tmp_path / "nowhere").touch()
    disk.open(tmp_path / "link").pwrite(b"x", 0)
    assert (tmp_path / "nowhere").read_bytes() == b"x"


def test_a_full_disk_says_so() -> None:
    with pytest.raises(DiskFull):
        LocalDisk().open(Path("/dev/full")).pwrite(b"x", 0)
    disk = SimulatedDisk(Random(1), capacity=10)
    file = disk.open(Path("/a"))
    file.pwrite(bytes(8), 0)
    with pytest.raises(DiskFull):
        file.pwrite(bytes(4), 7)
    with pytest.raises(DiskFull):
        file.allocate(11)
    assert file.size() == 8
    file.pwrite(bytes(4), 4)
    disk.remove(Path("/a"))
    disk.open(Path("/b")).pwrite(bytes(10), 0)


# What a crash leaves

A = Path("/a")


def disk_with(seed: int, synced: bytes, written: bytes) -> SimulatedDisk:
    disk = SimulatedDisk(Random(seed))
    file = disk.open(A)
    disk.sync_directory(Path("/"))
    file.pwrite(synced, 0)
    disk.sync_now([file])
    file.pwrite(written, 0)
    return disk


def content(disk: SimulatedDisk) -> bytes:
    return disk.open(A).pread(1 << 20, 0)


def test_a_kill_leaves_the_page_cache_and_no_handle() -> None:
    disk = disk_with(1, b"old", b"new")
    file, _ = disk.open(A), disk.lock(Path("/.lock"))
    disk.crash()
    assert content(disk) == b"new"
    disk.lock(Path("/.lock"))
    for use in (lambda: file.pwrite(b"", 0), file.size, lambda: file.pread(1, 0), lambda: disk.sync_now([file])):
        with pytest.raises(OSError, match="closed"):
            use()


def test_a_power_loss_keeps_or_loses_each_sector() -> None:
    outcomes = set()
    for seed in range(200):
        disk = disk_with(seed, b"o" * 1536, b"n" * 1536)
        disk.power_loss()
        found = content(disk)
        parts = [found[at : at + 512] for at in range(0, 1536, 512)]
        assert all(part in (b"o" * 512, b"n" * 512) for part in parts)
        outcomes.add(tuple(part[:1] for part in parts))
    assert len(outcomes) == 8, "every combination comes up"


def test_what_was_synced_stays() -> None:
    for seed in range(50):
        disk = disk_with(seed, b"old", b"new")
        disk.sync_now([disk.open(A)])
        disk.power_loss()
        disk.power_loss()
        assert content(disk) == b"new"


def test_a_power_loss_keeps_or_loses_each_entry() -> None:
    outcomes = set()
    for seed in range(100):
        disk = SimulatedDisk(Random(seed))
        disk.open(A).close()
        disk.sync_directory(Path("/"))
        disk.open(Path("/b")).close()
        disk.rename(A, Path("/c"))
        disk.power_loss()
        outcomes.add(tuple(disk.list(Path("/"))))
    assert outcomes == {("a",), ("a", "b"), ("c",), ("b", "c")}


def test_a_sync_covers_what_was_written_before_it() -> None:
    async def main(seed: int) -> bytes:
        disk = disk_with(seed, b"111", b"222")
        file: File = disk.open(A)
        done: asyncio.Future[OSError | None] = asyncio.get_running_loop().create_future()
        disk.sync([file], done.set_result)
        file.pwrite(b"333", 0)
        assert not done.done(), "a sync takes its time"
        assert await done is None
        disk.power_loss()
        return content(disk)

    assert {run(main(seed)) for seed in range(40)} == {b"222", b"333"}


def test_a_crash_ends_the_syncs_under_way() -> None:
    async def main() -> None:
        disk = disk_with(1, b"old", b"new")
        disk.sync([disk.open(A)], lambda _: pytest.fail("nobody is there to be told"))
        disk.crash()
        await asyncio.sleep(1)

    run(main())


def test_a_cut_disk_takes_nothing_more() -> None:
    disk = disk_with(1, b"old", b"new")
    disk.cut_power_after(2)
    file = disk.open(A)
    file.pwrite(b"1", 0)
    for _ in range(2):
        with pytest.raises(PowerCut):
            file.pwrite(b"2", 0)
    assert disk.off
    disk.crash()
    assert not disk.off
    assert content(disk) == b"1ew"


def test_the_same_seed_loses_the_same() -> None:
    def losses(seed: int) -> list[bytes]:
        disk, found = disk_with(seed, bytes(5000), b"x" * 5000), []
        for _ in range(4):
            disk.power_loss()
            found.append(content(disk))
            disk.open(A).pwrite(b"y" * 5000, 100)
        return found

    assert losses(3) == losses(3)
    assert losses(3) != losses(4)
