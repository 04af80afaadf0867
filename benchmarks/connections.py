"""How long a record takes where many are connected and some of them write: a fixed rate, whatever the answers do.

    python -m benchmarks.connections                     # on a node of its own
    python -m benchmarks.connections --bootstrap ADDRESS # on any cluster

Each busy connection writes a record every `busy / rate` seconds, at moments of its own.  A wait counts from when the
record was due, so a client that is late does not hide what it waited for.
"""

from __future__ import annotations

import asyncio
import random
import resource
from contextlib import ExitStack
from functools import partial
from typing import Any

from benchmarks.fencepost_node import fencepost_node, resident_megabytes
from benchmarks.measure import arguments, fresh_topic, report
from benchmarks.prober import produce_request
from fencepost.protocol.codec import decode_response, encode_request
from fencepost.protocol.messages import ProduceResponse
from fencepost.protocol.records import encode_batch

PRODUCE_VERSION = 9
_RECORD = b"x" * 100


class Busy(asyncio.Protocol):
    """One connection that writes."""

    def __init__(self, frame: bytes, waits: list[float]) -> None:
        self._frame = frame
        self._waits = waits
        self._due: list[float] = []
        self._came = bytearray()
        self._transport: asyncio.Transport | None = None
        self.newest = b""
        """The last answer."""
        self.lost = False

    def connection_made(self, transport: Any) -> None:
        self._transport = transport

    def write(self, due: float) -> None:
        assert self._transport is not None
        self._due.append(due)
        self._transport.write(self._frame)

    def data_received(self, data: bytes) -> None:
        self._came += data
        while len(self._came) >= 4 and len(self._came) >= 4 + (size := int.from_bytes(self._came[:4], "big")):
            self.newest = bytes(self._came[4 : 4 + size])
            del self._came[: 4 + size]
            self._waits.append(asyncio.get_running_loop().time() - self._due.pop(0))

    def connection_lost(self, exc: Exception | None) -> None:  # noqa: ARG002
        self.lost = True

    @property
    def waits_for(self) -> int:
        return len(self._due)


async def load(
    address: str, topic: str, partitions: int, idle: int, busy: int, rate: int, seconds: int
) -> tuple[list[float], int]:
    """The waits in seconds, and how many records were never answered."""
    loop = asyncio.get_running_loop()
    host, _, port = address.rpartition(":")
    others = [await loop.create_connection(asyncio.Protocol, host, int(port)) for _ in range(idle)]
    waits: list[float] = []
    writers = []
    for number in range(busy):
        batch = encode_batch([(0, None, _RECORD, ())])
        frame = encode_request(produce_request(topic, {number % partitions: batch}), PRODUCE_VERSION, 1, "bench")
        writers.append((await loop.create_connection(partial(Busy, frame, waits), host, int(port)))[1])
    chance, start = random.Random(1), loop.time() + 0.5
    every = busy / rate
    due = sorted(
        (start + chance.random() * every + turn * every, number)
        for number in range(busy)
        for turn in range(int(seconds / every))
    )
    for at, number in due:
        delay = at - loop.time()
        if delay > 0:
            await asyncio.sleep(delay)
        writers[number].write(at)
    for _ in range(100):
        if not any(each.waits_for for each in writers):
            break
        await asyncio.sleep(0.1)
    assert not any(each.lost for each in writers), "the node ended a connection"
    for each in writers:
        _, answer = decode_response(ProduceResponse, each.newest, PRODUCE_VERSION)
        error = answer.responses[0].partition_responses[0].error_code
        assert not error, f"a record was not taken: error {error}"
    missing = sum(each.waits_for for each in writers)
    for transport, _ in others:
        transport.close()
    return waits, missing


def main() -> None:
    options = arguments(__doc__ or "", idle=1000, busy=200, rate=2000, seconds=20, partitions=20)
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(max(soft, options.idle + options.busy + 100), hard), hard))
    with ExitStack() as stack:
        process_id = None
        if options.bootstrap == "127.0.0.1:9092":
            options.bootstrap, process_id, _ = stack.enter_context(fencepost_node())
        topic = fresh_topic(options.bootstrap, options.partitions)
        waits, missing = asyncio.run(
            load(
                options.bootstrap,
                topic,
                options.partitions,
                options.idle,
                options.busy,
                options.rate,
                options.seconds,
            )
        )
        waits.sort()
        report(
            records=len(waits),
            missing=missing,
            p50_ms=waits[len(waits) // 2] * 1000,
            p99_ms=waits[int(len(waits) * 0.99)] * 1000,
            longest_ms=waits[-1] * 1000,
            **({"megabytes": resident_megabytes(process_id)} if process_id is not None else {}),
        )


if __name__ == "__main__":
    main()
