"""The timers of one coordinator, on the event loop: all of them are known, so that none rings when it is closed."""

from __future__ import annotations

import asyncio
from collections.abc import Callable


class Timers:
    """See the module."""

    def __init__(self) -> None:
        self._handles: dict[asyncio.TimerHandle, None] = {}

    def later(self, delay_ms: int, callback: Callable[[], object]) -> asyncio.TimerHandle:
        """Call back once, after so many milliseconds; what `cancel` takes back."""

        def ring() -> None:
            self._handles.pop(handle, None)
            callback()

        handle = asyncio.get_running_loop().call_later(delay_ms / 1000, ring)
        self._handles[handle] = None
        return handle

    def cancel(self, handle: asyncio.TimerHandle | None) -> None:
        """It does not ring any more; nothing if it has rung, or was never set."""
        if handle is not None:
            handle.cancel()
            self._handles.pop(handle, None)

    def close(self) -> None:
        """None of them rings any more."""
        for handle in self._handles:
            handle.cancel()
        self._handles.clear()
