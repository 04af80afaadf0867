"""Work that goes on when its caller stops waiting for it."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any, Final

from fencepost.client.errors import TimedOutError

#: Seconds after which a time-out that nobody waited for is nobody's any more.
_STALE_AFTER: Final = 1.0


class Lasting:
    """Work of which there is one run at a time, which goes on when a caller stops waiting for it.

    Who comes meanwhile waits for the same run; who waits when it ends meets its error.  If nobody does the next caller
    meets it, but a TimedOutError only within a second: later the work begins anew.  A second TimedOutError in a row is
    met at any time: who asks again and again, never in time, would else meet none.
    """

    def __init__(self, work: Callable[[], Coroutine[Any, Any, None]]) -> None:
        self._work = work
        self._task: asyncio.Task[None] | None = None
        self._ended_at = 0.0
        """When the last run ended, in seconds of the event loop's clock."""
        self._has_dropped = False
        """Whether the last TimedOutError was met by nobody."""

    @property
    def is_under_way(self) -> bool:
        """Whether a run goes on, or has ended and no caller has met its end yet."""
        self._drop_what_is_stale()
        return self._task is not None

    async def done_within(self, seconds: float | None) -> bool:
        """Begin the work, or wait for the run under way, `seconds` at most (None: any time); whether it is done.

        Raises what the work raises.
        """
        self._drop_what_is_stale()
        task = self._task = self._task or asyncio.get_running_loop().create_task(self._whole())
        if not task.done():  # else who is about to be cancelled is told all the same
            await asyncio.wait([task], timeout=None if seconds is None else max(seconds, 0))
        if self._task is not task:
            return False  # it was cancelled, or somebody else was told
        if not task.done():
            return False
        self._task, self._has_dropped = None, False
        task.result()
        return True

    async def _whole(self) -> None:
        try:
            await self._work()
        finally:
            self._ended_at = asyncio.get_running_loop().time()

    def _drop_what_is_stale(self) -> None:
        task = self._task
        if task is None or self._has_dropped or not task.done() or task.cancelled():
            return
        if not isinstance(task.exception(), TimedOutError):
            return
        if task.get_loop().time() - self._ended_at > _STALE_AFTER:
            self._task, self._has_dropped = None, True

    def cancel(self) -> None:
        """Cancel the run under way, whose end nobody meets then."""
        task, self._task = self._task, None
        if task is not None and task.cancel():
            # It may end with an error all the same, as of a connection that ends too.
            task.add_done_callback(_nobody_asks)
        elif task is not None:
            _nobody_asks(task)


def _nobody_asks(task: asyncio.Task[None]) -> None:
    if not task.cancelled():
        task.exception()
