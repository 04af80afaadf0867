"""What becomes of a request on a real socket, fault by fault: whether it arrives, and what its client is told."""

from __future__ import annotations

import asyncio
import itertools
from random import Random
from typing import Any

import pytest

from fencepost.broker.network.connection_quotas import ConnectionQuotas
from fencepost.runtime import SocketNetwork
from fencepost.simulation.cutting_network import CuttingNetwork
from fencepost.simulation.request_faults import RequestFaults
from fencepost.simulation.script import BefallenRequest, Prompter, RequestFault

METADATA = 3


def frame(number: int) -> bytes:
    """A request of no other meaning than its number."""
    body = METADATA.to_bytes(2, "big") + number.to_bytes(2, "big") + number.to_bytes(4, "big")
    return len(body).to_bytes(4, "big") + body


class Peer(asyncio.Protocol):
    """Answers whatever arrives with as many bytes, and writes down what it sees."""

    def __init__(self) -> None:
        self.got = b""
        self.ended = asyncio.Event()
        self.transport: Any = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = transport

    def data_received(self, data: bytes) -> None:
        self.got += data
        self.transport.write(b"." * len(data))

    def connection_lost(self, exc: Exception | None) -> None:  # noqa: ARG002
        self.ended.set()


class Client(asyncio.BufferedProtocol):
    """Writes down what it is told, and when: after how many bytes of the peer."""

    def __init__(self, peers: list[Peer]) -> None:
        self._peers = peers
        self._buffer = bytearray(64)
        self.told = 0
        self.ended: asyncio.Future[tuple[Exception | None, int]] = asyncio.get_running_loop().create_future()

    def get_buffer(self, sizehint: int) -> bytearray:  # noqa: ARG002
        return self._buffer

    def buffer_updated(self, nbytes: int) -> None:
        self.told += nbytes

    def connection_lost(self, exc: Exception | None) -> None:
        self.ended.set_result((exc, sum(len(peer.got) for peer in self._peers)))


class Told:
    """What came of three requests, of which something becomes of the second."""

    def __init__(self, fault: RequestFault | None, late: float = 0.0) -> None:
        self.fault, self.late = fault, late
        self.befallen: list[str] = []
        self.got = b""
        self.told = 0
        self.error: Exception | None = None
        self.arrived_before_the_end = 0

    async def happen(self) -> Told:
        peers: list[Peer] = []

        def accept() -> Peer:
            peers.append(Peer())
            return peers[-1]

        listener = await SocketNetwork().listen(accept, "127.0.0.1", 0, ConnectionQuotas(most=10, most_per_ip=10))
        counter = itertools.count()
        prompter = Prompter()
        befallen = None if self.fault is None else BefallenRequest(0, "client", METADATA, self.fault, self.late)
        prompter.request = lambda *_: befallen if next(counter) == 1 else None  # type: ignore[method-assign]
        faults = RequestFaults(Random(0), lambda _: None, {}, prompter=prompter)
        network = CuttingNetwork(SocketNetwork(), "client", faults, self.befallen.append)
        transport, client = await network.connect(lambda: Client(peers), "127.0.0.1", listener.port)
        for number in range(3):
            if not transport.is_closing():
                transport.write(frame(number))
        if self.fault in (None, RequestFault.LATE):
            async with asyncio.timeout(20):
                while client.told < 3 * len(frame(0)):  # noqa: ASYNC110
                    await asyncio.sleep(0.001)
            transport.close()
        async with asyncio.timeout(20):
            self.error, self.arrived_before_the_end = await client.ended
            assert transport.is_closing()
            if not peers:  # its connection was cut before it was accepted
                await asyncio.sleep(0.1)
            for peer in peers:
                await peer.ended.wait()
        listener.close()
        self.got, self.told = b"".join(peer.got for peer in peers), client.told
        return self


def happen(fault: RequestFault | None, late: float = 0.0) -> Told:
    return asyncio.run(Told(fault, late).happen())


def test_nothing_becomes_of_it() -> None:
    told = happen(None)
    assert told.got == frame(0) + frame(1) + frame(2)
    assert (told.error, told.befallen) == (None, [])


def test_a_late_one_arrives_and_what_comes_after_it_waits() -> None:
    told = happen(RequestFault.LATE, 0.05)
    assert told.got == frame(0) + frame(1) + frame(2)
    assert (told.error, told.befallen) == (None, ["late"])


def test_a_lost_one_never_arrives_and_its_client_is_told() -> None:
    told = happen(RequestFault.LOST)
    assert told.got in (b"", frame(0)), "what was written just before may be lost with it"
    assert isinstance(told.error, ConnectionResetError)


@pytest.mark.parametrize(("fault", "late"), [(RequestFault.ANSWER_LOST, 0.0), (RequestFault.HELD_BACK, 0.05)])
def test_one_whose_client_is_gone_arrives_all_the_same(fault: RequestFault, late: float) -> None:
    told = happen(fault, late)
    assert told.got == frame(0) + frame(1), "nothing is sent after it"
    assert isinstance(told.error, ConnectionResetError)
    assert told.arrived_before_the_end <= len(frame(0)), "it is answered in vain"
    assert told.told <= len(frame(0))
