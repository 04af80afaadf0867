"""Requests that wait for others (JoinGroup, SyncGroup, Fetch), sent to both nodes on connections of their own."""

from __future__ import annotations

import socket
import time
from collections.abc import Callable
from typing import Any

from tests.compare.coordinator.twins import Asked, Diverged, Twins

from fencepost.protocol.codec import decode_response, encode_request
from fencepost.protocol.messages import RESPONSES

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
        self._data = [b"", b""]
        self._sockets = []
        for side, address in enumerate(twins.addresses):
            host, _, port = address.rpartition(":")
            connection = socket.create_connection((host, int(port)), 30)
            connection.setblocking(False)
            connection.sendall(encode_request(twins.real(request, side), version, 1, "differential"))
            self._sockets.append(connection)

    def _is_answered(self, side: int) -> bool:
        data = self._data[side]
        if len(data) < 4 or len(data) < 4 + int.from_bytes(data[:4], "big"):
            try:
                self._data[side] += self._sockets[side].recv(1 << 20)
            except BlockingIOError:
                return False
            data = self._data[side]
        return len(data) >= 4 and len(data) >= 4 + int.from_bytes(data[:4], "big")

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
        kind = RESPONSES[self.request.__schema__.api]
        return self._told(self.twins.heard(decode_response(kind, self._data[side][4:], self.version)[1], side))

    def close(self) -> None:
        for connection in self._sockets:
            connection.close()
