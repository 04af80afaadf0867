"""Few descriptors for many files: nobody notices but by the time that it takes."""

from __future__ import annotations

import asyncio
import errno
import os
import threading
from collections.abc import Callable
from pathlib import Path
from random import Random
from typing import Any

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule
from tests.log.log_doubles import START, Node, append, batch, error_of, run, values_of

from fencepost.log.descriptors import for_files
from fencepost.log.disk import File, LocalDisk, NoDescriptors
from fencepost.log.open_files import OpenFiles
from fencepost.log.producer_state import Origin
from fencepost.protocol.errors import ErrorCode
from fencepost.simulation.disk import SimulatedDisk

ROOT = Path("/data")
LIMIT = 3


class ManyFiles(RuleBasedStateMachine):
    """Files are written, read, synced, renamed and closed, in any order; a dictionary does the same."""

    def __init__(self) -> None:
        super().__init__()
        self.inner = SimulatedDisk(Random(1), descriptors=LIMIT + 1)
        self.disk = OpenFiles(self.inner, LIMIT)
        self.disk.make_directory(ROOT / "a-0")
        self.handles: list[tuple[File, str]] = []
        self.contents: dict[str, bytes] = {}
        self.directory = "a-0"
        self.renamings = 0

    def pick(self, number: int) -> tuple[File, str]:
        return self.handles[number % len(self.handles)]

    @rule(name=st.sampled_from("pqrstuvw"))
    def open(self, name: str) -> None:
        if name not in [held for _, held in self.handles]:
            self.handles.append((self.disk.open(ROOT / self.directory / name), name))
            self.contents.setdefault(name, b"")

    @precondition(lambda self: self.handles)
    @rule(number=st.integers(0, 7), data=st.binary(min_size=1, max_size=5))
    def write(self, number: int, data: bytes) -> None:
        file, name = self.pick(number)
        file.pwrite(data, len(self.contents[name]))
        self.contents[name] += data

    @precondition(lambda self: self.handles)
    @rule(number=st.integers(0, 7))
    def read(self, number: int) -> None:
        file, name = self.pick(number)
        assert file.pread(1000, 0) == self.contents[name]
        assert file.size() == len(self.contents[name])

    @precondition(lambda self: self.handles)
    @rule(number=st.integers(0, 7))
    def cut(self, number: int) -> None:
        file, name = self.pick(number)
        file.truncate(1)
        self.contents[name] = self.contents[name][:1].ljust(1, b"\0")

    @rule()
    def sync(self) -> None:
        self.disk.sync_now([file for file, _ in self.handles])

    @precondition(lambda self: self.handles)
    @rule(number=st.integers(0, 7))
    def close(self, number: int) -> None:
        held = self.pick(number)
        held[0].close()
        self.handles.remove(held)

    @rule()
    def rename_directory(self) -> None:
        self.renamings += 1
        new = f"a-{self.renamings}"
        self.disk.rename(ROOT / self.directory, ROOT / new)
        # Another of the old name, with files of the same names, is another directory.
        self.disk.make_directory(ROOT / self.directory)
        for name in self.contents:
            self.disk.open(ROOT / self.directory / name).close()
        self.directory = new

    @precondition(lambda self: self.handles)
    @rule(number=st.integers(0, 7))
    def rename(self, number: int) -> None:
        file, name = self.pick(number)
        self.renamings += 1
        new = f"{name}{self.renamings}"
        self.disk.rename(ROOT / self.directory / name, ROOT / self.directory / new)
        self.contents[new] = self.contents.pop(name)
        self.handles[self.handles.index((file, name))] = (file, new)

    @invariant()
    def few_are_open(self) -> None:
        assert self.disk.count <= LIMIT
        assert self.inner.descriptors_used == self.disk.count


TestManyFiles = ManyFiles.TestCase
TestManyFiles.settings = settings(max_examples=60, stateful_step_count=40, deadline=None)


CHANGES: dict[str, tuple[Callable[[File], None], bytes]] = {
    "written": (lambda file: file.pwrite(b"new", 0), b"new"),
    "cut": (lambda file: file.truncate(1), b"o"),
    "allocated": (lambda file: file.allocate(5), b"old\0\0"),
}


@pytest.mark.parametrize("change", CHANGES)
def test_a_file_that_was_changed_is_synced_before_its_descriptor_goes(change: str) -> None:
    changed, found = CHANGES[change]
    for seed in range(10):
        inner = SimulatedDisk(Random(seed))
        inner.make_directory(ROOT)
        disk = OpenFiles(inner, 2)
        file = disk.open(ROOT / "file")
        file.pwrite(b"old", 0)
        disk.sync_now([file])
        inner.sync_directory(ROOT)
        inner.sync_directory(ROOT.parent)
        changed(file)
        for number in range(5):
            disk.open(ROOT / f"{number}").pwrite(b"y", 0)
        inner.power_loss()
        assert inner.open(ROOT / "file").pread(9, 0) == found


