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

from fencepost.listening import SocketListener, bound_sockets
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

    def accept_again(self) -> None:
        """There may be room for connections again."""
        ...


P = TypeVar("P", bound=asyncio.BaseProtocol)


class Network(Protocol):
    """Opens connections and listens for them."""

    async def listen(
        self, protocol_factory: Callable[[], asyncio.BaseProtocol], host: str, port: int, room: Callable[[], int]
    ) -> Listener:
        """Listen on host:port (port 0: any free one).  Raises OSError if the address cannot be had.

        `room` tells how many more connections may be accepted; at 0 those who connect wait.
        """
        ...

    async def connect(self, protocol_factory: Callable[[], P], host: str, port: int) -> tuple[asyncio.Transport, P]:
        """Connect to host:port.  Raises OSError if nobody answers there."""
        ...


class SystemClock:
    """The machine's wall clock."""

    def now(self) -> Milliseconds:
        return Milliseconds(time.time_ns() // 1_000_000)


class SocketNetwork:
    """TCP sockets of the running event loop."""

    async def listen(
        self, protocol_factory: Callable[[], asyncio.BaseProtocol], host: str, port: int, room: Callable[[], int]
    ) -> Listener:
        return SocketListener(protocol_factory, await bound_sockets(host, port), room)

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
