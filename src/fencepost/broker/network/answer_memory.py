"""The memory of a node's large answers, and the places of those that take long to make.

An answer that takes many steps is begun while others are made, so thousands of clients who ask at once would have as
many of them half made.  Made one after the other they are there no later, and only a few are in memory.  None is begun
while clients have left `limit` bytes untaken.
"""

from __future__ import annotations

import asyncio
from typing import Any, Final

MAKERS: Final = 4
"""Long answers that are made at the same time: one may wait for a thread."""


class AnswerMemory:
    """Bytes of large answers that have not left, of all connections; and the places of those who make long ones."""

    def __init__(self, limit: int) -> None:
        self.limit = limit
        self._untaken = 0
        self._kept = 0
        self._makers: set[asyncio.Task[Any] | None] = set()
        self._waiting: dict[asyncio.Task[Any] | None, asyncio.Future[None]] = {}

    @property
    def used(self) -> int:
        """Bytes of answers that are made and have not left."""
        return self._untaken + self._kept

    @property
    def is_wanted(self) -> bool:
        """Whether somebody waits for clients to take what they asked for."""
        return bool(self._waiting) and self._untaken >= self.limit

    def left(self, least: int) -> int:
        """Bytes that an answer may have that is made at once; never less than `least`."""
        return max(self.limit - self.used, least)

    def keep(self, count: int) -> None:
        """Count so many bytes more that wait for an earlier answer, or a sync.

        They hold up nobody: who makes the earlier answer would wait for them, and they for him.
        """
        self._kept += count

    def let_go(self, count: int) -> None:
        """Count so many bytes less that wait for an earlier answer, or a sync."""
        self._kept -= count
        assert self._kept >= 0, "no more goes than was kept"

    def add(self, count: int) -> None:
        """Count so many bytes more that are there for a client to take."""
        self._untaken += count

    def give(self, count: int) -> None:
        """Count so many bytes less that are there for a client: they were taken, or never will be."""
        self._untaken -= count
        assert self._untaken >= 0, "no more is given back than was added"
        self._admit()

    async def place(self) -> None:
        """A place among those who make long answers, for the task at hand; at once where it has one.

        It is kept until `leave`, whatever becomes of the task.
        """
        task = asyncio.current_task()
        if task in self._makers:
            return
        waiter = self._waiting[task] = asyncio.get_running_loop().create_future()
        self._admit()
        try:
            await waiter
        except asyncio.CancelledError:
            self.leave(task)
            raise

    def leave(self, task: asyncio.Task[Any] | None) -> None:
        """Give up the place of a task: it makes nothing more, or waits for something else first."""
        self._waiting.pop(task, None)
        self._makers.discard(task)
        self._admit()

    def _admit(self) -> None:
        """Give the places that are free to those who have waited longest."""
        while self._waiting and len(self._makers) < MAKERS and self._untaken < self.limit:
            task = next(iter(self._waiting))
            waiter = self._waiting.pop(task)
            if not waiter.done():
                self._makers.add(task)
                waiter.set_result(None)
