"""A secured way to a broker: takes SASL, and TLS where it listens with it, as Apache Kafka does, and hands on the rest.

Fencepost's broker serves neither.  What it answers about nodes is changed to name this address.
"""

from __future__ import annotations

import asyncio
import ssl
import threading
from collections import deque
from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path
from typing import Any, Final

from tests.client.sasl.servers import PASSWORD, USERNAME, PlainServer, Refused, ScramServer, Server, TokenServer

from fencepost.broker import Broker
from fencepost.protocol.codec import decode_request, decode_response, encode_response, read_request_header
from fencepost.protocol.errors import ErrorCode
from fencepost.protocol.messages import (
    REQUESTS,
    RESPONSES,
    SaslAuthenticateRequest,
    SaslAuthenticateResponse,
    SaslHandshakeRequest,
    SaslHandshakeResponse,
)
from fencepost.protocol.messages.api_versions import ApiVersion

CERTIFICATES: Final = Path(__file__).parent / "certificates"
TOKEN: Final = "alices.token"
METADATA, FIND_COORDINATOR, HANDSHAKE, API_VERSIONS, AUTHENTICATE = 3, 10, 17, 18, 36
_FLEXIBLE: Final = {key: request.__schema__.flexible for key, request in REQUESTS.items()}
_PASSWORDS: Final = {USERNAME: PASSWORD}

MECHANISMS: Mapping[str, Callable[[], Server]] = {
    "PLAIN": lambda: PlainServer(_PASSWORDS),
    "SCRAM-SHA-256": lambda: ScramServer("sha256", _PASSWORDS),
    "SCRAM-SHA-512": lambda: ScramServer("sha512", _PASSWORDS),
    "OAUTHBEARER": lambda: TokenServer(TOKEN.__eq__),
}


