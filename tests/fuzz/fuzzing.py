"""Requests that nobody would send, to a node in this process: of the right structure with senseless values, and with
bytes changed, cut or added.

The node is a simulated one, on virtual time; its connections are given the bytes directly.  One seed decides all.
"""

from __future__ import annotations

import asyncio
import gc
import logging
import random
import resource
import time
import uuid
from collections.abc import Awaitable
from dataclasses import dataclass, field
from typing import Any

from tests.broker import asking

from fencepost.broker.network.connection import Connection
from fencepost.broker.network.registry import SERVED
from fencepost.protocol.codec import encode_request
from fencepost.protocol.control import control_batch
from fencepost.protocol.errors import ErrorCode
from fencepost.protocol.layout import Field, fields_of
from fencepost.protocol.message import Message
from fencepost.protocol.messages import FetchRequest, ProduceRequest
from fencepost.protocol.messages.fetch import FetchPartition, FetchTopic
from fencepost.protocol.messages.produce import PartitionProduceData, TopicProduceData
from fencepost.protocol.records import encode_batch
from fencepost.protocol.types import Epoch, LeaderEpoch, Milliseconds, ProducerId, TopicPartition
from fencepost.simulation.loop import EPOCH_MS, VirtualLoop
from fencepost.simulation.world import World

BATCH = 500
"""Requests between two looks of the control client."""
MEASURED = 20
"""Requests between two looks at the time of the processor."""
FRAMES = 40
"""Well-formed frames that are kept of each API and version, to be sent as they are or changed."""
BITS = {"int8": 7, "int16": 15, "int32": 31, "int64": 63, "uint16": 16, "uint32": 32}


class Transport(asyncio.Transport):
    """Takes what the node writes and forgets it."""

    def __init__(self) -> None:
        super().__init__()
        self.connection: Connection | None = None
        self.closed = self.paused = False

    def get_extra_info(self, name: str, default: Any = None) -> Any:
        return ("127.0.0.1", 1) if name == "peername" else default

    def write(self, data: Any) -> None:
        pass

    def is_closing(self) -> bool:
        return self.closed

    def close(self) -> None:
        if not self.closed:
            self.closed = True
            assert self.connection is not None
            asyncio.get_running_loop().call_soon(self.connection.connection_lost, None)

    abort = close

    def pause_reading(self) -> None:
        self.paused = True

    def resume_reading(self) -> None:
        self.paused = False


class Values:
    """Draws messages whose values are seldom right and often nearly."""

    def __init__(self, chance: random.Random) -> None:
        self.random = chance
        self.strings = ["", "control", "t", "g", "nowhere", "ü" * 40, "x" * 300, "range", "*", "(a+)+b", "consumer"]
        self.strings += ["__consumer_offsets", "__transaction_state", "cleanup.policy", "retention.ms", "-1", "\x00"]
        self.numbers = [0, 0, 0, 1, 1, 2, 3, -1, -1, -2, -3, -4, 5, 7, 50, 1000]
        record = (EPOCH_MS, b"k", b"v", ())
        plain = encode_batch([record])
        inside = encode_batch(
            [record], producer_id=ProducerId(0), producer_epoch=Epoch(0), base_sequence=0, transactional=True
        )
        self.batches = [
            b"",
            plain,
            inside,
            plain[:70],
            plain + inside,
            bytes(61),
            control_batch(ProducerId(0), Epoch(0), LeaderEpoch(0), True, Milliseconds(0)),
        ]

    def value(self, of: Field, version: int) -> Any:
        choose = self.random
        if of.nullable and choose.random() < 0.2:
            return None
        match of.kind:
            case "struct":
                return self.message(of.of, version)
            case "array":
                return [self.value(of.of, version) for _ in range(choose.choice((0, 1, 1, 2)))]
            case "string":
                return choose.choice(self.strings)
            case "boolean":
                return choose.random() < 0.5
            case "uuid":
                return uuid.UUID(int=choose.choice((0, 9)))
            case "binary" | "batches":
                return choose.choice(self.batches)
            case "float64":
                return choose.random()
            case number:
                bits = BITS[number]
                low = 0 if number.startswith("u") else -(2**bits)
                high = 2**bits - 1
                drawn = choose.choice((high, low, high - 1)) if choose.random() < 0.1 else choose.choice(self.numbers)
                return max(min(drawn, high), low)

    def message(self, of: type[Message], version: int) -> Any:
        return of(**{each.name: self.value(each, version) for each in fields_in(of, version)})


_FIELDS: dict[tuple[type, int], tuple[Field, ...]] = {}


def fields_in(of: type[Message], version: int) -> tuple[Field, ...]:
    known = _FIELDS.get((of, version))
    if known is None:
        known = _FIELDS[of, version] = _fields_in(of, version)
    return known


def _fields_in(of: type[Message], version: int) -> tuple[Field, ...]:
    return tuple(each for each in fields_of(of) if each.wire.in_version(version) and each.wire.tag is None)


