"""A start for which the disk has no space left from any of its writes on: refused in a sentence, nothing is lost."""

from __future__ import annotations

import errno
from collections.abc import Mapping
from pathlib import Path
from random import Random

import pytest
from tests.broker.test_interrupted_repairs import OPTIONS, Directory, SteppedStore, has_everything, records_of
from tests.log.histories import small_files

from fencepost.log.data_directory import DirectoryUnusable
from fencepost.log.disk import DiskFull, File, Room
from fencepost.simulation.disk_faults import FaultyDisk
from fencepost.simulation.disk_layers import Node
from fencepost.simulation.loop import VirtualLoop, run

LARGE = 1 << 30


class FillingDisk(FaultyDisk):
    """Has space for so many writes, new files and new directories."""

    def __init__(self, random: Random) -> None:
        super().__init__(random, capacity=LARGE)
        self.left = LARGE

    @property
    def is_full(self) -> bool:
        return self.left <= 0

    def take(self) -> None:
        if self.is_full:
            raise DiskFull(errno.ENOSPC, "No space left on device")
        self.left -= 1

    def open(self, path: Path) -> File:
        if self.node_at(path) is None:
            self.take()
        return super().open(path)

    def make_directory(self, path: Path) -> None:
        if self.node_at(path) is None:
            self.take()
        super().make_directory(path)

    def meet(self, use: str, node: Node) -> None:
        if use == "write":
            self.take()
        super().meet(use, node)

    def take_space(self, more: int) -> None:
        if more > 0:
            self.take()
        super().take_space(more)

    def room(self, path: Path) -> Room | None:
        return Room(0, LARGE, None) if self.is_full else super().room(path)


class FillingStore(SteppedStore):
    """On the same disk."""

    def write(self, changes: Mapping[str, tuple[bytes | None, int]]) -> bool:
        assert isinstance(self._disk, FillingDisk)
        self._disk.take()
        return super().write(changes)


class FillingDirectory(Directory):
    """One on such a disk."""

    def __init__(self, loop: VirtualLoop, seed: int) -> None:
        super().__init__(loop, seed)
        self.disk = self.filling = FillingDisk(Random(seed))
        self.store = FillingStore(self.disk)

    async def start_until(self, options: Mapping[str, bool], writes: int) -> bool:
        """Whether the disk was full before the node was ready; then there is space again."""
        self.filling.left = writes
        broker = self.broker(options)
        refused = ""
        try:
            await broker.start()
        except DirectoryUnusable as unusable:
            refused = str(unusable)
        if refused:
            assert refused == "/data cannot be used: No space left on device; free some space, then start again"
        else:
            assert records_of(broker) == self.acknowledged
            broker.crash()
            self.disk.crash()
        was_full, self.filling.left = self.filling.is_full, LARGE
        assert was_full or not refused
        return was_full


@pytest.mark.parametrize("what", [None, *OPTIONS])
@pytest.mark.parametrize("killed", [True, False])
def test_a_start_on_a_disk_that_fills_up_destroys_nothing(
    what: str | None, killed: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    small_files(monkeypatch)
    option = OPTIONS[what] if what is not None else {}

    async def full_after(writes: int, loop: VirtualLoop) -> bool:
        directory = FillingDirectory(loop, writes)
        await directory.use(killed=killed)
        if what is not None:
            directory.damage(what)
        was_full = await directory.start_until(option, writes)
        await has_everything(directory, [option, OPTIONS["commit log"], {}])
        return was_full

    writes = 0
    while run(lambda loop, writes=writes: full_after(writes, loop)):  # type: ignore[misc]
        writes += 1
    assert writes > 9
