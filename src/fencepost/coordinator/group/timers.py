"""The timers of one coordinator, on the event loop: all of them are known, so that none rings when it is closed."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Generic, TypeVar

from fencepost.protocol.types import Milliseconds

K = TypeVar("K")


class Timers(Generic[K]):
    """One timer per key; `ring` is called with the key when its time is up."""

    def __init__(self, ring: Callable[[K], None]) -> None:
        self._ring = ring
        self._handles: dict[K, asyncio.TimerHandle] = {}

    def set(self, key: K, delay_ms: Milliseconds) -> None:
        """Ring once, so late from now; a timer that this key has already does not ring."""
        self.cancel(key)
        self._handles[key] = asyncio.get_running_loop().call_later(delay_ms / 1000, self._rang, key)

    def cancel(self, key: K) -> None:
        """It does not ring any more; nothing if it has rung, or was never set."""
        handle = self._handles.pop(key, None)
        if handle is not None:
            handle.cancel()

    def _rang(self, key: K) -> None:
        del self._handles[key]
        self._ring(key)

    def close(self) -> None:
        """None of them rings any more."""
        for handle in self._handles.values():
            handle.cancel()
        self._handles.clear()