def server_tls(certificate: str = "server", *, wants: str | None = None) -> ssl.SSLContext:
    """What a broker listens with; `wants`: the authority whose clients it lets in."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(CERTIFICATES / f"{certificate}.pem")
    if wants is not None:
        context.verify_mode = ssl.CERT_REQUIRED
        context.load_verify_locations(CERTIFICATES / f"{wants}.pem")
    return context


class Front:
    """What one port does.  `connect` makes connections to the broker behind it."""

    def __init__(
        self,
        connect: Callable[[Callable[[], asyncio.Protocol]], Any],
        port: int,
        mechanisms: Mapping[str, Callable[[], Server]] | None = MECHANISMS,
        *,
        session_ms: int = 0,
        versions: tuple[int, int] = (0, 2),
    ) -> None:
        self.connect = connect
        self.port = port
        self.mechanisms = mechanisms
        """None: no SASL is wanted, nor known."""
        self.session_ms = session_ms
        self.versions = versions
        """Of SaslAuthenticate."""
        self.refusals: list[str] = []
        """Why connections were ended."""
        self.logins = 0
        self.renewals = 0
        self.requests: list[int] = []
        """Correlation ids of requests that are no part of a login, as they come."""
        self.open: list[Accepted] = []

    def __call__(self) -> Accepted:
        return Accepted(self)


@asynccontextmanager
async def listening(
    broker: Broker, tls: ssl.SSLContext | None, *, with_sasl: bool = False, **more: Any
) -> AsyncIterator[Front]:
    """On a port of its own, by real sockets."""
    loop = asyncio.get_running_loop()
    port = int(broker.bootstrap_servers.rpartition(":")[2])

    async def connect(factory: Callable[[], asyncio.Protocol]) -> Any:
        return await loop.create_connection(factory, "127.0.0.1", port)

    front = Front(connect, 0, MECHANISMS if with_sasl else None, **more)
    server = await loop.create_server(front, "127.0.0.1", 0, ssl=tls)
    front.port = server.sockets[0].getsockname()[1]
    try:
        yield front
    finally:
        server.close()
        for connection in list(front.open):
            connection.hang_up("the test is over")


@contextmanager
def listening_in_a_thread(broker: Broker, tls: ssl.SSLContext | None, **more: Any) -> Iterator[Front]:
    """The same for tests that are not asynchronous."""
    loop = asyncio.new_event_loop()
    thread = threading.Thread(target=loop.run_forever, daemon=True)
    thread.start()
    entered = listening(broker, tls, **more)
    try:
        yield asyncio.run_coroutine_threadsafe(entered.__aenter__(), loop).result()
        asyncio.run_coroutine_threadsafe(entered.__aexit__(None, None, None), loop).result()
    finally:
        loop.call_soon_threadsafe(loop.stop)
        thread.join()
        loop.close()


class Accepted(asyncio.Protocol):
    """A connection of a client.  Requests are taken one after the other, as in Apache Kafka."""

    def __init__(self, front: Front) -> None:
        self._front = front
        self._loop = asyncio.get_running_loop()
        self._transport: Any = None
        self._data = b""
        self._frames: deque[bytes] = deque()
        self._came: asyncio.Event = asyncio.Event()
        self._work: asyncio.Task[None] | None = None
        self._back: Any = None
        self._server: Server | None = None
        self._is_trusted = front.mechanisms is None
        self._session_ends = float("inf")
        self._last_login = -10.0

    # asyncio's side

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = transport
        self._front.open.append(self)
        self._work = self._loop.create_task(self._serve())

    def connection_lost(self, exc: Exception | None) -> None:  # noqa: ARG002
        self._front.open.remove(self)
        if self._work is not None:
            self._work.cancel()
        if self._back is not None:
            self._back.hang_up()

    def data_received(self, data: bytes) -> None:
        self._data += data
        while len(self._data) >= 4 and len(self._data) >= (size := 4 + int.from_bytes(self._data[:4], "big")):
            if size > 100 * 1024 * 1024:
                self.hang_up("what came is no request")
                return
            self._frames.append(self._data[4:size])
            self._data = self._data[size:]
        if len(self._data) >= 4 and int.from_bytes(self._data[:4], "big") > 100 * 1024 * 1024:
            self.hang_up("what came is no request")
        self._came.set()

    def hang_up(self, why: str) -> None:
        self._front.refusals.append(why)
        self._transport.abort()

    # Requests

    async def _serve(self) -> None:
        _, self._back = await self._front.connect(Backward)
        while True:
            while not self._frames:
                self._came.clear()
                await self._came.wait()
            frame = self._frames.popleft()
            answer = await self._answered(frame)
            if answer is None:
                return
            self._transport.write(answer)

    async def _answered(self, frame: bytes) -> bytes | None:
        header = read_request_header(frame, _FLEXIBLE)
        if header.api_key in (HANDSHAKE, AUTHENTICATE) and self._front.mechanisms is not None:
            request: Any = decode_request(REQUESTS[header.api_key], frame, header.api_version, header.body_start)
            response = self._shake_hands(request) if header.api_key == HANDSHAKE else self._authenticate(request)
            if response is not None:
                return encode_response(response, header.api_version, header.correlation_id)
            return None
        if self._server is not None:
            self.hang_up(f"request {header.api_key} in the middle of a login")
            return None
        if not self._is_trusted and header.api_key != API_VERSIONS:
            self.hang_up(f"request {header.api_key} before any login")
            return None
        if self._loop.time() >= self._session_ends:
            self.hang_up("the session has ended")
            return None
        self._front.requests.append(header.correlation_id)
        answer = await self._back.ask(frame)
        return self._changed(header.api_key, header.api_version, answer)

    def _shake_hands(self, request: SaslHandshakeRequest) -> SaslHandshakeResponse | None:
        mechanisms = self._front.mechanisms
        assert mechanisms is not None
        if self._is_trusted and self._loop.time() - self._last_login < 1:
            self.hang_up("it logs in again too soon")
            return None
        if request.mechanism not in mechanisms:
            error = ErrorCode.UNSUPPORTED_SASL_MECHANISM
            return SaslHandshakeResponse(error_code=error, mechanisms=sorted(mechanisms))
        self._server = mechanisms[request.mechanism]()
        return SaslHandshakeResponse(error_code=0, mechanisms=sorted(mechanisms))

    def _authenticate(self, request: SaslAuthenticateRequest) -> SaslAuthenticateResponse | None:
        if self._server is None:
            self.hang_up("SaslAuthenticate without a handshake")
            return None
        try:
            answer = self._server.answer(request.auth_bytes)
        except Refused as why:
            self._front.refusals.append(str(why))
            self._loop.call_later(0.1, self._transport.close)
            code = ErrorCode.SASL_AUTHENTICATION_FAILED
            return SaslAuthenticateResponse(error_code=code, error_message=str(why), auth_bytes=b"")
        lifetime = 0
        if self._server.is_content:
            self._front.renewals += self._is_trusted
            self._front.logins += not self._is_trusted
            self._server, self._is_trusted, self._last_login = None, True, self._loop.time()
            lifetime = self._front.session_ms
            if lifetime:
                self._session_ends = self._loop.time() + lifetime / 1000
        return SaslAuthenticateResponse(error_code=0, auth_bytes=answer, session_lifetime_ms=lifetime)

    def _changed(self, api: int, version: int, answer: bytes) -> bytes:
        if api not in (METADATA, FIND_COORDINATOR, API_VERSIONS):
            return len(answer).to_bytes(4, "big") + answer
        correlation_id, response = decode_response(RESPONSES[api], answer, version)
        if api == API_VERSIONS and self._front.mechanisms is not None:
            low, high = self._front.versions
            response.api_keys.append(ApiVersion(api_key=HANDSHAKE, min_version=0, max_version=1))
            response.api_keys.append(ApiVersion(api_key=AUTHENTICATE, min_version=low, max_version=high))
        elif api == METADATA:
            for node in response.brokers:
                node.port = self._front.port
        elif api == FIND_COORDINATOR:
            for found in (response, *response.coordinators):
                found.port = self._front.port
        return encode_response(response, version, correlation_id)


class Backward(asyncio.Protocol):
    """The connection to the broker."""

    def __init__(self) -> None:
        self._transport: Any = None
        self._data = b""
        self._answer: asyncio.Future[bytes] | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = transport

    def hang_up(self) -> None:
        self._transport.abort()

    async def ask(self, frame: bytes) -> bytes:
        self._answer = asyncio.get_running_loop().create_future()
        self._transport.write(len(frame).to_bytes(4, "big") + frame)
        return await self._answer

    def data_received(self, data: bytes) -> None:
        self._data += data
        if len(self._data) >= 4 and len(self._data) >= (size := 4 + int.from_bytes(self._data[:4], "big")):
            answer, self._data = self._data[4:size], self._data[size:]
            if self._answer is not None and not self._answer.done():
                self._answer.set_result(answer)
