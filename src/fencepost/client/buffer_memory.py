"""The bytes of memory that a producer may use for records which are not acknowledged yet (`buffer_bytes`)."""

from __future__ import annotations

import asyncio
from collections import deque


class BufferMemory:
    """Counts the bytes of batches from their first record until they are answered for good.

    `limit` is in bytes.  One record may go beyond it: whoever comes then waits, first come first served.
    """

    def __init__(self, limit: int) -> None:
        self.limit = limit
        self.used = 0
        self._waiting: deque[asyncio.Future[None]] = deque()

    @property
    def is_full(self) -> bool:
        return self.used >= self.limit

    def take(self, size: int) -> None:
        self.used += size

    def give_back(self, size: int) -> None:
        """Count `size` bytes less; the first who wait in `room` go on if there is room."""
        self.used -= size
        while self._waiting and not self.is_full:
            waiter = self._waiting.popleft()
            if not waiter.done():
                waiter.set_result(None)

    async def room(self) -> None:
        """Wait until some memory was given back; another waiter may have taken it, so look at `is_full` again."""
        waiter = asyncio.get_running_loop().create_future()
        self._waiting.append(waiter)
        await waiter
