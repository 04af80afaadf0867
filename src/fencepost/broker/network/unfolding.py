"""The memory for batches that are unfolded to be looked at, which takes several steps.

A megabyte may unfold to 16, and whoever looks at it lets others go first after each step: without a bound everybody's
batch would be there unfolded at the same time.  First come, first served.
"""

from __future__ import annotations

import asyncio
from collections.abc import Generator


class Unfolding:
    """Memory for what is unfolded: so many bytes, or one batch that is larger.  See `fencepost.protocol.steps.Room`."""

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._waiting: dict[asyncio.Future[None], int] = {}
        """The bytes that each one who waits wants, in the order of coming."""
        self.used = 0
        """Bytes that are taken."""

    def claim(self, size: int) -> bool:
        """Take so many bytes; False if there are not enough, or somebody waits for them."""
        if self._waiting or not self._has(size):
            return False
        self.used += size
        return True

    def wait_for(self, size: int) -> Generator[asyncio.Future[None], None, None]:
        """Take so many bytes when all who came before have theirs, and there are enough."""
        if self.claim(size):
            return
        turn = asyncio.get_running_loop().create_future()
        self._waiting[turn] = size
        try:
            yield turn
        except BaseException:
            self._waiting.pop(turn, None)
            # Its turn may have come just when it was given up.
            self.give(size if turn.done() and not turn.cancelled() else 0)
            raise

    def give(self, size: int) -> None:
        """Give back so many bytes; those who wait get them."""
        self.used -= size
        assert self.used >= 0, "no more is given back than was taken"
        while self._waiting:
            turn, wanted = next(iter(self._waiting.items()))
            if not turn.cancelled() and not self._has(wanted):
                return
            del self._waiting[turn]
            if not turn.cancelled():
                self.used += wanted
                turn.set_result(None)

    def _has(self, size: int) -> bool:
        return not self.used or self.used + size <= self._limit
