"""One connection to a broker: requests out, answers in, in order.

What the broker serves is asked once, at the start; versions are then chosen from both sides' ranges.
"""

from __future__ import annotations

import asyncio
from collections import deque
from typing import Any, Final, NamedTuple, cast

from fencepost import __version__
from fencepost.client.errors import ConnectionLostError, UnsupportedByBrokerError
from fencepost.protocol.codec import decode_response, encode_request
from fencepost.protocol.errors import ErrorCode, ProtocolError
from fencepost.protocol.messages import RESPONSES, ApiVersionsRequest, ApiVersionsResponse
from fencepost.runtime import Network

SOFTWARE: Final = ("fencepost", __version__)
_LARGEST_ANSWER: Final = 256 * 1024 * 1024
_FIRST_BUFFER: Final = 64 * 1024
#: Every broker that can do transactions in a way that we use serves this version.
_API_VERSIONS_VERSION: Final = 3


class _Waiting(NamedTuple):
    answer: asyncio.Future[Any]
    response: Any
    version: int
    correlation_id: int
    deadline: float


class Features(NamedTuple):
    """Finalized features of the cluster, as of `epoch`."""

    epoch: int
    levels: dict[str, int]


class Connection(asyncio.BufferedProtocol):
    """A client's connection to one broker.  Made by `open_connection`."""

    def __init__(self, client_id: str, request_timeout_ms: int) -> None:
        self._client_id = client_id
        self._timeout = request_timeout_ms / 1000
        self._loop = asyncio.get_running_loop()
        self._transport: asyncio.Transport | None = None
        self._waiting: deque[_Waiting] = deque()
        self._correlation_id = 0
        self._timer: asyncio.TimerHandle | None = None
        self._buffer = bytearray(_FIRST_BUFFER)
        self._view = memoryview(self._buffer)
        self._start = self._end = 0
        self._writable: asyncio.Future[None] | None = None
        self.ranges: dict[int, tuple[int, int]] = {}
        self.features = Features(-1, {})
        self.address = ""

    @property
    def is_open(self) -> bool:
        return self._transport is not None and not self._transport.is_closing()

    @property
    def in_flight(self) -> int:
        """Requests that are not answered yet."""
        return len(self._waiting)

    # Requests

    def version_of(self, request: Any, most: int | None = None, least: int = 0) -> int:
        """The newest version of a request class that both sides speak, between `least` and `most`.

        Raises UnsupportedByBrokerError if there is none.
        """
        schema = request.__schema__
        low, high = schema.versions
        served = self.ranges.get(schema.api, (0, -1))
        version: int = min(high, served[1], high if most is None else most)
        if version < max(low, served[0], least):
            raise UnsupportedByBrokerError(
                f"the broker at {self.address} serves {request.__name__} in versions {served[0]} to {served[1]}, "
                f"this needs {max(low, least)} to {high if most is None else min(most, high)}"
            )
        return version

    def request(self, message: Any, version: int, timeout_ms: int | None = None) -> asyncio.Future[Any]:
        """Send a request; its answer is awaited on the result.  Raises ConnectionLostError there.

        What cannot be encoded raises at once, and leaves nothing behind.
        """
        answer = self._loop.create_future()
        if not self.is_open:
            answer.set_exception(ConnectionLostError(f"the connection to {self.address} is closed"))
            return answer
        self._correlation_id = (self._correlation_id + 1) & 0x7FFFFFFF
        encoded = encode_request(message, version, self._correlation_id, self._client_id)
        wait = self._timeout if timeout_ms is None else timeout_ms / 1000
        response = RESPONSES[message.__schema__.api]
        self._waiting.append(_Waiting(answer, response, version, self._correlation_id, self._loop.time() + wait))
        self._send(encoded)
        if self._timer is None:
            self._timer = self._loop.call_later(wait, self._check_time)
        return answer

    def _send(self, data: bytes) -> None:
        if self._transport is not None:
            self._transport.write(data)

    def _check_time(self) -> None:
        """End the connection if the answer to the oldest request is late: those after it wait behind it."""
        self._timer = None
        if not self._waiting:
            return
        left = min(waiting.deadline for waiting in self._waiting) - self._loop.time()
        if left > 0:
            self._timer = self._loop.call_later(left, self._check_time)
        else:
            self.close(f"{self.address} did not answer in time")

    async def start(self) -> None:
        """Ask what the broker serves."""
        request = ApiVersionsRequest(client_software_name=SOFTWARE[0], client_software_version=SOFTWARE[1])
        answer: ApiVersionsResponse = await self.request(request, _API_VERSIONS_VERSION)
        if answer.error_code:
            raise UnsupportedByBrokerError(
                f"the broker at {self.address} answered ApiVersions with {ErrorCode(answer.error_code).name}: "
                "it is older than Apache Kafka 2.4"
            )
        self.ranges = {served.api_key: (served.min_version, served.max_version) for served in answer.api_keys}
        levels = {feature.name: feature.max_version_level for feature in answer.finalized_features}
        self.features = Features(answer.finalized_features_epoch, levels)

    def close(self, why: str = "") -> None:
        """End the connection; whoever waits for an answer gets a ConnectionLostError."""
        transport, self._transport = self._transport, None
        if transport is not None:
            transport.abort()
        self._fail(why or f"the connection to {self.address} was closed")

    def _fail(self, why: str) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        waiting, self._waiting = self._waiting, deque()
        for entry in waiting:
            if not entry.answer.done():
                entry.answer.set_exception(ConnectionLostError(why))

    # asyncio's side

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)

    def connection_lost(self, exc: Exception | None) -> None:
        self._transport = None
        self._fail(f"the connection to {self.address} was lost{f': {exc}' if exc else ''}")

    def eof_received(self) -> bool:
        return False

    def get_buffer(self, sizehint: int) -> memoryview:  # noqa: ARG002
        if self._end == len(self._buffer):
            self._make_room(len(self._buffer) * 2)
        return self._view[self._end :]

    def buffer_updated(self, nbytes: int) -> None:
        self._end += nbytes
        while self._end - self._start >= 4:
            at = self._start
            size = int.from_bytes(self._view[at : at + 4], "big", signed=True)
            if not 4 <= size <= _LARGEST_ANSWER:
                self.close(f"{self.address} announced an answer of {size} bytes: this is no Kafka broker")
                return
            if self._end - at - 4 < size:
                if at + 4 + size > len(self._buffer):
                    self._make_room(4 + size)
                return
            self._start = at + 4 + size
            if not self._answer(bytes(self._view[at + 4 : at + 4 + size])):
                return
        if self._start == self._end:
            self._start = self._end = 0

    def _make_room(self, size: int) -> None:
        rest = bytes(self._view[self._start : self._end])
        self._buffer = bytearray(max(size, _FIRST_BUFFER, len(rest)))
        self._view = memoryview(self._buffer)
        self._view[: len(rest)] = rest
        self._start, self._end = 0, len(rest)

    def _answer(self, frame: bytes) -> bool:
        if not self._waiting:
            self.close(f"{self.address} answered what nobody asked")
            return False
        entry = self._waiting.popleft()
        try:
            try:
                correlation_id, response = decode_response(entry.response, frame, entry.version)
            except ProtocolError:
                if entry.response is not ApiVersionsResponse:
                    raise
                # A broker that does not know the version answers in the first one (KIP-511).
                correlation_id, response = decode_response(entry.response, frame, 0)
        except ProtocolError as error:
            self._waiting.appendleft(entry)
            self.close(f"{self.address} sent an answer that cannot be read: {error}")
            return False
        if correlation_id != entry.correlation_id:
            self._waiting.appendleft(entry)
            self.close(f"{self.address} answered out of order")
            return False
        if not entry.answer.done():
            entry.answer.set_result(response)
        return True


async def open_connection(
    network: Network, host: str, port: int, client_id: str, request_timeout_ms: int
) -> Connection:
    """Connect and ask what is served.  Raises OSError, ConnectionLostError, UnsupportedByBrokerError."""
    async with asyncio.timeout(request_timeout_ms / 1000):
        _, connection = await network.connect(lambda: Connection(client_id, request_timeout_ms), host, port)
        connection.address = f"{host}:{port}"
        try:
            await connection.start()
        except BaseException:
            connection.close()
            raise
    return connection
