"""A process among others: it can stand still for a while, and be killed.

What makes it a process of its own is its connections.  While it stands still nothing leaves and nothing arrives, but
its time-outs run; when it goes on, what it was about to send is sent.  A killed one says nothing any more.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import TypeVar

from fencepost.runtime import Admission, Listener
from fencepost.simulation.network import SimulatedNetwork, SimulatedTransport
from fencepost.simulation.request_faults import Passage, Sending

P = TypeVar("P", bound=asyncio.BaseProtocol)


class NetworkProcess:
    """The network as one process has it (runtime.Network)."""

    def __init__(self, network: SimulatedNetwork) -> None:
        self._network = network
        self._transports: dict[SimulatedTransport, None] = {}
        self._held: list[tuple[Passage | None, Sending, bytes]] = []
        self._goes_on = asyncio.Event()
        self._goes_on.set()
        self.is_dead = False
        self._trap: tuple[int, float] | None = None
        """The API after whose next request it stands still, and for how many seconds."""

    async def listen(
        self,
        protocol_factory: Callable[[], asyncio.BaseProtocol],  # noqa: ARG002
        host: str,
        port: int,
        admission: Admission,  # noqa: ARG002
    ) -> Listener:
        raise AssertionError(f"it is a client, and does not listen on {host}:{port}")

    async def connect(self, protocol_factory: Callable[[], P], host: str, port: int) -> tuple[asyncio.Transport, P]:
        await self._goes_on.wait()
        if self.is_dead:
            raise ConnectionRefusedError(111, "the process is dead")
        transport, protocol = await self._network.connect(protocol_factory, host, port)
        assert isinstance(transport, SimulatedTransport), "it is a simulated network"
        transport.request_faults = _Gate(self, transport.request_faults)
        self._transports = {each: None for each in self._transports if not each.is_closing()}
        self._transports[transport] = None
        if self.is_dead:
            transport.abort()
        elif not self._goes_on.is_set():
            transport.pause_reading()
        return transport, protocol

    def pass_on(self, to: Passage | None, transport: Sending, data: bytes) -> None:
        """Send, unless it stands still or is dead."""
        if not self._goes_on.is_set():
            self._held.append((to, transport, data))
        elif not self.is_dead:
            if to is None:
                transport.send(data)
            else:
                to.send(transport, data)
            if self._trap is not None and int.from_bytes(data[4:6], "big") == self._trap[0]:
                seconds, self._trap = self._trap[1], None
                self.stand_still()
                asyncio.get_running_loop().call_later(seconds, self.go_on)

    def stand_still_after(self, api: int, seconds: float) -> None:
        """Send the next request of an API, then stand still before its answer arrives."""
        self._trap = (api, seconds)

    def stand_still(self) -> None:
        """Do nothing more until it goes on."""
        self._goes_on.clear()
        for transport in self._transports:
            transport.pause_reading()

    def go_on(self) -> None:
        """Do what it was about to do."""
        self._goes_on.set()
        held, self._held = self._held, []
        for to, transport, data in held:
            self.pass_on(to, transport, data)
        for transport in self._transports:
            transport.resume_reading()

    def kill(self) -> None:
        """kill -9: what it has sent arrives, and no more."""
        self.is_dead = True
        self._held.clear()
        self._goes_on.set()
        for transport in self._transports:
            transport.abort()


class _Gate:
    """What the requests of a process go through (request_faults.Passage)."""

    def __init__(self, process: NetworkProcess, to: Passage | None) -> None:
        self._process = process
        self._to = to

    def send(self, transport: Sending, data: bytes, /) -> None:
        self._process.pass_on(self._to, transport, data)
