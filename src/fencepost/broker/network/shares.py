"""How much of one turn of the event loop each connection gets, where many have sent more than fits into one.

A client may send hundreds of requests before it reads an answer, and what has come is there at once.  Whoever comes
alone has a whole turn.  Those who come while others wait stand in line, and the more of them wait, the less each one
gets before it stands in line again.  Whoever has not used up a share since there was nobody in line goes before those
who have, in half of each turn: one who asks for little waits for one turn, however long the line is (as new flows in
RFC 8290, section 4.2).
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
        """Those who have used up a share and wait for another one."""
        self._newcomers: dict[Callable[[], None], None] = {}
        self._busy: set[Callable[[], None]] = set()
        """Who has used up a share since there was nobody in line, be he in line now or not."""
        self._line_is_due = False
        """Whether newcomers have taken all of the last turn."""
        self._is_running = False
        """Whether the turn ends when the event loop has gone round: looked at only in the second half of it, as that
        costs a tenth of a small request.  Until then it stands still between two shares, however far they are apart.
        """
        self._rest = TURN_SECONDS
        """What was left of the turn after the last share."""
        self._turn_ends = 0.0
        self._turn_left = TURN_REQUESTS
        self._ends = 0.0
        self._left = 0

    def begin(self, again: Callable[[], None], now: float) -> bool:
        """Have a share of this turn: at least one request.  False where others wait: `again` is called in turn.

        `now`: seconds, by the clock of the event loop.
        """
        if not self._is_running:
            self._turn_ends = now + self._rest
        elif self._line or self._newcomers or self._turn_left <= 0 or now >= self._turn_ends:
            (self._line if again in self._busy else self._newcomers)[again] = None
            return False
        self._ends, self._left = self._turn_ends, self._turn_left
        return True

    def goes_on(self, again: Callable[[], None], now: float) -> bool:
        """Whether the connection may have another request handled now.  If not, `again` is called in turn."""
        self._left -= 1
        self._turn_left -= 1
        if not self._is_running:
            self._rest = self._turn_ends - now
            if self._rest <= TURN_SECONDS / 2 or self._turn_left <= TURN_REQUESTS // 2:
                self._is_running = True
                asyncio.get_running_loop().call_soon(self._next_turn)
        if self._left > 0 and now < self._ends:
            return True
        self._line[again] = None
        self._busy.add(again)
        return False

    def forget(self, again: Callable[[], None]) -> None:
        """Let `again` wait no more."""
        self._line.pop(again, None)
        self._newcomers.pop(again, None)
        self._busy.discard(again)

    def _new_turn(self) -> None:
        self._turn_ends, self._turn_left = asyncio.get_running_loop().time() + TURN_SECONDS, TURN_REQUESTS

    def _next_turn(self) -> None:
        """Begin a turn: newcomers in half of it, then the others, everybody once, as far as the turn goes."""
        if not self._line:
            self._busy.clear()
        if not self._line and not self._newcomers:
            self._is_running = False
            self._rest, self._turn_left = TURN_SECONDS, TURN_REQUESTS
            return
        loop = asyncio.get_running_loop()
        loop.call_soon(self._next_turn)
        self._new_turn()
        in_line = len(self._line)
        waiting = in_line + len(self._newcomers)
        share = TURN_SECONDS / waiting, max(TURN_REQUESTS // waiting, 1)
        due = bool(self._line) and self._line_is_due
        if due:
            self._serve(self._line, 1, *share)
            in_line -= 1
        else:
            self._serve(self._newcomers, waiting, *share, half=bool(self._line))
        before = self._turn_left
        self._serve(self._line, in_line, *share)
        self._line_is_due = not due and bool(in_line) and self._turn_left == before

    def _serve(
        self, line: dict[Callable[[], None], None], count: int, seconds: float, requests: int, half: bool = False
    ) -> None:
        """Give shares of this size to `count` of those in `line`, as far as the turn goes, or half of it."""
        loop = asyncio.get_running_loop()
        ends, left = self._turn_ends, 0
        if half:
            ends, left = ends - TURN_SECONDS / 2, self._turn_left // 2
        for _ in range(count):
            now = loop.time()
            if not line or self._turn_left <= left or now >= ends:
                return
            again = next(iter(line))
            del line[again]
            self._ends, self._left = min(now + seconds, self._turn_ends), requests
            again()
