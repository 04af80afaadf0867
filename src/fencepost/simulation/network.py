"""A network in memory: connections with latency, cut into pieces of any size, and broken off when told to."""

from __future__ import annotations

import asyncio
import contextvars
import random
import ssl
from collections import deque
from collections.abc import Awaitable, Callable
from typing import Any, Final, Protocol, TypeVar

from fencepost.runtime import Admission, Listener, begun
from fencepost.simulation.request_faults import Passage

P = TypeVar("P", bound=asyncio.BaseProtocol)

SLOWEST = 0.002
"""Seconds that what is sent takes for one way, at most."""
_FASTEST: Final = 0.00005


class Watch(Protocol):
    """Is told what goes over the network, as history.recorder.Recorder is."""

    def wrote(self, end: SimulatedTransport, data: bytes, /) -> None:
        """This end writes `data`, which may never arrive."""
        ...

    def befell(self, end: SimulatedTransport, request: bytes, what: str, /) -> None:
        """A fault befalls a request that this end wrote."""
        ...

    def arrived(self, end: SimulatedTransport, count: int, /) -> None:
        """So many bytes arrive at this end."""
        ...

    def lost(self, end: SimulatedTransport, /) -> None:
        """This end is gone: it sends and gets nothing more."""
        ...


class _Listening:
    """A listening socket."""

    def __init__(
        self,
        network: SimulatedNetwork,
        factory: Callable[[], asyncio.BaseProtocol],
        port: int,
        admission: Admission,
        *,
        is_open: bool,
    ) -> None:
        self._network = network
        self.factory = factory
        self.admission = admission
        self.context = contextvars.copy_context()
        """Whose it is: what arrives runs as the listener's."""
        self._port = port
        self.is_open = is_open
        """Whether it accepts: else whoever connects is refused."""

    @property
    def port(self) -> int:
        return self._port

    def close(self) -> None:
        self._network.forget(self._port, self)

    def accept_again(self) -> None:
        """Accept connections from now on; those who wait try again by themselves."""
        self.is_open = True

    def accepts(self, now: float) -> bool:
        """Whether it accepts one connection more at the time `now`, in seconds."""
        return self.admission.room() > 0 and self.admission.wait_seconds(now) <= 0


class SimulatedNetwork:
    """Addresses are ports: there is one host.  Everything random comes from the generator that is handed in."""

    def __init__(self, generator: random.Random) -> None:
        self._random = generator
        self._listening: dict[int, _Listening] = {}
        self._pairs: dict[SimulatedTransport, int] = {}
        """Open ends, and the port that their connection is to."""
        self.request_faults: Passage | None = None
        """What befalls the requests of connections that are made from now on."""
        self._next_port = 10_000
        self.watch: Watch | None = None

    async def listen(
        self,
        protocol_factory: Callable[[], asyncio.BaseProtocol],
        host: str,
        port: int,
        admission: Admission,
        *,
        at_once: bool = True,
    ) -> Listener:
        if port == 0:
            self._next_port += 1
            port = self._next_port
        if port in self._listening:
            raise OSError(98, f"{host}:{port} is in use")
        listening = self._listening[port] = _Listening(self, protocol_factory, port, admission, is_open=at_once)
        return listening

    def _open_at(self, port: int) -> _Listening | None:
        found = self._listening.get(port)
        return found if found is not None and found.is_open else None

    async def connect(
        self,
        protocol_factory: Callable[[], P],
        host: str,
        port: int,
        tls: ssl.SSLContext | None = None,
        begin: Callable[[P], Awaitable[None]] | None = None,
    ) -> tuple[asyncio.Transport, P]:
        assert tls is None, "a network in memory has no TLS"
        await asyncio.sleep(self.delay())
        loop = asyncio.get_running_loop()
        while (listening := self._open_at(port)) is not None and not listening.accepts(loop.time()):  # noqa: ASYNC110
            await asyncio.sleep(SLOWEST)
        if listening is None:
            raise ConnectionRefusedError(111, f"nobody listens on {host}:{port}")
        ours = SimulatedTransport(self, port, contextvars.copy_context())
        theirs = SimulatedTransport(self, port, listening.context.copy())
        ours.peer, theirs.peer = theirs, ours
        ours.is_client = True
        for transport in (theirs, ours):
            self._pairs[transport] = port
        ours.request_faults = self.request_faults
        listening.admission.accepted(loop.time())
        accepted = listening.context.copy().run(listening.factory)
        protocol = protocol_factory()
        listening.context.copy().run(theirs.start, accepted)
        ours.start(protocol)
        return await begun(ours, protocol, begin)

    def forget(self, port: int, listening: _Listening) -> None:
        if self._listening.get(port) is listening:
            del self._listening[port]

    def closed(self, transport: SimulatedTransport) -> None:
        self._pairs.pop(transport, None)

    def delay(self) -> float:
        return _FASTEST + (SLOWEST - _FASTEST) * self._random.random()

    def pieces(self, data: bytes) -> list[bytes]:
        """The parts of `data` that arrive at once: mostly all of it, now and then in two."""
        if len(data) < 2 or self._random.random() < 0.8:
            return [data]
        cut = self._random.randrange(1, len(data))
        return [data[:cut], data[cut:]]

    # Faults

    def take_down(self, port: int) -> None:
        """Break off every connection to a port, as where its process is gone; nobody listens there any more."""
        self._listening.pop(port, None)
        self.break_connections(port)

    def break_connections(self, port: int) -> None:
        """Break off every connection to this port, with what was on its way."""
        for transport in [transport for transport, to in self._pairs.items() if to == port]:
            transport.break_off()


