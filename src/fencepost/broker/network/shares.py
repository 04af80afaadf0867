"""How much of one turn of the event loop each connection gets, where many have sent more than fits into one.

A client may send hundreds of requests before it reads an answer, and what has come is there at once.  Whoever comes
alone has a whole turn.  Those who come while others wait stand in line behind them, and the more of them wait, the less
each one gets before it stands in line again: so everybody's first request comes soon.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Final

TURN_SECONDS: Final = 0.01
TURN_REQUESTS: Final = 200
"""Requests of all connections that are handled in one turn of the event loop, however little time they take."""


class Shares:
    """The turns of one node, and the line of those who wait for theirs."""

    def __init__(self) -> None:
        self._line: dict[Callable[[], None], None] = {}
        self._is_running = False
        """Whether a turn has begun that is not over."""
        self._turn_ends = 0.0
        self._turn_left = 0
        self._ends = 0.0
        self._left = 0

    def begin(self, again: Callable[[], None]) -> bool:
        """Have a share of this turn: at least one request.  False where others wait: `again` is called in turn."""
        if not self._is_running:
            self._is_running = True
            asyncio.get_running_loop().call_soon(self._next_turn)
            self._new_turn()
        elif self._line or self._is_over():
            self._line[again] = None
            return False
        self._ends, self._left = self._turn_ends, self._turn_left
        return True

    def goes_on(self, again: Callable[[], None]) -> bool:
        """After each request: whether there may be another one.  If not, `again` is called in turn."""
        self._left -= 1
        self._turn_left -= 1
        if self._left > 0 and asyncio.get_running_loop().time() < self._ends:
            return True
        self._line[again] = None
        return False

    def forget(self, again: Callable[[], None]) -> None:
        """It does not wait any more."""
        self._line.pop(again, None)

    def _new_turn(self) -> None:
        self._turn_ends, self._turn_left = asyncio.get_running_loop().time() + TURN_SECONDS, TURN_REQUESTS

    def _is_over(self) -> bool:
        return self._turn_left <= 0 or asyncio.get_running_loop().time() >= self._turn_ends

    def _next_turn(self) -> None:
        """Everybody in line once, as far as the turn goes."""
        if not self._line:
            self._is_running = False
            return
        loop = asyncio.get_running_loop()
        loop.call_soon(self._next_turn)
        self._new_turn()
        waiting = len(self._line)
        seconds, requests = TURN_SECONDS / waiting, max(TURN_REQUESTS // waiting, 1)
        for _ in range(waiting):
            if not self._line or self._is_over():
                break
            again = next(iter(self._line))
            del self._line[again]
            self._ends, self._left = min(loop.time() + seconds, self._turn_ends), requests
            again()