def changed(frame: bytes, chance: random.Random) -> bytes:
    """The same with bytes changed, cut out or put in; the length in front agrees, or does not."""
    data = bytearray(frame)
    for _ in range(chance.choice((1, 1, 2, 5))):
        at = chance.randrange(4, len(data))
        match chance.randrange(5):
            case 0:
                data[at] = chance.getrandbits(8)
            case 1:
                data[at] ^= 1 << chance.randrange(8)
            case 2:
                del data[at : at + chance.randrange(1, 9)]
            case 3:
                data[at:at] = chance.randbytes(chance.randrange(1, 9))
            case _:
                data[at : at + 4] = chance.choice((b"\xff\xff\xff\xff", b"\x7f\xff\xff\xff", bytes(4)))
        if len(data) <= 12:
            break
    if chance.random() < 0.98:
        data[:4] = (len(data) - 4).to_bytes(4, "big")
    return bytes(data)


class Failures(logging.Handler):
    """Exceptions that the node has logged: none of these requests may bring one about."""

    def __init__(self) -> None:
        super().__init__(logging.ERROR)
        self.found: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        if record.exc_info:
            self.found.append(self.format(record))


class TimedRounds(VirtualLoop):
    """Knows how long its slowest round took: in the node nobody else is answered before a round ends.

    Work that is done in steps takes many rounds, so it may be long as a whole.  What the collector of garbage takes
    depends on all that the process of the tests has ever made, so it is left out here.
    """

    def __init__(self) -> None:
        super().__init__()
        self.slowest = 0.0
        """Seconds by the clock, since somebody set this to 0."""
        self.apart = 0.0
        """Of this round: what is measured by itself, or not at all."""
        self._collecting = 0.0

    def run_forever(self) -> None:
        gc.callbacks.append(self._leave_out)
        try:
            super().run_forever()
        finally:
            gc.callbacks.remove(self._leave_out)

    def _leave_out(self, phase: str, _: dict[str, int]) -> None:
        if phase == "start":
            self._collecting = time.perf_counter()
        else:
            self.apart += time.perf_counter() - self._collecting

    def _run_once(self) -> None:
        begin, self.apart = time.perf_counter(), 0.0
        super()._run_once()
        self.slowest = max(self.slowest, time.perf_counter() - begin - self.apart)


@dataclass
class Report:
    """What came of it."""

    requests: int = 0
    handled: int = 0
    """Those that could be read, and came to their handlers."""
    longest_ms: float = 0.0
    """Of the processor, so that a busy machine changes nothing: a frame taken in, or a round of the loop after it."""
    longest: bytes = b""
    grown_mb: float = 0.0
    failures: list[tuple[str, bytes]] = field(default_factory=list)
    """What failed, and the frame after which it did."""


