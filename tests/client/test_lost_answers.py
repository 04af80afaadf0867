"""Two parts of a shared transaction, which write by turns, lose answers: everything is there once, and in its order.

The answer of each request, and of every two, with what was sent behind it: carried out, lost with the connection, or
carried out later than its own repetition.
"""

from __future__ import annotations

import asyncio
import ssl
from collections import deque
from collections.abc import Awaitable, Callable, Collection, Iterator
from enum import Enum, auto
from itertools import count
from typing import Any, Final, TypeVar, cast

import pytest
from tests.client.test_producer import simulate
from tests.client.test_shared_transaction import PLACES, one

from fencepost.client import Consumer
from fencepost.client.cluster import Cluster
from fencepost.client.lanes import MOST_IN_FLIGHT
from fencepost.client.shared_transaction import SharedTransaction, Ticket
from fencepost.client.transactional_id import TransactionalId
from fencepost.runtime import Network, Runtime, begun
from fencepost.simulation.network import SimulatedTransport
from fencepost.simulation.world import ADDRESS, World

P = TypeVar("P", bound=asyncio.BaseProtocol)

AT: Final = PLACES[0]
#: Turns: a part, and how many batches of one record.  The very first goes alone, of the others five are on their way.
TURNS: Final = ((0, 2 + MOST_IN_FLIGHT), (1, MOST_IN_FLIGHT), (0, MOST_IN_FLIGHT))
BATCHES: Final = sum(batches for _, batches in TURNS)
#: Seconds that something is late: all of it is sent again before.
_LATE: Final = 0.1


class Behind(Enum):
    """What becomes of requests that were sent behind one whose answer is lost."""

    CARRIED_OUT = auto()
    LOST = auto()
    LATE = auto()


class LosingNetwork:
    """The network of a client, which loses the answers of some requests, with the connection.

    They are numbered from 0 on as they are sent, however often.  `at_once`: so many that are sent behind such a one
    are carried out; `behind`: what becomes of the others.
    """

    def __init__(self, network: Network, lost: Collection[int], behind: Behind, at_once: int = 0) -> None:
        self._network = network
        self.lost = lost
        self.behind = behind
        self.at_once = at_once
        self.numbers = count()

    async def listen(self, *_: Any, **__: Any) -> Any:
        raise AssertionError("it is a client")

    async def connect(
        self,
        protocol_factory: Callable[[], P],
        host: str,
        port: int,
        tls: ssl.SSLContext | None = None,
        begin: Callable[[P], Awaitable[None]] | None = None,
    ) -> tuple[asyncio.Transport, P]:
        protocol = protocol_factory()
        line = LosingLine(self, cast(asyncio.BufferedProtocol, protocol))
        transport, _ = await self._network.connect(lambda: line, host, port, tls)
        return await begun(transport, protocol, begin)


class LosingLine(asyncio.BufferedProtocol):
    """A connection of such a client, between its transport and its protocol."""

    def __init__(self, network: LosingNetwork, client: asyncio.BufferedProtocol) -> None:
        self._network = network
        self._client = client
        self._transport: SimulatedTransport | None = None
        self._asked = deque[int]()
        """Requests that are not answered."""
        self._is_cut = False
        self._buffer = bytearray(64 * 1024)
        self._arrived = bytearray()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(SimulatedTransport, transport)
        self._transport.on_write = self._ask
        self._client.connection_made(transport)

    def connection_lost(self, exc: Exception | None) -> None:
        self._is_cut = True
        self._client.connection_lost(exc)

    def _ask(self, data: bytes) -> None:
        """The client is about to send this."""
        network, transport = self._network, self._transport
        assert transport is not None
        assert len(data) == 4 + int.from_bytes(data[:4], "big"), "a client writes one request at once"
        if network.behind is not Behind.CARRIED_OUT and self._behind_a_lost_one > network.at_once:
            transport.hold(asyncio.get_running_loop().time() + _LATE)
        self._asked.append(next(network.numbers))

    @property
    def _behind_a_lost_one(self) -> int:
        """What place behind the first request whose answer will be lost the next one has; 0: there is none."""
        return next((len(self._asked) - n for n, asked in enumerate(self._asked) if asked in self._network.lost), 0)

    def get_buffer(self, sizehint: int) -> bytearray:  # noqa: ARG002
        return self._buffer

    def buffer_updated(self, nbytes: int) -> None:
        self._arrived += self._buffer[:nbytes]
        for answer in frames(self._arrived):
            if self._is_cut:
                return
            if self._asked.popleft() in self._network.lost:
                self._cut()
            else:
                self._hand_on(answer)

    def _hand_on(self, data: bytes) -> None:
        while data:
            buffer = memoryview(cast(bytearray, self._client.get_buffer(-1)))
            taken = min(len(buffer), len(data))
            buffer[:taken] = data[:taken]
            self._client.buffer_updated(taken)
            data = data[taken:]

    def _cut(self) -> None:
        self._is_cut = True
        assert self._transport is not None
        if self._network.behind is Behind.LOST:
            self._transport.lose_both()
        else:
            self._transport.lose_ours(_LATE)


