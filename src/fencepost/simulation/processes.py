"""Client processes of the simulated world: one stands still, is cut off from the network, loses connections, or dies.

A process is what was started in it and all that this starts.  While it stands still none of its callbacks runs, its
timers included: they run when it goes on, in their order, as late as that is.  Its connections stay open meanwhile.
"""

from __future__ import annotations

import asyncio
import contextvars
import random
import ssl
from collections.abc import Awaitable, Callable, Coroutine
from contextvars import Context
from functools import partial
from typing import Any, TypeVar

from fencepost.protocol.types import Milliseconds
from fencepost.runtime import Admission, Listener, Runtime, begun
from fencepost.simulation.loop import OWNER, Handle, VirtualLoop
from fencepost.simulation.network import SLOWEST, SimulatedTransport
from fencepost.simulation.request_faults import Passage, Sending, claims
from fencepost.simulation.world import World

T = TypeVar("T")
P = TypeVar("P", bound=asyncio.BaseProtocol)


class Process:
    """A client process: its tasks, its clock, and its connections."""

    def __init__(self, world: World, name: str, *, spared: bool = False) -> None:
        """`spared`: no faults befall its requests."""
        self.name = self.owner = name
        self._spared = spared
        self.world = world
        assert isinstance(world.loop, ProcessLoop), "only there processes can stand still"
        self._loop = world.loop
        self._clock = _Clock(world, world.skew_of(name))
        self.stands_still = False
        self.is_dead = False
        self.has_left_for_good = False
        """Whether nobody comes after it."""
        self.is_to_leave = False
        """Whether it is to end as soon as it is calm: somebody else has its place."""
        self.stood_still = 0.0
        """Seconds for which it stood still, in all."""
        self._kept: list[Handle] = []
        """The callbacks that would have run while it stood still."""
        self._connections: list[SimulatedTransport] = []
        self._started: list[asyncio.Future[Any]] = []
        self._held = (0.0, 0.0)
        """Until when nothing leaves, and nothing arrives, by the loop's clock in seconds."""
        self._trap: tuple[int, float] | None = None
        """The API after whose next request it is cut off, and for how many seconds."""

    def runtime(self, name: str = "client") -> Runtime:
        """The runtime of a part of this process: its clock, network and randomness."""
        return Runtime(self._clock, self, self.chance(name))

    def chance(self, name: str) -> random.Random:
        """A random generator for a part of it, which draws the same whatever other parts draw."""
        return self.world.chance(f"{self.name}/{name}")

    def start(self, work: Coroutine[Any, Any, T]) -> asyncio.Future[T]:
        """Run this in the process; cancelled when the process dies."""
        context = contextvars.copy_context()
        context.run(OWNER.set, self)
        outside: asyncio.Future[T] = self._loop.create_future()
        task = self._loop.create_task(work, name=self.name, context=context)
        task.add_done_callback(partial(_tell, outside), context=Context())
        outside.add_done_callback(partial(_cancelled, self, task), context=Context())
        self._started = [each for each in self._started if not each.done()]
        self._started.append(outside)
        self.world.clients[self] = None
        return outside

    @property
    def has_ended(self) -> bool:
        """Whether nothing that was started in it is under way."""
        return self.is_dead or all(each.done() for each in self._started)

    # What befalls it

    def stand_still(self, seconds: float) -> None:
        """Run nothing of it for so many seconds; if it stands still already, no longer than it would have."""
        if self.stands_still:
            return
        self.world.note(f"{self.name} stands still for {seconds:.3f} s")
        self.stands_still = True
        self.stood_still += seconds
        self._loop.call_later(seconds, self.go_on, context=Context())

    def go_on(self) -> None:
        """Run what was kept while it stood still."""
        if self.is_dead or not self.stands_still:
            return
        self.world.note(f"{self.name} goes on")
        self.release()

    def cut_off(self, seconds: float, *, sending: bool = True, receiving: bool = True) -> None:
        """Delay what it sends, what it is sent, or both for so many seconds; what was sent before arrives in time."""
        which = "" if sending and receiving else ": it sends in vain" if sending else ": it is sent nothing"
        self.world.note(f"{self.name} is cut off for {seconds:.3f} s{which}")
        until, (out, back) = self._loop.time() + seconds, self._held
        self._held = max(out, until) if sending else out, max(back, until) if receiving else back
        for connection in self._connections:
            self._hold(connection)

    @property
    def cut_off_until(self) -> float:
        """The time of the loop, in seconds, until which nothing that it sends leaves; past or 0: it is not cut off."""
        return self._held[0]

    def recover(self) -> None:
        """End all that befalls it: it goes on, and is not cut off any more."""
        self._held, self._trap = (0.0, 0.0), None
        self.go_on()

    def cut_off_after(self, api: int, seconds: float) -> None:
        """Send the next request of an API, then be cut off before its answer arrives."""
        self._trap = (api, seconds)

    def _hold(self, connection: SimulatedTransport) -> None:
        connection.hold(self._held[0])
        if connection.peer is not None:
            connection.peer.hold(self._held[1])

    def die(self, *, silently: bool) -> None:
        """End it: nothing of it ever runs again; what it has sent arrives.

        `silently`: nobody is told that its connections are gone.
        """
        if self.is_dead:
            return
        self.world.note(f"{self.name} dies{' without a word' if silently else ''}")
        self.stands_still = self.is_dead = True
        self._loop.dead.append(self)
        for started in self._started:
            started.cancel()
        for connection in self._connections if not silently else ():
            connection.abort()

    def lose_connections(self) -> None:
        """Break off its connections at this end; what was sent arrives, and its answers reach nobody."""
        self.world.note(f"{self.name} loses its connections")
        for connection in self._connections:
            connection.lose_ours(SLOWEST)

    def release(self) -> None:
        """Run all callbacks that were kept; of a dead process only so that it can be cleared away."""
        self.stands_still = False
        kept, self._kept = self._kept, []
        self._loop.run_soon(kept)

    def keeps(self, handle: Handle) -> bool:
        """Whether this callback is not to run yet; if so it is kept."""
        if self.stands_still:
            self._kept.append(handle)
        return self.stands_still

    # Its network (runtime.Network)

    async def connect(
        self,
        protocol_factory: Callable[[], P],
        host: str,
        port: int,
        tls: ssl.SSLContext | None = None,
        begin: Callable[[P], Awaitable[None]] | None = None,
    ) -> tuple[asyncio.Transport, P]:
        while (held := max(self._held)) > self._loop.time():  # noqa: ASYNC110
            await asyncio.sleep(held - self._loop.time())
        transport, protocol = await self.world.network.connect(protocol_factory, host, port, tls)
        assert isinstance(transport, SimulatedTransport), "it is a simulated network"
        transport.owner = self.name
        transport.request_faults = _Way(self, None if self._spared else transport.request_faults)
        self._hold(transport)
        self._connections = [each for each in self._connections if not each.is_closing()]
        self._connections.append(transport)
        return await begun(transport, protocol, begin)

    def send(self, to: Passage | None, transport: Sending, data: bytes) -> None:
        """Send requests, unless it is dead; then be cut off if `cut_off_after` says so for one of them."""
        if self.is_dead:
            return
        if transport.is_behind and claims(data):
            # Whenever it comes it is a new instance, and fences the one that sent it: nobody could tell.
            transport.lose_both()
            return
        if to is None:
            transport.send(data)
        else:
            to.send(transport, data)
        if self._trap is not None and int.from_bytes(data[4:6], "big") == self._trap[0]:
            seconds, self._trap = self._trap[1], None
            self.cut_off(seconds)

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


