"""The timers of one coordinator, on the event loop: all of them are known, so that none rings when it is closed.

One whose ringing fails rings again, later and later, so that no group waits for ever for nothing.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Final, Generic, TypeVar

from fencepost.node_log import get_logger
from fencepost.protocol.types import Milliseconds

K = TypeVar("K")
logger = get_logger(__name__)

_TRIES: Final = 10
_FIRST_AGAIN: Final = 0.1
"""Seconds; twice as many after every failure."""


class Timers(Generic[K]):
    """One timer per key; `ring` is called with the key when its time is up."""

    def __init__(self, ring: Callable[[K], None]) -> None:
        self._ring = ring
        self._handles: dict[K, asyncio.TimerHandle] = {}
        self._failures: dict[K, int] = {}
        """How often a ringing has failed that has not succeeded since, nor been cancelled."""

    def set(self, key: K, delay_ms: Milliseconds) -> None:
        """Ring once, so late from now; a timer that this key has already does not ring."""
        self.cancel(key)
        self._handles[key] = asyncio.get_running_loop().call_later(delay_ms / 1000, self._rang, key)

    def cancel(self, key: K) -> None:
        """Have it ring no more; nothing if it has rung, or was never set."""
        self._failures.pop(key, None)
        handle = self._handles.pop(key, None)
        if handle is not None:
            handle.cancel()

    def _rang(self, key: K) -> None:
        del self._handles[key]
        try:
            self._ring(key)
        except Exception:
            failures = self._failures[key] = self._failures.get(key, 0) + 1
            if failures < _TRIES and key not in self._handles:
                self._handles[key] = asyncio.get_running_loop().call_later(_FIRST_AGAIN * 2**failures, self._rang, key)
            logger.exception("the timer %s failed, the %d. time of %d at most", key, failures, _TRIES)
        else:
            self._failures.pop(key, None)

    def close(self) -> None:
        """Let none of the timers ring any more."""
        for handle in self._handles.values():
            handle.cancel()
        self._handles.clear()
        self._failures.clear()
