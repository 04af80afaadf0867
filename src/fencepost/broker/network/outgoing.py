"""What leaves on one connection: answers in the order of requests, then bytes that the transport has yet to take."""

from __future__ import annotations

from asyncio import Transport
from collections import deque

from fencepost.broker.network.limits import PIECE


class Slot:
    """The place of one response in the order of requests."""

    __slots__ = ("data", "lsn", "size")

    def __init__(self, size: int) -> None:
        self.data: bytes | None = None
        self.lsn = 0
        self.size = size
        """Bytes that wait in it: of the request, then of the response."""


class Outgoing:
    """Answers that may leave now."""

    def __init__(self) -> None:
        self.is_writable = True
        """Whether the transport takes more."""
        self._output: list[bytes] = []
        self.unsent = 0
        """Bytes of answers that were added since the last `send`."""
        self._rest: deque[memoryview] = deque()
        """What the transport did not take; in front of the output."""

    @property
    def has_rest(self) -> bool:
        """Whether the transport did not take everything."""
        return bool(self._rest)

    def add(self, data: bytes) -> None:
        self._output.append(data)
        self.unsent += len(data)

    def clear(self) -> None:
        self._output.clear()
        self._rest.clear()

    def send(self, transport: Transport | None) -> bool:
        """Hand over what the transport takes; False if there was nothing."""
        if not self._output and not self._rest:
            return False
        if transport is not None:
            if self._rest or self.unsent > PIECE:
                self._send_pieces(transport)
            else:
                transport.write(self._output[0] if len(self._output) == 1 else b"".join(self._output))
        self._output, self.unsent = [], 0
        return True

    def send_all(self, transport: Transport) -> None:
        """Hand over the rest, whether it is taken or not: the connection ends."""
        while self._rest:
            transport.write(self._rest.popleft())

    def _send_pieces(self, transport: Transport) -> None:
        """Nothing is copied before the transport takes it."""
        rest = self._rest
        rest.extend(map(memoryview, self._output))
        while rest and self.is_writable:
            piece = rest[0][:PIECE]
            if len(piece) == len(rest[0]):
                rest.popleft()
            else:
                rest[0] = rest[0][PIECE:]
            transport.write(piece)