@pytest.mark.parametrize("count", [1, 2])
def test_what_is_written_while_a_sync_is_under_way_is_synced_before_its_descriptor_goes(count: int) -> None:
    """That sync need not have covered it."""

    async def written_late(seed: int) -> bytes:
        inner = SimulatedDisk(Random(seed))
        inner.make_directory(ROOT)
        disk = OpenFiles(inner, 4)
        files = [disk.open(ROOT / name) for name in ("file", "other")[:count]]
        inner.sync_directory(ROOT)
        inner.sync_directory(ROOT.parent)
        files[0].pwrite(b"1", 0)
        done: asyncio.Future[OSError | None] = asyncio.get_running_loop().create_future()
        disk.sync(files, done.set_result)
        files[0].pwrite(b"2", 0)
        assert await done is None
        for number in range(9):
            disk.open(ROOT / f"{number}").pwrite(b"y", 0)
        inner.power_loss()
        return inner.open(ROOT / "file").pread(1, 0)

    assert {run(written_late(seed)) for seed in range(10)} == {b"2"}


def test_files_that_could_not_all_be_opened_for_a_sync_give_their_descriptors_up_like_others() -> None:
    inner = SimulatedDisk(Random(1))
    inner.make_directory(ROOT)
    disk = OpenFiles(inner, 4)
    kept, gone = disk.open(ROOT / "kept"), disk.open(ROOT / "gone")
    gone.release()
    disk.remove(ROOT / "gone")
    with pytest.raises(FileNotFoundError):
        disk.sync_now([kept, gone])
    kept.release()
    assert disk.count == 0


def test_one_that_needs_no_sync_goes_first() -> None:
    inner = SimulatedDisk(Random(1))
    inner.make_directory(ROOT)
    disk = OpenFiles(inner, 3)
    written, read = disk.open(ROOT / "written"), disk.open(ROOT / "read")
    written.pwrite(b"x", 0)
    inner.sync_error = OSError(errno.EIO, "the disk is gone")
    for number in range(20):
        disk.open(ROOT / f"{number}").pread(1, 0)
        assert written.pread(1, 0) == b"x"
    inner.sync_error = None
    disk.sync_now([written, read])


@pytest.mark.parametrize("seed", range(6))  # what a power loss takes of what is not synced is chance
@pytest.mark.parametrize("how", ["sync", "sync of several", "sync_now"])
def test_what_a_sync_that_failed_left_unsynced_is_synced_before_its_descriptor_goes(how: str, seed: int) -> None:
    """Such a sync is tried again where only a descriptor was missing, and then it must not find everything done."""
    inner = SimulatedDisk(Random(seed))
    inner.make_directory(ROOT)
    disk = OpenFiles(inner, 4)
    written, other = disk.open(ROOT / "written"), disk.open(ROOT / "other")
    inner.sync_directory(ROOT)
    inner.sync_directory(ROOT.parent)
    written.pwrite(b"x", 0)

    async def main() -> None:
        inner.sync_error = OSError(errno.EIO, "the disk is gone")
        if how == "sync_now":
            with pytest.raises(OSError, match="the disk is gone"):
                disk.sync_now([written])
        else:
            done: asyncio.Future[OSError | None] = asyncio.get_running_loop().create_future()
            disk.sync([written] if how == "sync" else [written, other], done.set_result)
            assert await done is not None
        inner.sync_error = None
        for number in range(9):
            disk.open(ROOT / f"{number}").pwrite(b"y", 0)

    run(main())
    inner.power_loss()
    assert inner.open(ROOT / "written").pread(1, 0) == b"x"


def test_a_sync_that_failed_unasked_fails_every_later_one() -> None:
    inner = SimulatedDisk(Random(1))
    inner.make_directory(ROOT)
    disk = OpenFiles(inner, 2)
    written = disk.open(ROOT / "written")
    written.pwrite(b"x", 0)
    inner.sync_error = OSError(errno.EIO, "the disk is gone")
    others = [disk.open(ROOT / f"{number}") for number in range(3)]
    for other in others:
        other.pwrite(b"y", 0)
    inner.sync_error = None
    told: list[OSError | None] = []
    for _ in range(2):
        with pytest.raises(OSError, match="the disk is gone"):
            disk.sync_now([written])
        disk.sync([written], told.append)
    assert [error and error.errno for error in told] == [errno.EIO, errno.EIO]


