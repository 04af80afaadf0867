"""An event loop whose time is virtual: when nothing is ready it jumps to the next timer.

Nothing else moves time, and nothing outside can wake it, so the same program gives the same history.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Coroutine
from contextvars import Context, ContextVar, copy_context
from functools import partial
from heapq import heapify, heappop, heappush
from typing import Any, Final, Protocol, TypeVar

from fencepost.protocol.types import Milliseconds

T = TypeVar("T")

#: Where virtual wall clocks begin: 2025-01-01T00:00:00Z.
EPOCH_MS = 1_735_689_600_000


#: Seconds of virtual time that tasks have to end when all is over.
_PATIENCE = 60


#: Seconds of virtual time until the work of a thread is done.
_THREAD_TAKES = 0.001
#: Turns of the loop without any time passing, after which it never will.
_MOST_TURNS = 100_000


class Deadlock(RuntimeError):
    """The run cannot go on: everybody waits and no timer is set, or callbacks never end while time stands still."""


class Owner(Protocol):
    """A process that may keep its callbacks from running."""

    stands_still: bool
    """Whether it keeps its callbacks from running now."""

    def keeps(self, handle: Handle) -> bool:
        """Whether this callback is not to run yet; its owner has it run later."""
        ...


OWNER: Final[ContextVar[Owner | None]] = ContextVar("owner", default=None)
"""The owner of the callbacks that are scheduled now; None: nobody."""


class _Soon(asyncio.Handle):
    """A callback, and whose it is.  Very many are made: each attribute is set once."""

    __slots__ = ("owner",)

    def __init__(self, callback: Any, args: Any, loop: VirtualLoop, context: Context) -> None:
        self._callback, self._args, self._loop, self._context = callback, args, loop, context
        self._cancelled, self._repr, self._source_traceback = False, None, None
        self.owner = context.get(OWNER)


class _Timer(asyncio.TimerHandle):
    """A timer: as `_Soon`, for a later time."""

    __slots__ = ("owner",)

    def __init__(self, when: float, callback: Any, args: Any, loop: VirtualLoop, context: Context) -> None:
        self._callback, self._args, self._loop, self._context = callback, args, loop, context
        self._cancelled, self._repr, self._source_traceback = False, None, None
        self._when, self._scheduled = when, True
        self.owner = context.get(OWNER)


Handle = _Soon | _Timer

#: The timers are tidied when there are so many, and so large a part of them is cancelled.
_MANY_TIMERS: Final = 100
_MANY_CANCELLED: Final = 0.5
_RESOLUTION: Final = 1e-9


class VirtualLoop(asyncio.BaseEventLoop):
    """An asyncio event loop on virtual time, in seconds from 0.

    Most of what a simulation does is to go round here, so this is asyncio's own loop again, without what real time and
    sockets need.
    """

    def __init__(self) -> None:
        super().__init__()
        self._now = 0.0
        self._clock_resolution = _RESOLUTION
        self._stopping = False
        """Set by `stop`: this turn is the last one."""
        self._ready: deque[Handle] = deque()
        self._scheduled: list[tuple[float, _Timer]] = []
        self._timer_cancelled_count = 0
        self._turns = 0
        """Turns of the loop since time passed."""

    def time(self) -> float:
        return self._now

    def advance(self, seconds: float) -> None:
        """Set the time ahead by so many seconds, in the middle of a callback."""
        self._now += seconds

    def call_soon(  # type: ignore[override]
        self, callback: Any, *args: Any, context: Context | None = None
    ) -> asyncio.Handle:
        handle = _Soon(callback, args, self, copy_context() if context is None else context)
        self._ready.append(handle)
        return handle

    def call_soon_threadsafe(  # type: ignore[override]
        self, callback: Any, *args: Any, context: Context | None = None
    ) -> asyncio.Handle:
        """As `call_soon`, for there is one thread: asyncio calls it for async generators that nobody has any more."""
        return self.call_soon(callback, *args, context=context)

    def call_later(  # type: ignore[override]
        self, delay: float, callback: Any, *args: Any, context: Context | None = None
    ) -> asyncio.TimerHandle:
        when = self._now + delay
        timer = _Timer(when, callback, args, self, copy_context() if context is None else context)
        heappush(self._scheduled, (when, timer))
        return timer

    def call_at(  # type: ignore[override]
        self, when: float, callback: Any, *args: Any, context: Context | None = None
    ) -> asyncio.TimerHandle:
        timer = _Timer(when, callback, args, self, copy_context() if context is None else context)
        heappush(self._scheduled, (when, timer))
        return timer

    def run_soon(self, handles: list[Handle]) -> None:
        """Run what an owner kept, in this order."""
        self._ready.extend(handles)

    def _run_once(self) -> None:
        """Run the callbacks that are ready, in order; if none is, first go to the time of the next timer."""
        timers, ready = self._scheduled, self._ready
        if timers and (timers[0][1]._cancelled or self._timer_cancelled_count > _MANY_CANCELLED * _MANY_TIMERS):
            self._tidy_timers()
        self._turns += 1
        if not ready and not self._stopping:
            if not timers:
                raise Deadlock("every task waits for something, and no timer is set that could bring it")
            when, now = timers[0][0], self._now
            if when > now:
                # A sum of fractions might not reach it.
                self._now = max(now + (when - now), when)
                self._turns = 0
        if self._turns > _MOST_TURNS:
            raise Deadlock("somebody goes on for ever while time stands still")
        end = self._now + _RESOLUTION
        while timers and timers[0][0] < end:
            _, timer = heappop(timers)
            timer._scheduled = False
            ready.append(timer)
        for _ in range(len(ready)):
            handle = ready.popleft()
            owner = handle.owner
            if handle._cancelled or (owner is not None and owner.stands_still and owner.keeps(handle)):
                continue
            try:
                handle._context.run(handle._callback, *handle._args)
            except (SystemExit, KeyboardInterrupt):
                raise
            except BaseException as error:
                self.call_exception_handler(
                    {"message": f"Exception in callback {handle!r}", "exception": error, "handle": handle}
                )

    def _tidy_timers(self) -> None:
        """Forget cancelled timers: those that are next, and all where they are many."""
        timers = self._scheduled
        if len(timers) > _MANY_TIMERS and self._timer_cancelled_count > _MANY_CANCELLED * len(timers):
            timers[:] = [timer for timer in timers if not timer[1]._cancelled]
            heapify(timers)
            self._timer_cancelled_count = 0
        while timers and timers[0][1]._cancelled:
            heappop(timers)
            self._timer_cancelled_count -= 1

    def _write_to_self(self) -> None:
        pass  # it never sleeps

    def run_in_executor(self, executor: Any, func: Callable[..., Any], *args: Any) -> asyncio.Future[Any]:  # type: ignore[override]
        """Call `func` now; the future is done `_THREAD_TAKES` seconds later, as other tasks go on meanwhile.

        A pool of somebody's own is refused, for it is where real files are waited for.
        """
        assert executor is None, f"no pools of threads in the simulation: {func}"
        told = self.create_future()
        try:
            tell = partial(told.set_result, func(*args))
        except Exception as error:
            tell = partial(told.set_exception, error)
        self.call_later(_THREAD_TAKES, lambda: told.cancelled() or tell())
        return told


class VirtualClock:
    """The wall clock of one machine; `skew_ms` is how far it is off."""

    def __init__(self, loop: VirtualLoop, skew_ms: int = 0) -> None:
        self._loop = loop
        self.skew_ms = skew_ms

    def now(self) -> Milliseconds:
        return Milliseconds(EPOCH_MS + int(self._loop._now * 1000) + self.skew_ms)


def run(main: Callable[[VirtualLoop], Coroutine[Any, Any, T]], make_loop: Callable[[], VirtualLoop] = VirtualLoop) -> T:
    """Run a coroutine, made for a fresh virtual loop, to its end."""
    loop = make_loop()
    asyncio.set_event_loop(loop)
    try:
        return loop.run_until_complete(main(loop))
    finally:
        left = asyncio.all_tasks(loop)
        for task in left:
            task.cancel()
        if left:
            loop.run_until_complete(asyncio.wait(left, timeout=_PATIENCE))
        asyncio.set_event_loop(None)
        loop.close()
