"""Client processes of the simulated world: each stands still, as one that is suspended or swapped out, or dies.

A process is what was started in it and all that this starts.  While it stands still none of its callbacks runs, its
timers included: they run when it goes on, in their order, as late as that is.
"""

from __future__ import annotations

import asyncio
import contextvars
import heapq
import random
from collections import deque
from collections.abc import Callable, Coroutine
from contextvars import Context, ContextVar
from typing import Any, Final, TypeVar

from fencepost.runtime import Admission, Listener, Runtime
from fencepost.simulation.loop import VirtualLoop
from fencepost.simulation.network import SLOWEST, SimulatedTransport
from fencepost.simulation.world import World

T = TypeVar("T")
P = TypeVar("P", bound=asyncio.BaseProtocol)

_PROCESS: Final[ContextVar[Process | None]] = ContextVar("process", default=None)


class Process:
    """One client process, and its way to the network."""

    def __init__(self, world: World, name: str, *, spared: bool = False) -> None:
        """`spared`: nothing befalls its requests."""
        self.name = self.owner = name
        self._spared = spared
        self._world = world
        assert isinstance(world.loop, ProcessLoop), "only there processes can stand still"
        self._loop = world.loop
        self._stands_still = False
        self._is_dead = False
        self.has_left_for_good = False
        """Nobody comes after it."""
        self.is_to_leave = False
        """As soon as it is calm: somebody else has its place."""
        self.stood_still = 0.0
        """Seconds for which it stood still, in all."""
        self._kept: list[asyncio.Handle] = []
        """What would have run while it stood still."""
        self._connections: list[asyncio.Transport] = []

    def runtime(self) -> Runtime:
        """The outside world as this process has it."""
        return Runtime(self._world.clock, self, self.chance("client"))

    def chance(self, name: str) -> random.Random:
        """A generator of its own for each part of it."""
        return self._world.chance(f"{self.name}/{name}")

    def start(self, work: Coroutine[Any, Any, T]) -> asyncio.Task[T]:
        """Run this in the process."""
        context = contextvars.copy_context()
        context.run(_PROCESS.set, self)
        return self._loop.create_task(work, name=self.name, context=context)

    # What befalls it

    def stand_still(self, seconds: float) -> None:
        """Nothing of it runs for so long; if it stands still already, it goes on when it would have."""
        if self._stands_still:
            return
        self._world.note(f"{self.name} stands still for {seconds:.3f} s")
        self._stands_still = True
        self.stood_still += seconds
        self._loop.call_later(seconds, self._go_on, context=Context())

    def _go_on(self) -> None:
        if self._is_dead:
            return
        self._world.note(f"{self.name} goes on")
        self.release()

    def die(self, *, silently: bool) -> None:
        """Nothing of it ever runs again.  `silently`: nobody is told that its connections are gone."""
        self._world.note(f"{self.name} dies{' without a word' if silently else ''}")
        self._stands_still = self._is_dead = True
        self._loop.dead.append(self)
        if not silently:
            for connection in self._connections:
                if isinstance(connection, SimulatedTransport):
                    connection.lose_both()

    def lose_connections(self) -> None:
        """They break off at this end; what was sent arrives all the same, and is answered in vain."""
        self._world.note(f"{self.name} loses its connections")
        for connection in self._connections:
            if isinstance(connection, SimulatedTransport):
                connection.lose_ours(SLOWEST)

    def release(self) -> None:
        """Let everything run that was kept; of a dead process only so that it can be cleared away."""
        self._stands_still = False
        kept, self._kept = self._kept, []
        self._loop.run_soon(kept)

    def keeps(self, handle: asyncio.Handle) -> bool:
        """Whether this is not to run yet."""
        if self._stands_still:
            self._kept.append(handle)
        return self._stands_still

    # Its network (runtime.Network)

    async def connect(self, protocol_factory: Callable[[], P], host: str, port: int) -> tuple[asyncio.Transport, P]:
        transport, protocol = await self._world.network.connect(protocol_factory, host, port)
        assert isinstance(transport, SimulatedTransport), "it is a simulated network"
        transport.owner = self.name
        if self._spared:
            transport.request_faults = None
        self._connections = [each for each in self._connections if not each.is_closing()]
        self._connections.append(transport)
        return transport, protocol

    async def listen(
        self, protocol_factory: Callable[[], asyncio.BaseProtocol], host: str, port: int, admission: Admission
    ) -> Listener:
        return await self._world.network.listen(protocol_factory, host, port, admission)


class ProcessLoop(VirtualLoop):
    """A virtual loop whose processes can stand still."""

    def __init__(self) -> None:
        super().__init__()
        self._ready: deque[asyncio.Handle]
        self._scheduled: list[asyncio.TimerHandle]
        self.dead: list[Process] = []
        """What they were doing stays where it is until it is cleared away."""

    def run_soon(self, handles: list[asyncio.Handle]) -> None:
        """Run what a process kept, in this order."""
        self._ready.extend(handles)

    def call_soon(  # type: ignore[override]
        self, callback: Any, *args: Any, context: Context | None = None
    ) -> asyncio.Handle:
        handle = _Handle(callback, args, self, contextvars.copy_context() if context is None else context)
        self._ready.append(handle)
        return handle

    def call_at(  # type: ignore[override]
        self, when: float, callback: Any, *args: Any, context: Context | None = None
    ) -> asyncio.TimerHandle:
        timer = _TimerHandle(when, callback, args, self, contextvars.copy_context() if context is None else context)
        heapq.heappush(self._scheduled, timer)
        timer._scheduled = True  # type: ignore[attr-defined]
        return timer


class _Handle(asyncio.Handle):
    """A callback of whichever process it is."""

    __slots__ = ("_process",)

    def __init__(self, callback: Any, args: Any, loop: asyncio.AbstractEventLoop, context: Context) -> None:
        super().__init__(callback, args, loop, context)
        self._process = context.get(_PROCESS)

    def _run(self) -> None:
        if self._process is None or not self._process.keeps(self):
            super()._run()


class _TimerHandle(asyncio.TimerHandle):
    """A timer of whichever process it is."""

    __slots__ = ("_process",)

    def __init__(
        self, when: float, callback: Any, args: Any, loop: asyncio.AbstractEventLoop, context: Context
    ) -> None:
        super().__init__(when, callback, args, loop, context)
        self._process = context.get(_PROCESS)

    def _run(self) -> None:
        if self._process is None or not self._process.keeps(self):
            super()._run()
