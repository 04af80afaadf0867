"""One connection to a broker: requests out, answers in, in order.

What the broker serves is asked once, at the start; versions are then chosen from both sides' ranges.  After that the
connection logs in, if it has to, and does it again before its session ends (KIP-368).
"""

from __future__ import annotations

import asyncio
import logging
import ssl
from collections import deque
from itertools import chain
from struct import Struct
from typing import Any, Final, NamedTuple, cast

from fencepost import __version__
from fencepost.client import tls
from fencepost.client.authentication import ENDLESS, Login
from fencepost.client.errors import (
    AuthenticationError,
    ClientError,
    ConnectionLostError,
    MisuseError,
    UnsupportedByBrokerError,
)
from fencepost.client.seldom import Seldom
from fencepost.protocol.codec import decode_response, encode_request
from fencepost.protocol.errors import ErrorCode, ProtocolError
from fencepost.protocol.messages import RESPONSES, ApiVersionsRequest, ApiVersionsResponse

logger = logging.getLogger(__name__)

SOFTWARE: Final = ("fencepost", __version__)
_SIZE: Final = Struct(">i")
_LARGEST_ANSWER: Final = 256 * 1024 * 1024
_FIRST_BUFFER: Final = 64 * 1024
#: Every broker that can do transactions in a way that we use serves this version.
_API_VERSIONS_VERSION: Final = 3
#: Seconds after which credentials that could not be had are asked for again.
_CREDENTIALS_AGAIN_AFTER: Final = 1.0
#: What a message of TLS begins with: an alert or a handshake, and the version.
_TLS: Final = (b"\x15\x03", b"\x16\x03")


class _Waiting(NamedTuple):
    answer: asyncio.Future[Any]
    response: Any
    """The class of the answer; None: the broker sends none."""
    version: int
    correlation_id: int
    deadline: float


class Features(NamedTuple):
    """Finalized features of the cluster, as of `epoch`."""

    epoch: int
    levels: dict[str, int]