class NamedNetwork:
    """The network as one client has it (runtime.Network): its connections have its name."""

    def __init__(self, network: SimulatedNetwork, owner: str) -> None:
        self._network = network
        self.owner = owner

    async def listen(
        self,
        protocol_factory: Callable[[], asyncio.BaseProtocol],
        host: str,
        port: int,
        admission: Admission,
        *,
        at_once: bool = True,
    ) -> Listener:
        return await self._network.listen(protocol_factory, host, port, admission, at_once=at_once)

    async def connect(
        self,
        protocol_factory: Callable[[], P],
        host: str,
        port: int,
        tls: ssl.SSLContext | None = None,
        begin: Callable[[P], Awaitable[None]] | None = None,
    ) -> tuple[asyncio.Transport, P]:
        transport, protocol = await self._network.connect(protocol_factory, host, port, tls)
        assert isinstance(transport, SimulatedTransport), "it is a simulated network"
        transport.owner = self.owner
        return await begun(transport, protocol, begin)


class SimulatedTransport(asyncio.Transport):
    """One end of a connection."""

    def __init__(self, network: SimulatedNetwork, port: int, context: contextvars.Context) -> None:
        super().__init__({"peername": ("127.0.0.1", port)})
        self._context = context
        """Whose end it is; what arrives here is run as theirs."""
        self._network = network
        self._loop = asyncio.get_running_loop()
        self.owner = ""
        """The client whose connection it is; empty where it has no name."""
        self.is_client = False
        self._protocol: Any = None
        self._is_buffered = False
        """Whether the protocol has a buffer of its own for what arrives."""
        self.peer: SimulatedTransport | None = None
        self._closing = False
        self._lost = False
        self._reading = True
        self._arrived: deque[bytes] = deque()
        self._last_arrival = 0.0
        self._held_until = 0.0
        self.request_faults: Passage | None = None
        self.on_write: Callable[[bytes], None] | None = None
        """Is shown what leaves this end."""

    def start(self, protocol: asyncio.BaseProtocol) -> None:
        self._protocol = protocol
        self._is_buffered = isinstance(protocol, asyncio.BufferedProtocol)
        protocol.connection_made(self)

    # Sending

    def write(self, data: Any) -> None:
        written = bytes(data)
        if self.on_write is not None:
            self.on_write(written)
        if self._network.watch is not None:
            self._network.watch.wrote(self, written)
        if self.request_faults is not None:
            self.request_faults.send(self, written)
        else:
            self.send(written)

    def send(self, data: bytes, late: float = 0.0) -> None:
        """Send bytes, `late` seconds later than usual."""
        peer = self.peer
        if self._closing or self._lost or peer is None or not data:
            return
        if late:
            self._last_arrival = max(self._last_arrival, self._loop.time() + late)
        for piece in self._network.pieces(data):
            self._send(peer, piece)

    def _send(self, peer: SimulatedTransport, piece: bytes | None) -> None:
        """Have a piece (None: the end of the stream) arrive at the other end after all that was sent before."""
        soonest, held_until = self._loop.time(), self._held_until
        if soonest < held_until:
            soonest = held_until
        arrival, earliest = soonest + self._network.delay(), self._last_arrival + 1e-6
        if arrival < earliest:
            arrival = earliest
        self._last_arrival = arrival
        self._loop.call_at(arrival, peer.arrive, piece, context=peer._context)

    def writelines(self, list_of_data: Any) -> None:
        self.write(b"".join(list_of_data))

    def can_write_eof(self) -> bool:
        return False

    def is_closing(self) -> bool:
        return self._closing or self._lost

    def close(self) -> None:
        if not self._closing and not self._lost:
            self._closing = True
            if self.peer is not None:
                self._send(self.peer, None)
            self._loop.call_soon(self._lose, None, context=self._context)

    def abort(self) -> None:
        self.close()

    def break_off(self) -> None:
        """Reset the connection at this end; the other end is not told."""
        error = ConnectionResetError(104, "connection reset")
        self._loop.call_soon(self._lose, error, context=self._context)

    def befell(self, request: bytes, what: str) -> None:
        """Note that a fault befalls a request that this end wrote."""
        if self._network.watch is not None:
            self._network.watch.befell(self, request, what)

    @property
    def is_behind(self) -> bool:
        """Whether what is sent now arrives late, behind something that is late."""
        return max(self._last_arrival, self._held_until) > self._loop.time() + SLOWEST

    def hold(self, until: float) -> None:
        """Delay all that leaves this end from now on: nothing of it arrives before `until`, in the loop's time."""
        self._held_until = max(self._held_until, until)

    def lose_both(self) -> None:
        """Break off both ends, with everything that is on its way."""
        self.break_off()
        if self.peer is not None:
            self.peer.break_off()

    def lose_ours(self, late: float) -> None:
        """Break off this end before any answer, the other one when it has got everything, `late` and a while later.

        What is answered meanwhile is for nobody.
        """
        if late:
            self.break_off()
        else:
            self._loop.call_at(self._last_arrival, self.break_off)
        if self.peer is not None:
            self._loop.call_at(self._last_arrival + SLOWEST, self.peer.break_off)

    # Receiving

    def arrive(self, piece: bytes | None) -> None:
        if self._lost or self._closing:
            return
        if piece is None:
            self._lose(None)
            return
        if self._network.watch is not None:
            self._network.watch.arrived(self, len(piece))
        if self._reading and self._is_buffered and not self._arrived:
            self._fill(piece)
        else:
            self._arrived.append(piece)
            self._deliver()

    def _deliver(self) -> None:
        while self._arrived and self._reading and not self._closing and not self._lost:
            data = self._arrived.popleft()
            if self._is_buffered:
                self._fill(data)
            else:
                self._protocol.data_received(data)

    def _fill(self, data: bytes) -> None:
        while data and not self._lost and not self._closing:
            buffer = self._protocol.get_buffer(-1)
            count = len(data)
            if count <= len(buffer):
                buffer[:count] = data
                self._protocol.buffer_updated(count)
                return
            count = len(buffer)
            buffer[:] = data[:count]
            data = data[count:]
            self._protocol.buffer_updated(count)
            if not self._reading and data:
                self._arrived.appendleft(data)
                return

    def pause_reading(self) -> None:
        self._reading = False

    def resume_reading(self) -> None:
        self._reading = True
        self._loop.call_soon(self._deliver)

    def _lose(self, error: Exception | None) -> None:
        if self._lost:
            return
        self._lost = True
        self._network.closed(self)
        if self._network.watch is not None:
            self._network.watch.lost(self)
        self._protocol.connection_lost(error)