class Fuzzing:
    """One node, those who send it nonsense, and a control client whose work must be right all the while."""

    def __init__(self, loop: TimedRounds, seed: int) -> None:
        self.loop, self.chance = loop, random.Random(f"fuzz {seed}")
        self.world = World(loop, seed, {"auto.create.topics.enable": "false", "num.partitions": 1})
        self.values, self.report, self.failures = Values(self.chance), Report(), Failures()
        self.frames: list[bytes] = []
        self.transport, self.controlled = Transport(), 0
        self.measured, self.slowest = 0.0, (0.0, b"")

    async def begin(self) -> None:
        await self.world.start()
        broker = self.world.broker
        assert broker is not None
        for name in ("__consumer_offsets", "__transaction_state"):
            await broker.node.ensure_coordinator(name)
        broker.node.topics.create_at_once("control", 1)
        broker.node.topics.create_at_once("t", 2)
        for key, served in sorted(SERVED.items()):
            for version in range(served.first, served.last + 1):
                for number in range(FRAMES):
                    request = self.values.message(served.request, version)
                    self.frames.append(encode_request(request, version, number, "fuzz"))
            assert self.frames, key

    def send(self, frame: bytes) -> None:
        """On a connection that goes on for as long as the node lets it."""
        if self.transport.closed or self.transport.connection is None:
            assert self.world.broker is not None
            self.transport = Transport()
            self.transport.connection = Connection(self.world.broker.node)
            self.transport.connection.connection_made(self.transport)
        connection, at = self.transport.connection, 0
        while at < len(frame) and not self.transport.closed:
            room = connection.get_buffer(-1)
            count = min(len(room), len(frame) - at)
            room[:count] = frame[at : at + count]
            connection.buffer_updated(count)
            at += count
        self.report.requests += 1

    async def give(self, frame: bytes, turns: Awaitable[None]) -> None:
        """Send it and let the node have its turns for it."""
        self.loop.slowest, begin, apart = 0.0, time.perf_counter(), self.loop.apart
        self.send(frame)
        sending = time.perf_counter() - begin - (self.loop.apart - apart)
        self.loop.apart += sending
        await turns
        took = max(sending, self.loop.slowest)
        if took > self.slowest[0]:
            self.slowest = took, frame
        if self.report.requests % MEASURED == 0:
            self.measure()

    def measure(self) -> None:
        """How long the slowest turn since the last time took, of the processor: no more than all of them together.

        To ask for the time of the processor takes longer than most turns do, so it is not asked for each of them.
        """
        now = time.thread_time()
        took = min(self.slowest[0], now - self.measured) * 1000
        if took > self.report.longest_ms:
            self.report.longest_ms, self.report.longest = took, self.slowest[1]
        self.measured, self.slowest = now, (0.0, b"")

    async def go_on(self, number: int) -> None:
        """Let the node answer; where an answer waits for somebody who never comes, the next request does not."""
        if self.transport.paused or number % 10 == 0:
            await asyncio.sleep(0)
        for pause in (0, 0, 0.002):
            if self.transport.paused and not self.transport.closed:
                await asyncio.sleep(pause)
        if self.transport.paused:
            self.transport.close()

    async def replay(self, frames: list[bytes]) -> None:
        """Cases that were found once."""
        logging.getLogger("fencepost").addHandler(self.failures)
        try:
            for frame in frames:
                self.measured = time.thread_time()
                await self.give(frame, asyncio.sleep(0.001))
                self.measure()
                await self.look(frame)
                self.transport.close()
                await asyncio.sleep(0)
        finally:
            logging.getLogger("fencepost").removeHandler(self.failures)

    async def run(self, requests: int, seconds: float) -> Report:
        """So many, or as many as are done in so many seconds of the processor."""
        logging.getLogger("fencepost").addHandler(self.failures)
        self.measured, before = time.thread_time(), _resident_mb()
        end = self.measured + seconds
        try:
            while self.report.requests < requests and time.thread_time() < end:
                for number in range(BATCH):
                    frame = self.chance.choice(self.frames)
                    frame = changed(frame, self.chance) if self.chance.random() < 0.6 else frame
                    await self.give(frame, self.go_on(number))
                    if self.failures.found:
                        await self.look(frame)
                await asyncio.sleep(self.chance.choice((0, 0.001, 1)))
                self.transport.close()
                await self.control()
        finally:
            logging.getLogger("fencepost").removeHandler(self.failures)
        assert self.world.broker is not None
        self.report.handled = sum(self.world.broker.node.counters.requests.values())
        self.report.grown_mb = _resident_mb() - before
        return self.report

    async def look(self, frame: bytes) -> None:
        await asyncio.sleep(0)
        self.report.failures += [(text, frame) for text in self.failures.found]
        self.failures.found = []

    async def control(self) -> None:
        """A record written, a transaction committed, both read again: in a node that has no time to lose."""
        broker, topic = self.world.broker, "control"
        assert broker is not None
        partition = broker.node.storage.partition(topic, 0)
        if partition is None:  # Somebody may well have deleted it.
            await broker.node.topics.create(topic, 1, {}, broker.node.slices)
            partition = broker.node.storage.partition(topic, 0)
            assert partition is not None
        name = f"control-{self.controlled}"
        self.controlled += 1
        pair = broker.node.transactions.init_producer_id(name, Milliseconds(60_000))
        assert pair.error == ErrorCode.NONE, pair
        record = (self.world.clock.now(), None, name.encode(), ())
        where = [TopicPartition(topic, 0)]
        added = broker.node.transactions.add_partitions(name, pair.producer_id, pair.producer_epoch, where, 0)
        assert added.error == ErrorCode.NONE, added
        records = encode_batch(
            [record],
            producer_id=pair.producer_id,
            producer_epoch=pair.producer_epoch,
            base_sequence=0,
            transactional=True,
        )
        data = PartitionProduceData(index=0, records=records)
        wanted = [TopicProduceData(name=topic, partition_data=[data])]
        produced = ProduceRequest(transactional_id=name, acks=-1, timeout_ms=9, topic_data=wanted)
        (written,) = (await self.ask(produced, 9)).responses[0].partition_responses
        assert written.error_code == ErrorCode.NONE, written
        ended = broker.node.transactions.end(name, pair.producer_id, pair.producer_epoch, True, 3)
        assert ended.error == ErrorCode.NONE, ended
        await broker.node.storage.durability.wait(broker.node.storage.lsn)
        asked = FetchPartition(partition=0, fetch_offset=written.base_offset, partition_max_bytes=1 << 20)
        topics = [FetchTopic(topic=topic, partitions=[asked])]
        fetch = FetchRequest(max_wait_ms=0, min_bytes=0, isolation_level=0, topics=topics)
        (found,) = (await self.ask(fetch, 12)).responses[0].partitions
        assert name.encode() in bytes(found.records or b""), f"{name} is not there"

    async def ask(self, request: Any, version: int) -> Any:
        assert self.world.broker is not None
        return await asking.ask(self.world.broker, request, version)


def _resident_mb() -> float:
    """The most that this process has had so far."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1000
