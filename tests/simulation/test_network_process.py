"""A process stands still, goes on, and dies; its peer sees nothing but its connection."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable, Coroutine

import pytest

from fencepost.simulation.loop import VirtualLoop, run
from fencepost.simulation.network import SimulatedNetwork
from fencepost.simulation.network_process import NetworkProcess

REQUEST = b"\x00\x00\x00\x04\x00\x12\x00\x00"


class Everybody:
    """Lets every connection in (listening.Admission)."""

    def room(self) -> int:
        return 1

    def wait_seconds(self, now: float) -> float:  # noqa: ARG002
        return 0

    def accepted(self, now: float) -> None:
        """Nobody counts."""


class Peer(asyncio.Protocol):
    """Notes what arrives, and answers."""

    def __init__(self) -> None:
        self.arrived = b""
        self.is_lost = False
        self._transport: asyncio.Transport | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport

    def data_received(self, data: bytes) -> None:
        self.arrived += data
        if self.arrived.endswith(REQUEST) and self._transport is not None:
            self._transport.write(b"answer")

    def connection_lost(self, exc: Exception | None) -> None:  # noqa: ARG002
        self.is_lost = True


class Caller(Peer):
    """Notes what arrives."""

    def data_received(self, data: bytes) -> None:
        self.arrived += data


def with_a_connection(
    test: Callable[[NetworkProcess, asyncio.Transport, Caller, Peer], Coroutine[None, None, None]],
) -> None:
    async def main(loop: VirtualLoop) -> None:  # noqa: ARG001
        network, peer = SimulatedNetwork(random.Random(1)), Peer()
        await network.listen(lambda: peer, "h", 1, Everybody())
        process = NetworkProcess(network)
        transport, caller = await process.connect(Caller, "h", 1)
        await test(process, transport, caller, peer)

    run(main)


def test_what_is_written_while_it_stands_still_is_sent_when_it_goes_on() -> None:
    async def test(process: NetworkProcess, transport: asyncio.Transport, caller: Caller, peer: Peer) -> None:
        process.stand_still()
        transport.write(REQUEST)
        await asyncio.sleep(10)
        assert peer.arrived == b""
        process.go_on()
        await asyncio.sleep(1)
        assert (peer.arrived, caller.arrived) == (REQUEST, b"answer")

    with_a_connection(test)


def test_what_arrives_while_it_stands_still_is_read_when_it_goes_on() -> None:
    async def test(process: NetworkProcess, transport: asyncio.Transport, caller: Caller, peer: Peer) -> None:
        transport.write(REQUEST)
        process.stand_still()
        await asyncio.sleep(10)
        assert (peer.arrived, caller.arrived) == (REQUEST, b"")
        process.go_on()
        process.go_on()
        assert caller.arrived == b""
        await asyncio.sleep(1)
        assert caller.arrived == b"answer"

    with_a_connection(test)


@pytest.mark.parametrize("stands_still", [False, True])
def test_a_killed_one_sends_nothing_more_and_its_connections_end(stands_still: bool) -> None:
    async def test(process: NetworkProcess, transport: asyncio.Transport, caller: Caller, peer: Peer) -> None:
        transport.write(REQUEST)
        if stands_still:
            process.stand_still()
            transport.write(REQUEST)
        process.kill()
        transport.write(REQUEST)
        process.go_on()
        await asyncio.sleep(1)
        assert (peer.arrived, peer.is_lost, caller.arrived) == (REQUEST, True, b"")
        with pytest.raises(ConnectionRefusedError):
            await process.connect(Caller, "h", 1)

    with_a_connection(test)


def test_a_connection_is_made_when_it_goes_on() -> None:
    async def test(process: NetworkProcess, _: asyncio.Transport, __: Caller, peer: Peer) -> None:
        process.stand_still()
        connecting = asyncio.get_running_loop().create_task(process.connect(Caller, "h", 1))
        await asyncio.sleep(5)
        assert not connecting.done()
        process.go_on()
        transport, caller = await connecting
        transport.write(REQUEST)
        await asyncio.sleep(1)
        assert caller.arrived == b"answer" and peer.arrived == REQUEST

    with_a_connection(test)


def test_it_can_stand_still_just_before_an_answer() -> None:
    async def test(process: NetworkProcess, transport: asyncio.Transport, caller: Caller, peer: Peer) -> None:
        process.stand_still_after(0x13, 5)
        transport.write(REQUEST)
        await asyncio.sleep(1)
        assert (peer.arrived, caller.arrived) == (REQUEST, b"answer")
        process.stand_still_after(0x12, 5)
        transport.write(REQUEST)
        await asyncio.sleep(4)
        assert (peer.arrived, caller.arrived) == (REQUEST * 2, b"answer")
        await asyncio.sleep(2)
        assert caller.arrived == b"answer" * 2

    with_a_connection(test)


def test_it_serves_nobody() -> None:
    async def test(process: NetworkProcess, *_: object) -> None:
        with pytest.raises(AssertionError, match="does not listen"):
            await process.listen(Peer, "h", 2, Everybody())

    with_a_connection(test)