class Connection(asyncio.BufferedProtocol):
    """A client's connection to one broker, answers in the order of requests.  Made by `opening.open_connection`."""

    def __init__(self, client_id: str, request_timeout_ms: int, login: Login | None = None) -> None:
        self._client_id = client_id
        self._timeout = request_timeout_ms / 1000
        self._login = login
        self._session = ENDLESS
        self._logging_in: asyncio.Task[None] | None = None
        self._no_login = Seldom()
        self._held: deque[tuple[_Waiting, bytes]] | None = None
        """Requests that wait until the connection has logged in again; None: it is logged in."""
        self._loop = asyncio.get_running_loop()
        self._transport: asyncio.Transport | None = None
        self._lost: ClientError | None = None  # before it was asked anything
        self._waiting: deque[_Waiting] = deque()
        self._correlation_id = 0
        self._answered = 0
        self._has_tls = False
        self._timer: asyncio.TimerHandle | None = None
        self._buffer = bytearray(_FIRST_BUFFER)
        self._view = memoryview(self._buffer)
        self._start = self._end = 0
        self._unwritten: deque[_Waiting] = deque()
        """Requests that are not answered, and are not handed to the system yet."""
        self._is_paused = False
        self.ranges: dict[int, tuple[int, int]] = {}
        self.features = Features(-1, {})
        self.address = ""

    @property
    def is_open(self) -> bool:
        return self._transport is not None and not self._transport.is_closing()

    @property
    def in_flight(self) -> int:
        """Requests that are not answered yet."""
        return len(self._waiting) + len(self._unwritten) + len(self._held or ())

    # Requests

    def version_of(self, request: Any, most: int | None = None, least: int = 0) -> int:
        """The newest version of a request class that both sides speak, between `least` and `most`.

        Raises UnsupportedByBrokerError if there is none.
        """
        schema = request.__schema__
        low, high = schema.versions
        served = self.ranges.get(schema.api)
        if served is None:
            raise UnsupportedByBrokerError(
                f"the broker at {self.address} does not serve {_api(request)}: use a newer one, or do without"
            )
        highest: int = high if most is None else min(high, most)
        version = min(highest, served[1])
        if version < max(low, served[0], least):
            older = "client" if served[0] > highest else "broker"
            raise UnsupportedByBrokerError(
                f"the broker at {self.address} serves {_api(request)} in versions {served[0]} to {served[1]}, "
                f"this needs {max(low, least)} to {highest}: use a newer {older}"
            )
        return version

    def request(
        self, message: Any, version: int, timeout_ms: int | None = None, *, answered: bool = True
    ) -> asyncio.Future[Any]:
        """Send a request; a future of its answer, which raises ConnectionLostError if none comes.

        `timeout_ms`: how long the answer is waited for (None: `request_timeout_ms`).  `answered`: whether the broker
        answers it.  If not the result is None, once the request was handed to the system.
        Raises MisuseError, at once, for a message that cannot be encoded.
        """
        answer = self._loop.create_future()
        if not self.is_open:
            answer.set_exception(self._closed())
            return answer
        try:
            entry, encoded = self._prepared(answer, message, version, timeout_ms)
        except Exception as error:
            name = type(message).__name__
            raise MisuseError(f"{name} cannot be sent: {error}. Correct what the call was given") from error
        if not answered:
            entry = entry._replace(response=None)
        if self._loop.time() >= self._session.again_at:
            self._begin_to_log_in_again()
        if self._held is None:
            self._send(entry, encoded)
        else:
            self._held.append((entry, encoded))
        if self._timer is None and not answer.done():
            self._timer = self._loop.call_at(entry.deadline, self._check_time)
        return answer

    def _prepared(
        self, answer: asyncio.Future[Any], message: Any, version: int, timeout_ms: int | None
    ) -> tuple[_Waiting, bytes]:
        self._correlation_id = (self._correlation_id + 1) & 0x7FFFFFFF
        encoded = encode_request(message, version, self._correlation_id, self._client_id)
        wait = self._timeout if timeout_ms is None else timeout_ms / 1000
        response = RESPONSES[message.__schema__.api]
        return _Waiting(answer, response, version, self._correlation_id, self._loop.time() + wait), encoded

    def _send(self, entry: _Waiting, encoded: bytes) -> None:
        if entry.response is not None:
            self._waiting.append(entry)
        if self._transport is not None:
            self._transport.write(encoded)
        if entry.response is None:
            self._unwritten.append(entry)
            self._written()

    def _written(self) -> None:
        """End the futures of the requests without an answer that were handed to the system."""
        while self._unwritten and not self._is_paused:
            entry = self._unwritten.popleft()
            if not entry.answer.done():
                entry.answer.set_result(None)

    def _check_time(self) -> None:
        """End the connection if the answer to the oldest request is late: those after it wait behind it."""
        self._timer = None
        if not self.in_flight:
            return
        entries = chain(self._waiting, self._unwritten, (entry for entry, _ in self._held or ()))
        left = min(entry.deadline for entry in entries) - self._loop.time()
        if left > 0:
            self._timer = self._loop.call_later(left, self._check_time)
        else:
            self.close(f"{self.address} did not answer in time")

    async def ask_what_is_served(self) -> None:
        """Ask, before anything else, which APIs and features the broker has.

        Raises AuthenticationError, ConnectionLostError, UnsupportedByBrokerError.
        """
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

    async def log_in(self) -> None:
        """Log in, where the client has a login.

        Raises AuthenticationError, ConnectionLostError, UnsupportedByBrokerError.
        """
        if self._login is not None:
            self._session = await self._login.carry_out(await self._login.exchange(), self.address, self._ask_of_login)

    async def _ask_of_login(self, message: Any) -> Any:
        """The answer to a request that belongs to logging in; nothing else is sent meanwhile."""
        least, most = message.__schema__.versions
        answer = self._loop.create_future()
        if not self.is_open:
            raise self._closed()
        self._send(*self._prepared(answer, message, self.version_of(type(message), most, least), None))
        if self._timer is None:
            self._timer = self._loop.call_later(self._timeout, self._check_time)
        return await answer

    def _begin_to_log_in_again(self) -> None:
        """Log in again before the session ends; where the connection was idle then, before anything else."""
        if self._held is None and self._loop.time() >= self._session.safe_until:
            self._held = deque()
        if self._logging_in is None:
            assert self._login is not None, "who has not logged in has no session"
            self._logging_in = self._loop.create_task(self._log_in_again(self._login))

    async def _log_in_again(self, login: Login) -> None:
        """Log in once more: requests on their way are answered before it, new ones are sent after it."""
        try:
            exchange = await login.exchange()
            self._held = deque() if self._held is None else self._held
            self._session = await login.carry_out(exchange, self.address, self._ask_of_login)
        except ClientError as error:
            self._logging_in = None
            if self._held is None:
                # There are no credentials; the session goes on for a while.
                if (end := self._no_login.due(self._loop.time())) is not None:
                    logger.warning("the connection to %s cannot log in again yet: %s%s", self.address, error, end)
                again_at = self._loop.time() + _CREDENTIALS_AGAIN_AFTER
                self._session = self._session._replace(again_at=again_at)
            else:
                # Whoever connects anew is told if it is for good.
                self.close(f"the connection to {self.address} could not log in again: {error}")
            return
        self._logging_in = None
        held, self._held = self._held, None
        for entry, encoded in held:
            self._send(entry, encoded)

    def close(self, why: str = "") -> None:
        """End the connection; whoever waits for an answer gets a ConnectionLostError."""
        self._close_with(ConnectionLostError(why or f"the connection to {self.address} was closed"))

    def _close_with(self, error: ClientError) -> None:
        transport, self._transport = self._transport, None
        if transport is not None:
            transport.abort()
        self._fail(error)

    def _fail(self, error: ClientError) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if self._logging_in is not None:
            self._logging_in.cancel()
        waiting = [*self._waiting, *self._unwritten, *(entry for entry, _ in self._held or ())]
        self._waiting, self._unwritten, self._held = deque(), deque(), None
        for entry in waiting:
            if not entry.answer.done():
                # Each its own: a traceback grows with everybody who raises it.
                entry.answer.set_exception(type(error)(*error.args))

    # asyncio's side

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)
        self._has_tls = transport.get_extra_info("ssl_object") is not None

    def connection_lost(self, exc: Exception | None) -> None:
        self._transport = None
        self._lost = None if self.ranges else self._why_lost(exc)
        self._fail(self._lost or self._why_lost(exc))

    def _closed(self) -> ClientError:
        return self._lost or ConnectionLostError(f"the connection to {self.address} is closed")

    def _why_lost(self, exc: Exception | None) -> ClientError:
        lost = f"the connection to {self.address} was lost{f': {exc}' if exc else ''}"
        if not self.ranges:
            if isinstance(exc, ssl.SSLError):
                return tls.refusal(self.address, exc)
            return (
                tls.cut_off(self.address)
                if self._has_tls
                else ConnectionLostError(
                    f"{lost}, before anything was answered: if it always is, it is a port for another security protocol"
                )
            )
        if self._answered == 1 and self._login is None:
            return ConnectionLostError(
                f"{lost}, before a request was answered: if it always is, its port is one for SASL, and the security "
                "protocol must say so"
            )
        return ConnectionLostError(lost)

    def pause_writing(self) -> None:
        self._is_paused = True

    def resume_writing(self) -> None:
        self._is_paused = False
        self._written()

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
            (size,) = _SIZE.unpack_from(self._buffer, at)
            if not 4 <= size <= _LARGEST_ANSWER:
                self._close_with(self._no_answer(bytes(self._view[at : at + 4])))
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

    def _no_answer(self, begins: bytes) -> ClientError:
        """The error for a broker whose answer begins with these bytes, which are no length of one."""
        if not self.ranges and begins.startswith(_TLS):
            return AuthenticationError(f"{self.address} speaks TLS: set security_protocol to SSL or SASL_SSL")
        size = int.from_bytes(begins, "big", signed=True)
        return ConnectionLostError(f"{self.address} announced an answer of {size} bytes: this is no Kafka broker")

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
        self._answered += 1
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


def _api(request: Any) -> str:
    """The name of the API of a request class."""
    name: str = request.__name__
    return name.removesuffix("Request")
