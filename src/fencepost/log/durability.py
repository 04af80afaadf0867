"""The lsn up to which the commit log is durable, and callbacks for when it reaches another one."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from typing import Final

from fencepost.log.callbacks import call_each
from fencepost.protocol.types import NO_LSN, Lsn
from fencepost.runtime import Work

CALLED_AT_ONCE: Final = 100
"""Callbacks, of those who wait for one sync, that are called at once; the others in later turns of the event loop."""


class Durability:
    """The durable part of one commit log.  `lsn`: everything up to there survives a power loss."""

    def __init__(self) -> None:
        self.lsn = NO_LSN
        self._waiting: deque[tuple[Lsn, Callable[[], None]]] = deque()
        self._last: asyncio.Future[None] | None = None
        """The wait of the one who ends the node, which `fail` ends, too."""

    def when(self, lsn: Lsn, callback: Callable[[], None]) -> None:
        """Call back when everything up to `lsn` is durable: now if it is."""
        if lsn <= self.lsn:
            callback()
        else:
            self._waiting.append((lsn, callback))

    async def wait(self, lsn: Lsn) -> None:
        """Wait until everything up to `lsn` is durable: for ever where the disk fails."""
        if lsn > self.lsn:
            await self._waiter(lsn)

    async def wait_or_fail(self, lsn: Lsn) -> None:
        """Wait until everything up to `lsn` is durable, or `fail` is called (not before): for who ends the node."""
        if lsn > self.lsn:
            self._last = self._waiter(lsn)
            await self._last

    def fail(self) -> None:
        """Wake `wait_or_fail`, for nothing more becomes durable: other waiters are never called back."""
        if self._last is not None and not self._last.done():
            self._last.set_result(None)

    def _waiter(self, lsn: Lsn) -> asyncio.Future[None]:
        waiter: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self.when(lsn, lambda: None if waiter.done() else waiter.set_result(None))
        return waiter

    def call_back(self) -> Work[None]:
        """Call back those who wait for what is durable now, in the order in which they came."""
        waiting = self._waiting
        while waiting and waiting[0][0] <= self.lsn:
            ready = [waiting.popleft()[1]]
            while waiting and waiting[0][0] <= self.lsn and len(ready) < CALLED_AT_ONCE:
                ready.append(waiting.popleft()[1])
            call_each(ready)
            if len(ready) == CALLED_AT_ONCE:
                yield