def frames(arrived: bytearray) -> Iterator[bytes]:
    """Take whole answers, with their lengths, out of what has arrived."""
    while len(arrived) >= 4 and len(arrived) >= (end := 4 + int.from_bytes(arrived[:4], "big")):
        yield bytes(arrived[:end])
        del arrived[:end]


async def write(network: LosingNetwork, world: World, ticket: Ticket) -> list[int]:
    """All turns of the parts, which are processes of their own; the offsets of the batches."""
    runtime = world.runtime("part")
    clusters = [Cluster(ADDRESS, runtime=Runtime(runtime.clock, network, runtime.random)) for _ in range(2)]
    parts = [SharedTransaction(cluster, ticket) for cluster in clusters]
    offsets = list[int]()
    for number, batches in TURNS:
        part, before = parts[number], len(offsets)
        part.go_on(AT, before)
        written = [await part.write(AT, one(b"%d" % record)) for record in range(before, before + batches)]
        await part.finish()
        offsets += [await each for each in written]
    for part, cluster in zip(parts, clusters, strict=True):
        await part.close()
        await cluster.close()
    return offsets


class Bench:
    """Transactions one after another in one world, each with other answers that are lost."""

    def __init__(self, world: World, level: int) -> None:
        self._world = world
        self._level = level
        self._cluster = Cluster(ADDRESS, runtime=world.runtime("owner"))
        self._end = 0
        """Of the log."""
        self.runs = 0

    async def run(self, lost: Collection[int], behind: Behind, at_once: int = 0) -> bool:
        """Whether so many requests were sent at all."""
        self.runs += 1
        network = LosingNetwork(self._world.runtime("part").network, lost, behind, at_once)
        owner = TransactionalId(self._cluster, "id")
        ticket = Ticket("id", await owner.init(60_000), self._level == 2)
        offsets = await write(network, self._world, ticket)
        assert offsets == [*range(self._end, self._end + BATCHES)], (lost, behind, at_once)
        await asyncio.sleep(2 * _LATE)  # until what is late is there
        await owner.end(ticket.producer_id_and_epoch, True, ticket.tv2)
        self._end += BATCHES + 1  # and the marker
        return max(lost) < next(network.numbers)

    async def close(self) -> None:
        """All that was written is there, and nothing else."""
        await self._cluster.close()
        found: list[int] = []
        async with Consumer(bootstrap_servers=ADDRESS, runtime=self._world.runtime("reader")) as reader:
            reader.assign([AT])
            while records := await reader.poll(500):
                found += [int(record.value or b"") for record in records]
        assert found == [*range(BATCHES)] * self.runs


@pytest.mark.parametrize("behind", Behind)
@pytest.mark.parametrize("level", [1, 2])
def test_the_answer_of_each_request_is_lost_whatever_becomes_of_those_behind_it(level: int, behind: Behind) -> None:
    async def scenario(world: World) -> None:
        bench = Bench(world, level)
        for at_once in range(1 if behind is Behind.CARRIED_OUT else MOST_IN_FLIGHT):
            requests = 0
            while await bench.run([requests], behind, at_once):
                requests += 1
            assert requests > BATCHES, "those of each batch, and of what comes before them"
        await bench.close()

    simulate(scenario, level)


@pytest.mark.parametrize("behind", Behind)
@pytest.mark.parametrize("level", [pytest.param(1, marks=pytest.mark.soak), 2])
def test_the_answers_of_every_two_requests_are_lost(level: int, behind: Behind) -> None:
    async def scenario(world: World) -> None:
        bench = Bench(world, level)
        first = 0
        while await bench.run([first], behind):
            second = first + 1
            while await bench.run([first, second], behind):
                second += 1
            first += 1
        await bench.close()

    simulate(scenario, level)
