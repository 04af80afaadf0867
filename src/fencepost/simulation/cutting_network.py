"""A network of real sockets on which single requests are lost, answered in vain, late, or too late.

It stands between a client and its sockets, where a proxy would stand, and sees whole requests: what is cut off is what
`request_faults` says, as in the simulated network, and the addresses that a cluster names lead through it, too.
"""

from __future__ import annotations

import asyncio
import ssl
from collections import deque
from collections.abc import Awaitable, Callable
from typing import Any, Final, TypeVar, cast

from fencepost.runtime import Admission, Listener, Network, begun
from fencepost.simulation.request_faults import Passage

P = TypeVar("P", bound=asyncio.BaseProtocol)

#: Seconds for which a broker may answer what its client no longer waits for.
LINGERS: Final = 1.0
_NOBODYS: Final = 64 * 1024


class CuttingNetwork:
    """The network as one client has it (runtime.Network)."""

    def __init__(self, network: Network, owner: str, passage: Passage, befell: Callable[[str], None]) -> None:
        """`passage`: what its requests go through; `befell`: is called with a sentence about each fault."""
        self._network = network
        self.owner = owner
        self.passage = passage
        self.befell = befell

    async def connect(
        self,
        protocol_factory: Callable[[], P],
        host: str,
        port: int,
        tls: ssl.SSLContext | None = None,
        begin: Callable[[P], Awaitable[None]] | None = None,
    ) -> tuple[asyncio.Transport, P]:
        protocol = protocol_factory()
        assert isinstance(protocol, asyncio.BufferedProtocol), "clients take what arrives into buffers of their own"
        between = CutConnection(self, protocol)
        await self._network.connect(lambda: between, host, port, tls)
        return await begun(between, protocol, begin)

    async def listen(
        self,
        protocol_factory: Callable[[], asyncio.BaseProtocol],  # noqa: ARG002
        host: str,
        port: int,
        admission: Admission,  # noqa: ARG002
        *,
        at_once: bool = True,  # noqa: ARG002
    ) -> Listener:
        raise AssertionError(f"it is a client, and does not listen on {host}:{port}")


class CutConnection(asyncio.Transport, asyncio.BufferedProtocol):
    """A client's transport, and the protocol of its socket (request_faults.Sending)."""

    def __init__(self, network: CuttingNetwork, client: asyncio.BufferedProtocol) -> None:
        super().__init__()
        self._way = network
        self._client: asyncio.BufferedProtocol | None = client
        """The protocol of the client; None once its end of the connection is lost."""
        self._loop = asyncio.get_running_loop()
        self._socket: asyncio.Transport | None = None
        self._late: deque[bytes] = deque()
        """Bytes on their way, in the order in which they were sent."""
        self._last = 0.0
        """When the last of that leaves, by the loop's clock in seconds."""
        self._nobodys = bytearray(_NOBODYS)

    # The client's side

    @property
    def owner(self) -> str:
        return self._way.owner

    def get_extra_info(self, name: str, default: Any = None) -> Any:
        return default if self._socket is None else self._socket.get_extra_info(name, default)

    def write(self, data: Any) -> None:
        if not self.is_closing():
            self._way.passage.send(self, bytes(data))

    def is_closing(self) -> bool:
        return self._client is None or self._socket is None or self._socket.is_closing()

    def close(self) -> None:
        """Close the socket once everything sent before has left, as late as that is."""
        self._end(None, self._last if self._late else 0.0)

    def abort(self) -> None:
        self.close()

    # What befalls it

    def send(self, data: bytes, late: float = 0.0) -> None:
        """Send, so many seconds late; what comes after it waits behind it."""
        if self._socket is None or self._socket.is_closing():
            return
        if not late and not self._late:
            self._socket.write(data)
            return
        self._late.append(data)
        self._last = max(self._last, self._loop.time() + late)
        self._loop.call_at(self._last, self._send_next)

    def _send_next(self) -> None:
        data = self._late.popleft()
        if self._socket is not None:
            self._socket.write(data)

    @property
    def is_behind(self) -> bool:
        return bool(self._late)

    def befell(self, request: bytes, what: str) -> None:  # noqa: ARG002
        self._way.befell(what)

    def lose_both(self) -> None:
        self._end(ConnectionResetError(104, "connection reset"), 0.0)

    def lose_ours(self, late: float) -> None:  # noqa: ARG002 - it is known when the last of it leaves
        sent = max(self._loop.time(), self._last)
        self._end(ConnectionResetError(104, "connection reset"), sent + LINGERS)

    def _end(self, error: Exception | None, closing: float) -> None:
        """End the client's side now, and its socket at the time `closing` of the loop."""
        client, self._client = self._client, None
        if client is not None:
            self._loop.call_soon(client.connection_lost, error)
        if closing > self._loop.time():
            self._loop.call_at(closing, self._hang_up)
        else:
            self._hang_up()

    def _hang_up(self) -> None:
        if self._socket is not None:
            self._socket.abort()

    # The socket's side

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._socket = cast(asyncio.Transport, transport)
        if self._client is not None:
            self._client.connection_made(self)

    def get_buffer(self, sizehint: int) -> Any:
        return self._nobodys if self._client is None else self._client.get_buffer(sizehint)

    def buffer_updated(self, nbytes: int) -> None:
        if self._client is not None:
            self._client.buffer_updated(nbytes)

    def eof_received(self) -> bool | None:
        return None if self._client is None else self._client.eof_received()

    def pause_writing(self) -> None:
        if self._client is not None:
            self._client.pause_writing()

    def resume_writing(self) -> None:
        if self._client is not None:
            self._client.resume_writing()

    def connection_lost(self, exc: Exception | None) -> None:
        client, self._client = self._client, None
        if client is not None:
            client.connection_lost(exc)
