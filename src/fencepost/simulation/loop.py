"""An event loop whose time is virtual: when nothing is ready it jumps to the next timer.

Nothing else moves time, and nothing outside can wake it, so the same program gives the same history.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from functools import partial
from typing import Any, TypeVar

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
    """Everybody waits and no timer is set, or somebody goes on for ever without any time passing."""


class _Selector:
    """In place of sockets to wait for: time passes."""

    def __init__(self, loop: VirtualLoop) -> None:
        self._loop = loop
        self._turns = 0

    def select(self, timeout: float | None) -> list[Any]:
        if timeout is None:
            raise Deadlock("every task waits for something, and no timer is set that could bring it")
        self._turns = 0 if timeout else self._turns + 1
        if self._turns > _MOST_TURNS:
            raise Deadlock("somebody goes on for ever while time stands still")
        self._loop.advance(timeout)
        return []


class VirtualLoop(asyncio.BaseEventLoop):
    """An asyncio event loop on virtual time, in seconds from 0."""

    def __init__(self) -> None:
        super().__init__()
        self._now = 0.0
        self._selector = _Selector(self)
        self._clock_resolution = 1e-9

    def time(self) -> float:
        return self._now

    def advance(self, seconds: float) -> None:
        """Exactly to the next timer, where that is what is waited for: a sum of fractions might not reach it."""
        timers: list[asyncio.TimerHandle] = getattr(self, "_scheduled", [])
        self._now = max(self._now + seconds, timers[0].when() if seconds and timers else 0.0)

    def _process_events(self, events: list[Any]) -> None:
        assert not events, "there is nothing outside"

    def _write_to_self(self) -> None:
        pass  # it never sleeps

    def run_in_executor(self, executor: Any, func: Callable[..., Any], *args: Any) -> asyncio.Future[Any]:  # type: ignore[override]
        """What asyncio.to_thread asks for: done here, and told `_THREAD_TAKES` later, as other tasks go on meanwhile.

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
        return Milliseconds(EPOCH_MS + int(self._loop.time() * 1000) + self.skew_ms)


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
