"""What it takes a client to produce records of 100 bytes, beside other clients, and over a long line.

    python -m benchmarks.producer --rounds 5

Every measurement is a process of its own, on one node of Fencepost (`--flush=os`), in turn: records per second by the
clock, and processor time of the client's process per record, all its threads together.  The long line is a proxy in
the client's process that delays what it passes on by 25 ms each way: its processor time says nothing of a client.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import ssl
import statistics
import subprocess
import sys
import time
from collections import defaultdict
from collections.abc import Awaitable, Callable, Coroutine
from random import Random
from typing import Any, TypeVar

import confluent_kafka
import pyarrow as pa
from aiokafka import AIOKafkaProducer

from benchmarks.fencepost_node import fencepost_node
from benchmarks.measure import fresh_topic, report
from fencepost.client import Producer, blocking
from fencepost.runtime import Runtime, SocketNetwork, SystemClock

P = TypeVar("P", bound=asyncio.BaseProtocol)

_VALUE = b"x" * 100
_LONG_VALUE = b"x" * 10_000
_ONE_WAY = 0.025
"""Seconds."""
#: Records at once for `send_many`, as somebody has them who reads a file.
_AT_ONCE = 100_000


async def fencepost_one_by_one(bootstrap: str, topic: str, count: int) -> None:
    async with Producer(bootstrap) as producer:
        for _ in range(count):
            await producer.send(topic, _VALUE)


async def fencepost_blocking_one_by_one(bootstrap: str, topic: str, count: int) -> None:
    with blocking.Producer(bootstrap) as producer:
        for _ in range(count):
            producer.send(topic, _VALUE)


async def aiokafka_one_by_one(bootstrap: str, topic: str, count: int) -> None:
    async with AIOKafkaProducer(
        bootstrap_servers=bootstrap, enable_idempotence=True, max_batch_size=256 * 1024
    ) as producer:
        for _ in range(count):
            await producer.send(topic, _VALUE)
        await producer.flush()


async def fencepost_many(bootstrap: str, topic: str, count: int) -> None:
    async with Producer(bootstrap) as producer:
        for _ in range(count // _AT_ONCE):
            await producer.send_many(topic, [_VALUE] * _AT_ONCE)


async def fencepost_arrow(bootstrap: str, topic: str, count: int) -> None:
    rows = pa.table({"value": pa.array([_VALUE] * _AT_ONCE, pa.binary())})
    async with Producer(bootstrap) as producer:
        for _ in range(count // _AT_ONCE):
            await producer.send_arrow(topic, rows)


async def confluent(bootstrap: str, topic: str, count: int) -> None:
    producer = confluent_kafka.Producer(
        {"bootstrap.servers": bootstrap, "enable.idempotence": True, "queue.buffering.max.messages": 2_000_000}
    )
    for n in range(count):
        producer.produce(topic, _VALUE)
        if n % 1000 == 0:
            producer.poll(0)
    producer.flush()


def over_a_long_line(in_flight: int) -> Callable[[str, str, int], Coroutine[Any, Any, None]]:
    async def work(bootstrap: str, topic: str, count: int) -> None:
        runtime = Runtime(SystemClock(), LongLine(), Random())
        async with Producer(bootstrap, max_in_flight_requests_per_connection=in_flight, runtime=runtime) as producer:
            for _ in range(count):
                await producer.send(topic, _LONG_VALUE)

    return work


#: what -> (its work, records)
WORKS: dict[str, tuple[Callable[[str, str, int], Coroutine[Any, Any, None]], int]] = {
    "one by one, fencepost": (fencepost_one_by_one, 200_000),
    "one by one, fencepost blocking": (fencepost_blocking_one_by_one, 200_000),
    "one by one, aiokafka": (aiokafka_one_by_one, 200_000),
    "many, fencepost send_many": (fencepost_many, 1_000_000),
    "many, fencepost send_arrow": (fencepost_arrow, 1_000_000),
    "many, confluent-kafka": (confluent, 1_000_000),
    "10 KB at 50 ms, 1 in flight": (over_a_long_line(1), 4_000),
    "10 KB at 50 ms, 5 in flight": (over_a_long_line(5), 4_000),
}


class _Passage(asyncio.Protocol):
    """One direction of a connection through the proxy."""

    def __init__(self, other: asyncio.Transport | None = None, target: tuple[str, int] | None = None) -> None:
        self._other, self._target = other, target
        self._early: list[bytes] = []

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        if self._target is not None:
            self._task = asyncio.get_running_loop().create_task(self._connect(transport))

    async def _connect(self, transport: asyncio.BaseTransport) -> None:
        assert self._target is not None and isinstance(transport, asyncio.Transport)
        loop = asyncio.get_running_loop()
        self._other, _ = await loop.create_connection(lambda: _Passage(other=transport), *self._target)
        for data in self._early:
            self.data_received(data)

    def data_received(self, data: bytes) -> None:
        if self._other is None:
            self._early.append(data)
        else:
            asyncio.get_running_loop().call_later(_ONE_WAY, self._other.write, data)

    def connection_lost(self, exc: Exception | None) -> None:  # noqa: ARG002
        if self._other is not None:
            self._other.close()


class LongLine(SocketNetwork):
    """Sockets to a proxy in this process, one for each connection, which delays what it passes on."""

    async def connect(
        self,
        protocol_factory: Callable[[], P],
        host: str,
        port: int,
        tls: ssl.SSLContext | None = None,
        begin: Callable[[P], Awaitable[None]] | None = None,
    ) -> tuple[asyncio.Transport, P]:
        loop = asyncio.get_running_loop()
        server = await loop.create_server(lambda: _Passage(target=(host, port)), "127.0.0.1", 0)
        return await super().connect(protocol_factory, "127.0.0.1", server.sockets[0].getsockname()[1], tls, begin)


def once(what: str, bootstrap: str, topic: str) -> None:
    """Do one of the works in this process, and print what it took."""
    work, count = WORKS[what]
    begun, used = time.perf_counter(), time.process_time()
    asyncio.run(work(bootstrap, topic, count))
    seconds = time.perf_counter() - begun
    report(per_second=count / seconds, cpu_us=(time.process_time() - used) / count * 1e6)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--work", help="do this one, and print what it took")
    parser.add_argument("--bootstrap")
    parser.add_argument("--topic")
    options = parser.parse_args()
    if options.work:
        once(options.work, options.bootstrap, options.topic)
        return
    taken: dict[str, list[dict[str, float]]] = defaultdict(list)
    with fencepost_node("os") as (bootstrap, _, _):
        for _ in range(options.rounds):
            for what in WORKS:
                command = [sys.executable, "-m", "benchmarks.producer", "--work", what, "--bootstrap", bootstrap]
                told = subprocess.run(
                    [*command, "--topic", fresh_topic(bootstrap)], stdout=subprocess.PIPE, text=True, check=True
                )
                taken[what].append(json.loads(told.stdout))
    for what, rounds in taken.items():
        rates, cpu = ([each[name] for each in rounds] for name in ("per_second", "cpu_us"))
        print(
            f"{what:32} {statistics.median(rates):12,.0f}/s (most {max(rates):12,.0f})"
            f"  {statistics.median(cpu):7.2f} us (least {min(cpu):7.2f})"
        )


if __name__ == "__main__":
    main()
