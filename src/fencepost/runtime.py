"""The outside world, handed in: the wall clock, sockets and randomness.

This is the one place that reads the clock and opens sockets; everything else is given a `Runtime`.  The simulator
gives one whose time is virtual and whose network is in memory, and runs the same code on it.  Timers go through the
running event loop (`call_later`), which the simulator replaces as well.
"""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol, TypeVar

from fencepost.protocol.types import Milliseconds


class Clock(Protocol):
    """Tells the wall-clock time.  It may jump; durations are measured with the event loop's own time."""

    def now(self) -> Milliseconds:
        """Milliseconds since the Unix epoch."""
        ...


class Listener(Protocol):
    """A listening socket."""

    @property
    def port(self) -> int:
        """The port that it is bound to (never 0)."""
        ...

    async def close(self) -> None:
        """Accept no more connections.  Those already accepted are their owner's to close."""
        ...


P = TypeVar("P", bound=asyncio.BaseProtocol)


class Network(Protocol):
    """Opens connections and listens for them."""

    async def listen(self, protocol_factory: Callable[[], asyncio.BaseProtocol], host: str, port: int) -> Listener:
        """Listen on host:port (port 0: any free one).  Raises OSError if the address cannot be had."""
        ...

    async def connect(self, protocol_factory: Callable[[], P], host: str, port: int) -> tuple[asyncio.Transport, P]:
        """Connect to host:port.  Raises OSError if nobody answers there."""
        ...


class SystemClock:
    """The machine's wall clock."""

    def now(self) -> Milliseconds:
        return Milliseconds(time.time_ns() // 1_000_000)


class _SocketListener:
    def __init__(self, server: asyncio.Server) -> None:
        self._server = server

    @property
    def port(self) -> int:
        port: int = self._server.sockets[0].getsockname()[1]
        return port

    async def close(self) -> None:
        # Not wait_closed(): since Python 3.12 it waits for every accepted connection, which is not ours to end.
        self._server.close()


class SocketNetwork:
    """TCP sockets of the running event loop."""

    async def listen(self, protocol_factory: Callable[[], asyncio.BaseProtocol], host: str, port: int) -> Listener:
        loop = asyncio.get_running_loop()
        return _SocketListener(await loop.create_server(protocol_factory, host, port, backlog=1024))

    async def connect(self, protocol_factory: Callable[[], P], host: str, port: int) -> tuple[asyncio.Transport, P]:
        return await asyncio.get_running_loop().create_connection(protocol_factory, host, port)


@dataclass(frozen=True, slots=True)
class Runtime:
    """What a broker or a client is given of the outside world."""

    clock: Clock
    network: Network
    random: random.Random

    @classmethod
    def real(cls) -> Runtime:
        """The machine's clock and sockets, and a generator seeded by the operating system."""
        return cls(SystemClock(), SocketNetwork(), random.Random())
