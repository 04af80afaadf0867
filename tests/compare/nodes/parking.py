"""Requests that wait for others (JoinGroup, SyncGroup, Fetch), sent to both nodes on connections of their own.

That a request waits is known, not guessed from silence.  Nodes of `IN_ORDER` do what they are asked in the order in
which it came, and a commit of offsets is answered when everything before it in the only partition of the group
coordinator is: so who has no answer when later requests on another connection have theirs, waits.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any, Final

from tests.compare.nodes import requests
from tests.compare.nodes.connection import MUTE, Connection
from tests.compare.nodes.twins import Asked, Diverged, Twins

from fencepost.protocol.messages import ApiVersionsRequest

IN_ORDER: Final = {"offsets.topic.num.partitions": "1"}
"""What both nodes are started with."""
ONLY_KAFKA_IN_ORDER: Final = {
    "num.network.threads": "1",
    "num.io.threads": "1",
    "group.coordinator.append.linger.ms": "0",
}
_ROUNDS: Final = 3
"""The first is read after what was sent before, the second done after that, the third answered after its answer."""
_ASIDE, _TOPIC = "aside", "twins-b"
_HELLO: Final = ApiVersionsRequest(client_software_name="comparison", client_software_version="1")
_PATIENCE: Final = 20.0
WAITS = "it waits"


def catch_up(twins: Twins) -> None:
    """Return when both nodes have done what was sent to them on any connection, and sent what answers there are."""
    for _ in range(_ROUNDS):
        for node in (twins.kafka, twins.ours):
            node.ask(requests.commit(_ASIDE, {_TOPIC: {0: 0}}), 8)


class Parked:
    """One request to both nodes, and what each has answered so far."""

    def __init__(
        self, twins: Twins, request: Any, version: int, told: Callable[[Any], Any] = lambda answer: answer
    ) -> None:
        self.twins, self.request, self.version, self._told = twins, request, version, told
        self._connections = [Connection(address) for address in twins.addresses]
        self._answers: list[Any] = [MUTE, MUTE]
        for side, connection in enumerate(self._connections):
            connection.ask(_HELLO, 3)  # the node knows the connection: what is sent on it has its place in the order
            connection.send(twins.real(request, side), version)

    def _is_answered(self, side: int) -> bool:
        if self._answers[side] == MUTE:
            self._answers[side] = self._connections[side].answer(self.request, self.version, 0)
        return bool(self._answers[side] != MUTE)

    def settled(self) -> Any:
        """The answer that both gave, or WAITS if neither has one.  Raises Diverged if they differ."""
        catch_up(self.twins)
        return self.answered() if any(self._is_answered(side) for side in (0, 1)) else WAITS

    def answered(self) -> Any:
        """The answer that both gave, or will give before long.  Raises Diverged if they differ."""
        end = time.monotonic() + _PATIENCE
        while not all(answered := [self._is_answered(side) for side in (0, 1)]):
            if time.monotonic() > end:
                theirs, ours = (self._heard(side) if answered[side] else WAITS for side in (0, 1))
                self.twins.history.append(Asked(self.request, self.version, theirs, ours, self.twins.level))
                raise Diverged("unexplained")
            time.sleep(0.002)
        return self._compared()

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
