"""Requests that wait for others (JoinGroup, SyncGroup, Fetch), sent to both nodes on connections of their own."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

from tests.compare.connection import MUTE, Connection
from tests.compare.twins import Asked, Diverged, Twins

_QUIET = 0.03
"""After so long nothing more is expected of a node that has answered alike so far."""
_PATIENCE = 5.0
WAITS = "it waits"


class Parked:
    """One request to both nodes, and what each has answered so far."""

    def __init__(
        self, twins: Twins, request: Any, version: int, told: Callable[[Any], Any] = lambda answer: answer
    ) -> None:
        self.twins, self.request, self.version, self._told = twins, request, version, told
        self._connections = [Connection(address) for address in twins.addresses]
        self._answers: list[Any] = [MUTE, MUTE]
        for side, connection in enumerate(self._connections):
            connection.send(twins.real(request, side), version)

    def _is_answered(self, side: int) -> bool:
        if self._answers[side] == MUTE:
            self._answers[side] = self._connections[side].answer(self.request, self.version, 0)
        return bool(self._answers[side] != MUTE)

    def settled(self) -> Any:
        """The answer that both gave, or WAITS.  Raises Diverged if they differ."""
        end = time.monotonic() + _QUIET
        while True:
            answered = [self._is_answered(side) for side in (0, 1)]
            if all(answered):
                return self._compared()
            if time.monotonic() > end:
                if not any(answered):
                    return WAITS
                if time.monotonic() > end + _PATIENCE:
                    theirs, ours = (self._heard(side) if answered[side] else WAITS for side in (0, 1))
                    self.twins.history.append(Asked(self.request, self.version, theirs, ours, self.twins.level))
                    raise Diverged("unexplained")
            time.sleep(0.002)

    def _compared(self) -> Any:
        self.close()
        theirs, ours = (self._heard(side) for side in (0, 1))
        return self.twins.judge(Asked(self.request, self.version, theirs, ours, self.twins.level))

    def _heard(self, side: int) -> Any:
        answer = self._answers[side]
        return answer if isinstance(answer, str) else self._told(self.twins.heard(answer, side))

    def close(self) -> None:
        for connection in self._connections:
            connection.hang_up()
