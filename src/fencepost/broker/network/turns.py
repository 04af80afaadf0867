"""Callbacks of many who become ready at once, a few in each turn of the event loop: others get theirs in between.

A record may be waited for by thousands of Fetches, and thousands may be due at one moment.  Each is then looked at and
answered, which takes much longer than to find out that it is ready.
"""

from __future__ import annotations

import asyncio
import math
from collections import deque
from collections.abc import Callable
from typing import Final

from fencepost.log.callbacks import call_each

MOST_AT_ONCE: Final = 32
"""Callbacks in one turn of the event loop."""


class Turns:
    """Calls back at once while these are few, and in later turns of the event loop where they are many; in order."""

    def __init__(self) -> None:
        self._waiting: deque[Callable[[], None]] = deque()
        self._called = 0
        self._scheduled = False

    def call(self, callback: Callable[[], None]) -> None:
        """Call back, now or soon."""
        if not self._scheduled:
            self._scheduled = True
            asyncio.get_running_loop().call_soon(self._next_turn)
        if self._called < MOST_AT_ONCE and not self._waiting:
            self._called += 1
            callback()
        else:
            self._waiting.append(callback)

    def _next_turn(self) -> None:
        self._called = min(len(self._waiting), MOST_AT_ONCE)
        self._scheduled = self._called > 0
        if self._scheduled:
            asyncio.get_running_loop().call_soon(self._next_turn)
            call_each([self._waiting.popleft() for _ in range(self._called)])


class Deadlines:
    """Calls back when a time has come; all that are due in one millisecond share a timer."""

    def __init__(self, turns: Turns) -> None:
        self._turns = turns
        self._due: dict[int, dict[Callable[[], None], None]] = {}
        self._timers: dict[int, asyncio.TimerHandle] = {}

    def at(self, when: float, callback: Callable[[], None]) -> Callable[[], None]:
        """Call back at `when`, in event loop time, or less than a millisecond later; returns what takes this back."""
        tick = math.ceil(when * 1000)
        if tick / 1000 < when:
            tick += 1  # the product was rounded down
        due = self._due.get(tick)
        if due is None:
            due = self._due[tick] = {}
            self._timers[tick] = asyncio.get_running_loop().call_at(tick / 1000, self._ring, tick)
        due[callback] = None
        return lambda: self._take_back(tick, due, callback)

    def _take_back(self, tick: int, due: dict[Callable[[], None], None], callback: Callable[[], None]) -> None:
        due.pop(callback, None)
        if not due and self._due.get(tick) is due:  # else it may be kept for weeks
            del self._due[tick]
            self._timers.pop(tick).cancel()

    def _ring(self, tick: int) -> None:
        del self._timers[tick]
        for callback in self._due.pop(tick):
            self._turns.call(callback)
