"""The outside world, handed in: the wall clock, sockets and randomness; and turns of the event loop for long work.

This is the one place that reads the clock and opens sockets; everything else is given a `Runtime`.  The simulator
gives one whose time is virtual and whose network is in memory, and runs the same code on it.  Timers go through the
running event loop (`call_later`), which the simulator replaces as well.
"""

from __future__ import annotations

import asyncio
import ssl
import time
from collections import deque
from collections.abc import Awaitable, Callable, Generator
from dataclasses import dataclass, field
from functools import partial
from random import Random, SystemRandom
from typing import Final, Protocol, TypeAlias, TypeVar

from fencepost.connecting import addresses_of, first_connected
from fencepost.listening import Admission as Admission
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

    def close(self) -> None:
        """Accept no more connections.  Those already accepted are their owner's to close."""
        ...

    def accept_again(self) -> None:
        """There is room for connections, or may be again.  Raises OSError if another one has the address by now."""
        ...


P = TypeVar("P", bound=asyncio.BaseProtocol)
C = TypeVar("C", bound=asyncio.Transport)


class Network(Protocol):
    """Opens connections and listens for them."""

    async def listen(
        self,
        protocol_factory: Callable[[], asyncio.BaseProtocol],
        host: str,
        port: int,
        admission: Admission,
        *,
        at_once: bool = True,
    ) -> Listener:
        """Listen on host:port (port 0: any free one).  Raises OSError if the address cannot be had.

        `at_once`: else the address is taken, and who connects is refused until `accept_again`.
        """
        ...

    async def connect(
        self,
        protocol_factory: Callable[[], P],
        host: str,
        port: int,
        tls: ssl.SSLContext | None = None,
        begin: Callable[[P], Awaitable[None]] | None = None,
    ) -> tuple[asyncio.Transport, P]:
        """Connect to host:port, with TLS if a context is given.  Raises OSError if nobody answers there as expected.

        `begin` is awaited on what is connected; where it raises ConnectionError, another address of the host is tried.
        """
        ...


class SystemClock:
    """The machine's wall clock."""

    def now(self) -> Milliseconds:
        return Milliseconds(time.time_ns() // 1_000_000)


class SocketNetwork:
    """TCP sockets of the running event loop."""

    async def listen(
        self,
        protocol_factory: Callable[[], asyncio.BaseProtocol],
        host: str,
        port: int,
        admission: Admission,
        *,
        at_once: bool = True,
    ) -> Listener:
        return SocketListener(protocol_factory, await bound_sockets(host, port), admission, at_once=at_once)

    async def connect(
        self,
        protocol_factory: Callable[[], P],
        host: str,
        port: int,
        tls: ssl.SSLContext | None = None,
        begin: Callable[[P], Awaitable[None]] | None = None,
    ) -> tuple[asyncio.Transport, P]:
        loop = asyncio.get_running_loop()

        async def attempt(address: str) -> tuple[asyncio.Transport, P]:
            transport, protocol = await loop.create_connection(
                protocol_factory, address, port, ssl=tls, server_hostname=host if tls else None
            )
            return await begun(transport, protocol, begin)

        return await first_connected([partial(attempt, address) for address in await addresses_of(host, port)])


async def begun(transport: C, protocol: P, begin: Callable[[P], Awaitable[None]] | None) -> tuple[C, P]:
    """What was connected, once `begin`, if there is one, is done with it; it is closed where that is cut short."""
    try:
        if begin is not None:
            await begin(protocol)
    except BaseException:
        transport.abort()
        raise
    return transport, protocol


@dataclass(frozen=True, slots=True)
class Runtime:
    """What a broker or a client is given of the outside world."""

    clock: Clock
    network: Network
    random: Random
    nonces: Random = field(default_factory=SystemRandom)
    """Chance that nobody can guess."""

    @classmethod
    def real(cls) -> Runtime:
        """The machine's clock and sockets, and a generator seeded by the operating system."""
        return cls(SystemClock(), SocketNetwork(), Random())


# Long work

T = TypeVar("T")

Work: TypeAlias = Generator[None, None, T]
"""Long work that yields wherever others may work in between.  What it leaves there must be sound for everybody."""

SLICE_SECONDS: Final = 0.005
SLICE_STEPS: Final = 100
"""Steps of a slice, however little time they take: in the simulator they take none."""


def at_once(work: Work[T]) -> T:
    """Do all of it, where nobody is kept waiting."""
    while True:
        try:
            next(work)
        except StopIteration as done:
            value: T = done.value
            return value


class Slices:
    """Has long work done a slice at a time, so that nobody waits long for somebody else's.

    All the works of one node share it: between two slices, whosever they are, the event loop goes round once.
    """

    def __init__(self, seconds: float = SLICE_SECONDS, steps: int = SLICE_STEPS) -> None:
        self._seconds = seconds
        self._steps = steps
        self._until = 0.0
        self._left = 0
        self._waiting: deque[asyncio.Future[None]] = deque()
        self._ringing: asyncio.Handle | None = None
        self._closed = False

    async def run(self, work: Work[T]) -> T:
        """Do it all; what it returns or raises.  Raises CancelledError after `close`, wherever the work is then."""
        try:
            while True:
                await self.pause()
                try:
                    next(work)
                except StopIteration as done:
                    value: T = done.value
                    return value
        finally:
            work.close()

    async def pause(self) -> None:
        """Between two steps of long work: if the slice is used up, others work before the next one.

        Raises CancelledError after `close`.
        """
        if self._closed or self._left <= 0 or asyncio.get_running_loop().time() >= self._until:
            await self._turn()
        self._left -= 1

    def close(self) -> None:
        """Do nothing more: the node stops."""
        self._closed = True
        if self._ringing is not None:
            self._ringing.cancel()
        for waiter in self._waiting:
            waiter.cancel()
        self._waiting.clear()

    async def _turn(self) -> None:
        if self._closed:
            raise asyncio.CancelledError
        loop = asyncio.get_running_loop()
        waiter = loop.create_future()
        self._waiting.append(waiter)
        if self._ringing is None:
            self._ringing = loop.call_soon(self._next)
        await waiter
        self._until = loop.time() + self._seconds
        self._left = self._steps

    def _next(self) -> None:
        """The next one's turn.  It is over before the turn after it is given."""
        self._ringing = None
        while self._waiting:
            waiter = self._waiting.popleft()
            if not waiter.done():
                waiter.set_result(None)
                break
        if self._waiting:
            self._ringing = asyncio.get_running_loop().call_soon(self._next)