class _Clock:
    """The clock of a process: the node's, `skew_ms` milliseconds ahead."""

    def __init__(self, world: World, skew_ms: int) -> None:
        self._world = world
        self._skew_ms = skew_ms

    def now(self) -> Milliseconds:
        return Milliseconds(self._world.clock.now() + self._skew_ms)


class _Way:
    """The Passage of a process's requests (request_faults), which it can hold up or drop."""

    def __init__(self, process: Process, to: Passage | None) -> None:
        self._process = process
        self._to = to

    def send(self, transport: Sending, data: bytes, /) -> None:
        self._process.send(self._to, transport, data)


def _tell(outside: asyncio.Future[Any], task: asyncio.Task[Any]) -> None:
    """Tell whoever waits outside of the process what became of its work."""
    error = None if task.cancelled() else task.exception()
    if outside.done():
        return
    if task.cancelled():
        outside.cancel()
    elif error is not None:
        outside.set_exception(error)
    else:
        outside.set_result(task.result())


def _cancelled(process: Process, task: asyncio.Task[Any], outside: asyncio.Future[Any]) -> None:
    """Cancel work that nobody outside wants any more; of a dead process nothing is left to be told."""
    if outside.cancelled() and not process.is_dead:
        task.cancel()


class ProcessLoop(VirtualLoop):
    """A virtual loop whose processes can stand still."""

    def __init__(self) -> None:
        super().__init__()
        self.dead: list[Process] = []
        """What they were doing stays where it is until it is cleared away."""

    def clear_away(self) -> None:
        """End, when all is over, what dead processes were doing."""
        for process in self.dead:
            process.release()
