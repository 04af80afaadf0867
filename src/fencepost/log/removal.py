"""Files that retention took: marked at once, removed some time later (file.delete.delay.ms), as Apache Kafka does."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Final

from fencepost.log.callbacks import call_each
from fencepost.log.disk import Disk
from fencepost.log.file_names import numbered
from fencepost.log.segment import SUFFIXES, Segment
from fencepost.log.space import Space
from fencepost.protocol.types import Milliseconds, Offset

MARK = ".deleted"
_AT_ONCE: Final = 4
"""Removals in one turn of the event loop: a partition has half a dozen files."""
_SUFFIXES = (*SUFFIXES, ".snapshot", ".window")


def mark(disk: Disk, directory: Path, base_offset: Offset) -> list[Path]:
    """Rename every file of a segment; what they are called now."""
    marked = []
    for suffix in _SUFFIXES:
        path = directory / f"{base_offset:020d}{suffix}"
        if disk.exists(path):
            disk.rename(path, path.with_name(path.name + MARK))
            marked.append(path.with_name(path.name + MARK))
    return marked


def remove_marked(disk: Disk, directory: Path) -> None:
    """Remove, at the start, what was marked: whoever was to remove it is no more."""
    for name, _ in numbered(disk.list(directory), *(suffix + MARK for suffix in _SUFFIXES)):
        disk.remove(directory / name)


class Removals:
    """Files to remove: some after a delay, a few at a time, and none while a checkpoint syncs files."""

    def __init__(self, disk: Disk, space: Space) -> None:
        self._disk = disk
        self._space = space
        self._waiting: dict[int, tuple[asyncio.TimerHandle, Callable[[], None]]] = {}
        self._next = 0
        self._due: deque[Callable[[], None]] = deque()
        """Removals whose time has come: of a topic with thousands of partitions all at once."""
        self._is_held = False
        self._held: list[Callable[[], None]] = []

    def hold(self) -> None:
        """Remove nothing until `let_go`."""
        self._is_held = True

    def let_go(self) -> None:
        """Remove what was held, a little at a time."""
        self._is_held = False
        for remove in self._held:
            self._soon(remove)
        self._held = []

    def now(self, remove: Callable[[], None]) -> None:
        """Remove by calling `remove` now, or after `let_go`."""
        if self._is_held:
            self._held.append(remove)
        else:
            remove()

    def after(self, delay_ms: Milliseconds, remove: Callable[[], None]) -> None:
        """Remove by calling `remove` after some time; now if the space is needed."""
        if not delay_ms or self._space.is_short:
            self.now(remove)
            return
        number = self._next = self._next + 1

        def act() -> None:
            del self._waiting[number]
            self._soon(remove)

        self._waiting[number] = asyncio.get_running_loop().call_later(delay_ms / 1000, act), remove

    def _soon(self, remove: Callable[[], None]) -> None:
        if not self._due:
            asyncio.get_running_loop().call_soon(self._next_due)
        self._due.append(remove)

    def _next_due(self) -> None:
        """Remove a few, and leave a turn of the event loop to others before the next ones."""
        few = [self._due.popleft() for _ in range(min(_AT_ONCE, len(self._due)))]
        if self._due:
            asyncio.get_running_loop().call_soon(self._next_due)
        call_each(partial(self.now, remove) for remove in few)

    def take_segment(
        self, directory: Path, segment: Segment, delay_ms: Milliseconds, is_there: Callable[[], bool]
    ) -> None:
        """Mark the files of a segment; after the delay they are removed.

        `is_there`: whether the partition is.  Else its files have gone with its directory, and what is in the place of
        that may be the next topic's of its name.
        """

        def take() -> None:
            segment.close()
            if not is_there():
                return
            marked = self._space.attempt(lambda: mark(self._disk, directory, segment.base_offset))
            self.after(delay_ms, lambda: self._remove(marked))

        self.now(take)

    def _remove(self, paths: list[Path]) -> None:
        for path in paths:
            self._disk.remove(path)

    def hurry(self) -> None:
        """Remove without any delay, for the space is needed; what a checkpoint holds up waits for that."""
        removals = [*self._held, *self._due, *(remove for _, remove in self._waiting.values())]
        self.give_up()
        call_each(partial(self.now, remove) for remove in removals)

    def give_up(self) -> None:
        """Leave what is marked to the next start."""
        for timer, _ in self._waiting.values():
            timer.cancel()
        self._waiting.clear()
        self._due.clear()
        self._held.clear()
