"""SIGTERM and SIGINT of a process that is to stop cleanly: the first one counts, and later ones change nothing."""

from __future__ import annotations

import asyncio
import signal
from collections.abc import Callable

STOP = (signal.SIGTERM, signal.SIGINT)


class StopSignals:
    """Handles both signals, from its making on, for good.

    It is not for the event loop to do, which gives them back when it is closed, nor to be undone: what a process does
    at its end is not to be cut off either.
    """

    def __init__(self) -> None:
        self._has_come = False
        self._loop: asyncio.AbstractEventLoop | None = None
        self._action: Callable[[], object] = lambda: None
        for number in STOP:
            signal.signal(number, lambda *_: self._note())

    def when_one_comes(self, action: Callable[[], object]) -> None:
        """Call `action`, and no earlier one, in the running event loop when the first signal comes, or if one has."""
        self._loop, self._action = asyncio.get_running_loop(), action
        if self._has_come:
            self._loop.call_soon(self._act)

    def have_come(self) -> bool:
        """Whether one of the signals has come."""
        return self._has_come

    def ignore(self) -> None:
        """Ignore both signals when all is done: Python lets go of its handlers a moment before the process ends."""
        for number in STOP:
            signal.signal(number, signal.SIG_IGN)

    def _note(self) -> None:
        # Between any two instructions of whatever the process does.
        is_first, self._has_come = not self._has_come, True
        if is_first and self._loop is not None and not self._loop.is_closed():
            self._loop.call_soon_threadsafe(self._act)

    def _act(self) -> None:
        self._action()