def test_more_files_than_descriptors_are_synced_at_once() -> None:
    async def main() -> None:
        node = Node(
            SimulatedDisk(Random(3), descriptors=8),
            [("t", n) for n in range(40)],
            open_files=4,
            checkpoint_bytes=2000,
            segment_bytes=300,
        )
        for number in range(400):
            append(node.of("t", number % 40), batch(tag=f"{number}"))
            if number % 10 == 0:
                await node.settled()
        await node.settled()
        node.lose_power()
        for number in range(40):
            found = [int(value) for value in values_of(node.of("t", number)) if value is not None]
            assert found == list(range(number, 400, 40))

    run(main())


def test_files_in_the_place_of_a_directory_that_was_renamed_are_no_files_of_that(tmp_path: Path) -> None:
    """As those of a topic that is made anew while the former one's are read."""
    disk, place = OpenFiles(LocalDisk(), 1), tmp_path / "t-0"
    files: list[File] = []
    for content in (b"former", b"latter"):
        disk.make_directory(place)
        files.append(disk.open(place / "f"))
        files[-1].pwrite(content, 0)
        if content == b"former":
            disk.rename(place, tmp_path / "gone")
    for _ in range(2):  # each takes the descriptor of the other
        assert [file.pread(6, 0) for file in files] == [b"former", b"latter"]


def test_a_file_that_is_gone_is_not_made_again(tmp_path: Path) -> None:
    disk = OpenFiles(LocalDisk(), 1)
    file = disk.open(tmp_path / "gone")
    file.pwrite(b"x", 0)
    disk.open(tmp_path / "other").pwrite(b"y", 0)
    disk.remove(tmp_path / "gone")
    with pytest.raises(FileNotFoundError):
        file.pread(1, 0)
    assert not (tmp_path / "gone").exists()


def test_where_none_is_left_a_write_is_refused_and_taken_later() -> None:
    async def main() -> None:
        disk = SimulatedDisk(Random(1))
        node = Node(disk, [("t", n) for n in range(6)], open_files=4)
        await node.settled()
        append(node.of("t", 0), batch(tag="before"))
        await node.settled()
        files: list[Any] = [node.of("t", number).segments[-1].file for number in range(6)]
        without = next(number for number, file in enumerate(files) if file.opened is None)
        # Connections have taken the others, and what storage has is in use.
        disk.descriptors = 0
        for file in files:
            file.pins.append(None)
        refused = node.of("t", without).append(batch(tag="refused"), Origin.CLIENT, START)
        assert error_of(refused) == ErrorCode.KAFKA_STORAGE_ERROR
        assert "too many open files" in str(refused)
        disk.descriptors = None
        for file in files:
            file.pins.pop()
        append(node.of("t", without), batch(tag="after"))
        await node.settled()
        node.kill()
        assert values_of(node.of("t", 0)) == [b"before"]
        assert values_of(node.of("t", without)) == [b"after"]

    run(main())


def test_threads_read_what_they_ask_for(tmp_path: Path) -> None:
    disk = OpenFiles(LocalDisk(), 2)
    files = [disk.open(tmp_path / f"{number}") for number in range(8)]
    for number, file in enumerate(files):
        file.pwrite(bytes([number]) * 100, 0)
    wrong: list[object] = []

    def read(seed: int) -> None:
        random = Random(seed)
        try:
            for _ in range(2000):
                number = random.randrange(8)
                if (found := files[number].pread(100, 0)) != bytes([number]) * 100:
                    wrong.append(found)
        except OSError as error:
            wrong.append(error)

    threads = [threading.Thread(target=read, args=(seed,)) for seed in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert wrong == []


def test_closing_gives_every_descriptor_back(tmp_path: Path) -> None:
    before = len(os.listdir("/proc/self/fd")) if Path("/proc/self/fd").exists() else 0
    disk = OpenFiles(LocalDisk(), 3)
    files = [disk.open(tmp_path / f"{number}") for number in range(9)]
    for file in [*files, *files]:
        file.close()
        with pytest.raises(OSError, match="closed"):
            file.pread(1, 0)
    assert disk.count == 0
    if before:
        assert len(os.listdir("/proc/self/fd")) == before


@pytest.mark.parametrize(
    ("soft", "files"), [(64, 16), (256, 96), (1024, 480), (20_000, 9968), (1_048_576, 10_000), (-1, 10_000)]
)
def test_files_get_half_of_what_a_process_may_have(soft: int, files: int) -> None:
    assert for_files(soft) == files


def test_a_disk_says_that_no_descriptor_is_left(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    def refuse(*_: object) -> int:
        raise OSError(errno.EMFILE, "Too many open files")

    monkeypatch.setattr(os, "open", refuse)
    with pytest.raises(NoDescriptors):
        LocalDisk().open(tmp_path / "a")
    with pytest.raises(NoDescriptors):
        LocalDisk().open_directory(tmp_path)
