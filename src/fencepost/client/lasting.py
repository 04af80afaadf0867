"""Work that goes on when its caller stops waiting for it."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any, Final

from fencepost.client.errors import TimedOutError

#: Seconds after which a time-out that nobody waited for is nobody's any more.
_STALE_AFTER: Final = 1.0


class Lasting:
    """Something that is done once at a time, and may take longer than whoever wants it waits.

    Whoever comes next waits for the same; who is there when it ends is told how.  Where nobody is there the next one
    is, but of a time-out only if he comes at once: whoever comes much later has it begun anew.  Of a second one in a
    row he is told all the same: who asks again and again, never in time, would else be told of none.
    """

    def __init__(self, work: Callable[[], Coroutine[Any, Any, None]]) -> None:
        self._work = work
        self._task: asyncio.Task[None] | None = None
        self._ended_at = 0.0
        """By the event loop's clock."""
        self._has_dropped = False
        """Whether the time-out before was told to nobody."""

    @property
    def is_under_way(self) -> bool:
        """Whether the work goes on, or has ended and somebody is still to be told how."""
        self._drop_what_is_stale()
        return self._task is not None

    async def done_within(self, seconds: float | None) -> bool:
        """Whether it is done, after at most so long (None: it takes what it takes).  Raises what it raises."""
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
        """End the work: nobody wants it any more."""
        task, self._task = self._task, None
        if task is not None and task.cancel():
            # It may end with an error all the same, as of a connection that ends too.
            task.add_done_callback(_nobody_asks)
        elif task is not None:
            _nobody_asks(task)


def _nobody_asks(task: asyncio.Task[None]) -> None:
    if not task.cancelled():
        task.exception()
