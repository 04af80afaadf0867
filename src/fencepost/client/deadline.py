"""Deadlines of calls, carried through every wait, and the pauses between attempts."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Coroutine
from contextlib import suppress
from typing import Any, Final, Protocol, TypeVar

from fencepost.client.errors import ClientError, TimedOutError
from fencepost.runtime import Runtime

FIRST_BACKOFF: Final = 0.01
_LONGEST_BACKOFF: Final = 0.5
#: Seconds before a deadline at which somebody who waited for it would notice that it is not over yet.
_WORTH_TELLING: Final = 0.1

T = TypeVar("T")


class Waits(Protocol):
    """Something in this process that a request may have to wait for, as a login for its token."""

    def held_up(self) -> str:
        """What it waits for just now, for a message; empty: nothing."""
        ...


def held_up(login: Waits | None) -> str:
    """What a login waits for just now, for a message; empty: nothing, or there is no login."""
    return "" if login is None else login.held_up()


class Deadline:
    """A point in time by the event loop's clock, and the pauses between attempts until then.

    `what` is to be done, for the message of a TimedOutError.  `login`: what in this process may hold it up.
    """

    def __init__(self, runtime: Runtime, timeout_ms: float, what: str, login: Waits | None = None) -> None:
        self._loop = asyncio.get_running_loop()
        self._runtime = runtime
        self._begun = self._loop.time()
        self._at = self._begun + timeout_ms / 1000
        self._latest = self._at
        self._what = what
        self._login = login
        self._pause = FIRST_BACKOFF
        self._timeout_ms = timeout_ms
        self._because: object = "nobody answered"

    @property
    def left(self) -> float:
        """Seconds that are left; negative when it has passed."""
        return self._at - self._loop.time()

    @property
    def last_met(self) -> str:
        """Why the last attempt failed, as text."""
        return str(self._because)

    def at_most(self, timeout_ms: float) -> Deadline:
        """The earlier of this deadline and one in `timeout_ms` milliseconds."""
        if self.left <= timeout_ms / 1000:
            return self
        sooner = Deadline(self._runtime, timeout_ms, self._what, self._login)
        sooner._latest = self._at
        return sooner

    def put_off(self, seconds: float) -> None:
        """Move it `seconds` later, but not behind the deadline that `at_most` made it of."""
        self._at = min(self._at + seconds, self._latest)

    async def pause(self, because: object) -> None:
        """Wait before the next attempt, after `because`; 10 to 500 ms.  Raises TimedOutError if no time is left."""
        self._because = because
        wait = self._pause * (0.8 + 0.4 * self._runtime.random.random())
        self._pause = min(self._pause * 2, _LONGEST_BACKOFF)
        if self.left <= wait:
            raise self._timed_out()
        await asyncio.sleep(wait)

    async def within(self, work: Awaitable[T]) -> T:
        """The result of `work`.  Raises TimedOutError when the deadline passes first; `work` is cancelled then."""
        timer = asyncio.timeout_at(self._at)
        try:
            async with timer:
                return await work
        except TimeoutError:
            if not timer.expired():
                raise
            raise self._timed_out() from None

    def _timed_out(self) -> TimedOutError:
        held = held_up(self._login)
        last = f"{self._because}; {held}" if held else self._because
        early = ""
        if self.left >= _WORTH_TELLING:
            gone = (self._loop.time() - self._begun) * 1000
            early = f" (given up after {gone:.0f} ms: too little time is left to try again)"
        return TimedOutError(f"{self._what} did not succeed within {self._timeout_ms:.0f} ms; last: {last}{early}")


async def within(deadline: Deadline | None, work: Awaitable[T]) -> T:
    """The result of `work`, by the deadline if there is one.  Raises as `Deadline.within`."""
    return await (work if deadline is None else deadline.within(work))


async def attempt(work: Callable[[], Coroutine[Any, Any, object]], deadline: Deadline | None) -> None:
    """Do `work`, by the deadline if there is one; a ClientError, as TimedOutError, is dropped."""
    with suppress(ClientError):
        await within(deadline, work())
