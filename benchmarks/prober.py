"""A client that asks for next to nothing every 10 ms, in a process of its own, and remembers its longest wait."""

from __future__ import annotations

import multiprocessing
import socket
import time
from collections.abc import Iterator
from contextlib import contextmanager
from multiprocessing.connection import Connection
from typing import Any, NamedTuple

from benchmarks.steps import Longest, LongestStep
from fencepost.protocol.codec import decode_response, encode_request
from fencepost.protocol.messages import RESPONSES, ApiVersionsRequest, ProduceRequest
from fencepost.protocol.messages.produce import PartitionProduceData, TopicProduceData
from fencepost.protocol.records import encode_batch

INTERVAL_SECONDS = 0.01
PROBED = "probed"
"""The topic of one partition that the prober writes to."""
VERSIONS = {0: 9, 1: 12, 3: 12, 18: 3}
"""API key -> version: those that name topics by their names.  Others by 0 or their first one, given by the caller."""


class Wire:
    """One blocking connection that speaks in messages."""

    def __init__(self, address: str, patience: float = 120) -> None:
        host, _, port = address.rpartition(":")
        self._socket = socket.create_connection((host, int(port)), timeout=patience)
        self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._reader = self._socket.makefile("rb")

    def frame(self, request: Any, version: int | None = None) -> bytes:
        wanted = VERSIONS[request.__schema__.api] if version is None else version
        return encode_request(request, wanted, 1, "stalls")

    def send(self, data: bytes) -> None:
        self._socket.sendall(data)

    def receive(self, request: type[Any], version: int | None = None) -> Any:
        """The next answer, which is one to a request of this kind.  Raises EOFError."""
        api = request.__schema__.api
        data = self._reader.read(int.from_bytes(self._reader.read(4), "big"))
        if not data:
            raise EOFError("the node closed the connection")
        return decode_response(RESPONSES[api], data, VERSIONS[api] if version is None else version)[1]

    def skip(self) -> None:
        """Take the next answer, whatever it says."""
        self._reader.read(int.from_bytes(self._reader.read(4), "big"))

    def ask(self, request: Any, version: int | None = None) -> Any:
        self.send(self.frame(request, version))
        return self.receive(type(request), version)

    def close(self) -> None:
        self._reader.close()
        self._socket.close()


def produce_request(topic: str, batches: dict[int, bytes]) -> ProduceRequest:
    """One batch for each of these partitions."""
    data = [PartitionProduceData(index=index, records=records) for index, records in batches.items()]
    topics = [TopicProduceData(name=topic, partition_data=data)]
    return ProduceRequest(transactional_id=None, acks=-1, timeout_ms=60_000, topic_data=topics)


class Waits(NamedTuple):
    """The longest wait for an ApiVersions and for a durable record, in milliseconds, and how often it was asked."""

    asked_ms: float
    produced_ms: float
    times: int


def _first_connection(address: str) -> Wire:
    """As soon as somebody listens."""
    while True:
        try:
            return Wire(address)
        except OSError:
            time.sleep(0.001)


def _probe(address: str, orders: Connection) -> None:
    """Ask until told to end; each order is answered by the Waits since the one before it."""
    wire = _first_connection(address)
    hello = wire.frame(ApiVersionsRequest(client_software_name="stalls", client_software_version="1"))
    asked, produced, times = 0.0, 0.0, 0
    while True:
        begin = time.perf_counter()
        wire.send(hello)
        wire.receive(ApiVersionsRequest)
        middle = time.perf_counter()
        batch = encode_batch([(int(time.time() * 1000), None, b"tick", ())])
        wire.ask(produce_request(PROBED, {0: batch}))
        end = time.perf_counter()
        asked, produced, times = max(asked, middle - begin), max(produced, end - middle), times + 1
        if orders.poll():
            if not orders.recv():
                return
            orders.send(Waits(asked * 1000, produced * 1000, times))
            asked, produced, times = 0.0, 0.0, 0
        time.sleep(max(INTERVAL_SECONDS - (time.perf_counter() - begin), 0))


class Prober:
    """The process that asks, and what the node measures of itself meanwhile."""

    def __init__(self, orders: Connection, steps: LongestStep) -> None:
        self._orders = orders
        self._steps = steps

    def waits(self) -> Waits:
        """The longest waits since this was called last."""
        self._orders.send(True)
        waits: Waits = self._orders.recv()
        return waits

    def longest_step(self) -> Longest:
        """The step of the node that took most of a processor since this was called last."""
        return self._steps.take()

    def end(self) -> None:
        self._orders.send(False)


@contextmanager
def probing(address: str, steps: LongestStep) -> Iterator[Prober]:
    """Ask the node at this address, from the moment on that somebody listens there."""
    context = multiprocessing.get_context("spawn")
    ours, its = context.Pipe()
    process = context.Process(target=_probe, args=(address, its), daemon=True)
    process.start()
    prober = Prober(ours, steps)
    try:
        yield prober
        prober.end()
        process.join(10)
    finally:
        process.kill()
