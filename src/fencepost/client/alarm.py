"""A time of the event loop's clock at which something is called, the earliest that was asked for."""

from __future__ import annotations

import asyncio
from collections.abc import Callable


class Alarm:
    """Calls `ring` at the earliest of the times that were set, once for all of them; then others may be set."""

    def __init__(self, loop: asyncio.AbstractEventLoop, ring: Callable[[], None]) -> None:
        self._loop = loop
        self._ring = ring
        self._handle: asyncio.Handle | None = None
        self._at = 0.0
        self.is_set = False

    def set(self, when: float) -> None:
        """Ring at `when`, in seconds of the loop's clock, or earlier; in the loop's next turn if it has passed (0)."""
        if self._handle is not None:
            if self._at <= when:
                return
            self._handle.cancel()
        self._at, self.is_set = when, True
        loop = self._loop
        self._handle = loop.call_soon(self._rings) if when <= loop.time() else loop.call_at(when, self._rings)

    def cancel(self) -> None:
        if self._handle is not None:
            self._handle.cancel()
            self._handle, self.is_set = None, False

    def _rings(self) -> None:
        self._handle, self.is_set = None, False
        self._ring()
