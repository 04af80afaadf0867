"""The wall clock set ahead: nothing is too old all at once.

What a node keeps for so long (dedup windows of producers, transactional ids, committed offsets, records, open
transactions) has the wall clock's times, as in Apache Kafka, since they outlive the process.  A clock that is set 30
days ahead would have all of it expire at the next look.  So the wall clock is held against the event loop's time, which
nobody sets, and what it jumped ahead counts as time that has not passed.  A jump back takes earlier ones back.

Only the running process knows: after a restart what the wall clock says counts.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from fencepost.node_log import get_logger
from fencepost.protocol.types import Milliseconds
from fencepost.runtime import Clock

logger = get_logger(__name__)

LEAST_MS: Final = 10_000
"""A smaller difference is no jump: the machine may be busy, or the clock steered."""
_MOST_KEPT: Final = 100


class ClockJumps:
    """Says how far the wall clock was set ahead while the node ran.  `real`: the event loop's time, in seconds."""

    def __init__(self, clock: Clock, real: Callable[[], float]) -> None:
        self._clock = clock
        self._real = real
        self._ahead = self._difference()
        self._jumps: list[tuple[int, int]] = []
        """(the wall clock's time before it, milliseconds), earliest first."""

    def _difference(self) -> int:
        return self._clock.now() - int(self._real() * 1000)

    def notice(self) -> None:
        """Find out whether the wall clock was set since this was called last; to be called every second or so."""
        ahead = self._difference()
        jump, self._ahead = ahead - self._ahead, ahead
        if abs(jump) < LEAST_MS:
            return
        logger.warning("the clock of this machine was set by %d ms: nothing expires for that", jump)
        if jump > 0:
            self._jumps.append((self._clock.now() - jump, jump))
        while jump < 0 and self._jumps:
            before, earlier = self._jumps.pop()
            jump += earlier
            if jump > 0:
                self._jumps.append((before, jump))
        if len(self._jumps) > _MOST_KEPT:
            (_, first), (before, second) = self._jumps[:2]
            self._jumps[:2] = [(before, first + second)]

    def since(self, time: int) -> int:
        """Milliseconds that the wall clock has jumped ahead since it showed this time."""
        return sum(jump for before, jump in self._jumps if before >= time)

    def steady(self, now: Milliseconds) -> Milliseconds:
        """The time `now` of the wall clock, in milliseconds, without its jumps."""
        return Milliseconds(now - sum(jump for _, jump in self._jumps))
