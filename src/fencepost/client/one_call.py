"""One call at a time: who else asks meanwhile is refused, and who closes waits for it."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager

from fencepost.client.errors import MisuseError


class OneCall:
    """The call that moves a transaction on just now; of two commits at once one would end the next transaction."""

    def __init__(self) -> None:
        self._under_way: str | None = None
        self._has_ended: asyncio.Future[None] | None = None
        """Set when the call ends; None: nobody waits for that."""

    @contextmanager
    def alone(self, call: str) -> Iterator[None]:
        """A block in which the call of this name is under way.  Raises MisuseError if another one is."""
        if self._under_way is not None:
            raise MisuseError(f"{call}() was called while {self._under_way}() is under way: wait for that first")
        self._under_way = call
        try:
            yield
        finally:
            self._under_way = None
            ended, self._has_ended = self._has_ended, None  # who waits for the next one waits for another future
            if ended is not None:
                ended.set_result(None)

    async def ended(self) -> None:
        """Wait until no call is under way."""
        while self._under_way is not None:
            self._has_ended = self._has_ended or asyncio.get_running_loop().create_future()
            await asyncio.wait([self._has_ended])
