"""A bare connection to one node: what comes back for a request, and what if nothing does."""

from __future__ import annotations

import socket
import struct
import time
from collections.abc import Callable
from typing import Any

from fencepost.protocol.codec import decode_response, encode_request
from fencepost.protocol.errors import ErrorCode
from fencepost.protocol.messages import RESPONSES, DescribeTransactionsRequest
from fencepost.protocol.messages.describe_transactions import TransactionState

CLOSED = "closed"
"""In place of an answer: the connection was closed."""
MUTE = "mute"
"""In place of an answer: none came in time."""
NOT_READY = (
    ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
    ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.NOT_COORDINATOR,
)
"""A coordinator is still being made or loaded: ask again."""
_CONNECTED_AFTER = 30.0


class Connection:
    """Connects with its first request, and anew with the next one after it was closed or mute.  Not for two threads.

    `patience`: seconds to wait for an answer; after that the connection is given up.
    """

    def __init__(self, address: str, patience: float = 30.0) -> None:
        host, _, port = address.rpartition(":")
        self.patience = patience
        self._address = host, int(port)
        self._socket: socket.socket | None = None
        self._data = b""

    def ask(self, request: Any, version: int, patience: float | None = None) -> Any:
        """The answer, CLOSED or MUTE."""
        if self.send(request, version) == CLOSED:
            return CLOSED
        answer = self.answer(request, version, self.patience if patience is None else patience)
        if isinstance(answer, str):
            self.hang_up()
        return answer

    def send(self, request: Any, version: int) -> str:
        """CLOSED, or nothing if it was sent."""
        return self.send_frame(encode_request(request, version, 1, "comparison"))

    def send_frame(self, frame: bytes) -> str:
        """CLOSED, or nothing if it was sent; a frame begins with its length."""
        try:
            if self._socket is None:
                self._socket = socket.create_connection(self._address, _CONNECTED_AFTER)
                self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            self._socket.settimeout(_CONNECTED_AFTER)
            self._socket.sendall(frame)
        except ConnectionError:
            self.hang_up()
            return CLOSED
        return ""

    def answer(self, request: Any, version: int, patience: float) -> Any:
        """The answer to a request that was sent; CLOSED, or MUTE if it is not there after so many seconds."""
        found = self.frame(patience)
        if isinstance(found, str):
            return found
        return decode_response(RESPONSES[request.__schema__.api], found, version)[1]

    def frame(self, patience: float) -> bytes | str:
        """What comes next, without its length; CLOSED, or MUTE if it is not whole yet after so many seconds."""
        if self._socket is None:
            return CLOSED
        self._socket.settimeout(patience)
        while (size := self._size()) is None or len(self._data) < size:
            try:
                more = self._socket.recv(1 << 20)
            except (TimeoutError, BlockingIOError):
                return MUTE
            except ConnectionError:
                return CLOSED
            if not more:
                return CLOSED
            self._data += more
        found, self._data = self._data[4:size], self._data[size:]
        return found

    def _size(self) -> int | None:
        return 4 + int.from_bytes(self._data[:4], "big") if len(self._data) >= 4 else None

    def described(self, transactional_id: str) -> TransactionState:
        """What the node says of a transactional id, of which it may not be the coordinator yet."""
        answer = self.ask(DescribeTransactionsRequest(transactional_ids=[transactional_id]), 0)
        found: TransactionState = answer.transaction_states[0]
        return found

    def hang_up(self) -> None:
        """Connect anew with the next request."""
        if self._socket is not None:
            self._socket.close()
        self._socket, self._data = None, b""


def is_moving(described: TransactionState) -> bool:
    """Whether the node will say something else before long: its coordinator is not ready, or a marker is missing."""
    return described.error_code in NOT_READY or described.transaction_state.startswith("Prepare")


def frame(api: int, version: int, body: bytes) -> bytes:
    """A request of these bytes, whatever they are."""
    content = struct.pack(">hhih", api, version, 1, -1) + body
    return struct.pack(">i", len(content)) + content


def wait_until(holds: Callable[[], object], patience: float, what: str) -> None:
    """Look again and again, ever less often, for so many seconds."""
    end, pause = time.monotonic() + patience, 0.002
    while not holds():
        assert time.monotonic() < end, f"in {patience:g} s not seen: {what}"
        time.sleep(pause)
        pause = min(2 * pause, 0.2)
