"""A transactional producer with five batches of each partition on their way at once, in raw requests.

As the Java client and librdkafka send: what is not answered is sent again as it was, in its order.  Now and then it
does what a client must not rely on being safe: it aborts while batches are on their way, or another instance takes
over then, and the old one goes on.
"""

from __future__ import annotations

import asyncio
import itertools
from collections import deque
from enum import Enum
from typing import Any, Final, NamedTuple

from fencepost.client.connection import Connection
from fencepost.client.errors import ClientError
from fencepost.client.opening import open_connection
from fencepost.protocol.batch import next_sequence
from fencepost.protocol.errors import ErrorCode
from fencepost.protocol.messages import (
    AddPartitionsToTxnRequest,
    EndTxnRequest,
    FindCoordinatorRequest,
    InitProducerIdRequest,
    ProduceRequest,
)
from fencepost.protocol.messages.add_partitions_to_txn import AddPartitionsToTxnTopic
from fencepost.protocol.messages.find_coordinator import TRANSACTION
from fencepost.protocol.messages.produce import PartitionProduceData, TopicProduceData
from fencepost.protocol.records import encode_batch
from fencepost.protocol.types import ProducerIdAndEpoch, TopicPartition
from fencepost.simulation.surroundings import ClientProcess
from fencepost.simulation.waiting import outcomes_of
from fencepost.simulation.workload import Load, Outcomes, Sent

#: As many batches as a broker remembers of a producer.
IN_FLIGHT: Final = 5
#: Attempts that come soon after one another: it may never be answered.
_MANY: Final = 100
#: What a newer transaction.version than 1 has.
_TV2: Final = 2
_PRODUCE: Final = {True: 12, False: 11}
_END_TXN: Final = {True: 5, False: 4}
_FEATURE: Final = "transaction.version"


class _Fate(Enum):
    """The ways in which a transaction of this producer ends."""

    COMMITS = "commits"
    ABORTS = "aborts"
    ABORTS_AT_ONCE = "aborts at once"
    """It is aborted while its batches are on their way."""
    IS_TAKEN_OVER = "is taken over"
    """Another instance takes over while its batches are on their way."""


class _Refused(Exception):
    """The transaction cannot be committed."""


class _Writer(NamedTuple):
    """The producer id and epoch of a transaction, and whether it ends with another epoch (transaction.version 2)."""

    producer_id_and_epoch: ProducerIdAndEpoch
    tv2: bool


class _Batch(NamedTuple):
    """One batch, as it is sent each time."""

    at: TopicPartition
    value: str
    """The value of its first record."""
    data: bytes


Answer = asyncio.Future[Any]


class _Windowed:
    """A transactional id and the producers that hold it, one after the other."""

    def __init__(self, process: ClientProcess, outcomes: Outcomes, load: Load, newest: int) -> None:
        self._process, self._name, self._outcomes, self._load = process, process.name, outcomes, load
        self._cluster = process.world.cluster
        self._id = self._cluster.name_of(self._name)
        self._chance = process.world.chance(process.name)
        self._newest = newest
        self._connections: list[Connection] = []
        self._opening = asyncio.Lock()
        self._writer: _Writer | None = None
        """None: it must be asked for, for a request of the last one may still arrive."""
        self._sequences: dict[TopicPartition, int] = {}
        self._number = 0

    async def work(self, stop: asyncio.Event) -> None:
        while not stop.is_set():
            try:
                writer = await self._ready()
                await self._transaction(writer)
            except (OSError, ClientError, TimeoutError):
                self._writer = None
            except _Refused as refused:
                self._process.world.note(f"{self._name} goes on under another epoch: {refused}")
                self._writer = None
            pause = self._load.pause
            await asyncio.sleep(self._chance.expovariate(1 / pause) if pause else self._chance.uniform(0, 0.005))
        for connection in self._connections:
            connection.close()

    # Who it is

    async def _connection(self) -> Connection:
        async with self._opening:
            self._connections = [each for each in self._connections if each.is_open]
            return self._connections[0] if self._connections else await self._another_connection()

    async def _another_connection(self) -> Connection:
        host, port, network = self._cluster.host, self._cluster.port, self._process.runtime().network
        connection = await open_connection(network, host, port, self._name, self._load.impatience_ms)
        self._connections.append(connection)
        return connection

    async def _ready(self) -> _Writer:
        """The writer of the next transaction; takes over anew where the protocol changes, or anything is in doubt."""
        tv2 = min((await self._connection()).features.levels.get(_FEATURE, 0), self._newest) >= _TV2
        if self._writer is None or self._writer.tv2 != tv2:
            self._writer = await self._take_over(await self._connection(), tv2)
        return self._writer

    async def _take_over(self, connection: Connection, tv2: bool) -> _Writer:
        """Ask for an epoch; whatever is open is aborted before that is answered.  Raises _Refused, ClientError."""
        request = InitProducerIdRequest(
            transactional_id=self._id, transaction_timeout_ms=self._load.transaction_timeout_ms
        )
        try:
            # The journal of the coordinators is made when somebody asks for one.
            who = FindCoordinatorRequest(key=self._id, key_type=TRANSACTION, coordinator_keys=[self._id])
            await connection.request(who, connection.version_of(FindCoordinatorRequest, 4))
            answer = await self._insist(connection, request, 4)
        except _Refused as refused:
            self._outcomes.surprises.append(f"{self._name} cannot take its transactional id: {refused}")
            raise
        self._sequences.clear()
        return _Writer(ProducerIdAndEpoch.of(answer.producer_id, answer.producer_epoch), tv2)

    async def _settle(self) -> None:
        """Take over, so that what was sent and is not committed never will be."""
        self._writer = None
        while self._writer is None:
            try:
                await self._ready()
            except (OSError, ClientError, TimeoutError):
                await asyncio.sleep(self._chance.uniform(0, 0.02))

    async def _insist(self, connection: Connection, request: Any, most: int) -> Any:
        """Ask until it is answered for good, in that version at most.  Raises _Refused, ClientError."""
        version = connection.version_of(type(request), most)
        for attempt in itertools.count():
            answer = await connection.request(request, version)
            error = ErrorCode(_error_of(answer))
            if not error:
                return answer
            if not error.retriable:
                raise _Refused(f"{type(request).__name__}: {error.name}")
            await asyncio.sleep(0.01 if attempt < _MANY else 0.5)
        raise AssertionError("it is answered, or the connection ends")

    # A transaction

    async def _transaction(self, writer: _Writer) -> None:
        tag, self._number = f"{self._name}-{self._number}", self._number + 1
        fate = self._fate(writer)
        places = self._chance.sample(self._cluster.places, self._chance.randint(1, 3))
        if not writer.tv2:
            await self._add(writer, places)
        sent: list[Sent] = []
        self._outcomes.unknown[tag] = sent
        batches = {at: self._batches(tag, at, writer, sent) for at in places}
        is_ending = False
        try:
            if fate in (_Fate.IS_TAKEN_OVER, _Fate.ABORTS_AT_ONCE):
                await self._leave_it(fate, writer, batches)
            else:
                await self._deliver(batches, writer)
                is_ending = fate is _Fate.COMMITS
                await self._end(writer, commit=is_ending)
        except _Refused:
            is_ending = False
            await self._settle()
        except (OSError, ClientError, TimeoutError):
            if is_ending:
                raise  # it may be committed
            await self._settle()
        self._over(tag, fate, is_committed=is_ending)

    def _fate(self, writer: _Writer) -> _Fate:
        dice = self._chance.random()
        if dice < 0.1:
            return _Fate.IS_TAKEN_OVER
        if dice < 0.25 and writer.tv2:
            # Before transaction.version 2 what is late would be part of the next transaction.
            return _Fate.ABORTS_AT_ONCE
        return _Fate.ABORTS if dice < 0.35 else _Fate.COMMITS

    def _over(self, tag: str, fate: _Fate, *, is_committed: bool) -> None:
        of = self._outcomes.committed if is_committed else self._outcomes.aborted
        of[tag] = self._outcomes.unknown.pop(tag)
        self._process.world.note(f"{tag} {'committed' if is_committed else 'aborted'}: it {fate.value}")

    def _batches(self, tag: str, at: TopicPartition, writer: _Writer, sent: list[Sent]) -> deque[_Batch]:
        """New batches for one partition, in their order."""
        now, batches, shape = self._process.runtime().clock.now(), deque[_Batch](), self._load.shape
        for _ in range(self._chance.randint(1, 2 * IN_FLIGHT)):
            values = [f"{tag}-{len(sent) + n}" for n in range(self._chance.randint(1, 3))]
            sent += [Sent(*at, value) for value in values]
            sequence = self._sequences.get(at, 0)
            data = encode_batch(
                [(now, shape.key_of(value), value.encode(), shape.headers_of(value, len(values))) for value in values],
                producer_id=writer.producer_id_and_epoch.producer_id,
                producer_epoch=writer.producer_id_and_epoch.producer_epoch,
                base_sequence=sequence,
                transactional=True,
            )
            self._sequences[at] = next_sequence(sequence, len(values))
            batches.append(_Batch(at, values[0], data))
        return batches

    async def _add(self, writer: _Writer, places: list[TopicPartition]) -> None:
        topics = {at.topic: [each.partition for each in places if each.topic == at.topic] for at in places}
        request = AddPartitionsToTxnRequest(
            transactional_id=self._id,
            producer_id=writer.producer_id_and_epoch.producer_id,
            producer_epoch=writer.producer_id_and_epoch.producer_epoch,
            topics=[AddPartitionsToTxnTopic(name=name, partitions=numbers) for name, numbers in topics.items()],
        )
        await self._insist(await self._connection(), request, 3)

    def _send(self, connection: Connection, batch: _Batch, writer: _Writer) -> Answer:
        partition = PartitionProduceData(index=batch.at.partition, records=batch.data)
        topic = TopicProduceData(name=batch.at.topic, partition_data=[partition])
        request = ProduceRequest(transactional_id=self._id, acks=-1, timeout_ms=1000, topic_data=[topic])
        answer = connection.request(request, connection.version_of(ProduceRequest, _PRODUCE[writer.tv2]))
        answer.add_done_callback(_heard)
        return answer

    # To its end

    async def _deliver(self, batches: dict[TopicPartition, deque[_Batch]], writer: _Writer) -> None:
        """Send every batch until it is acknowledged.  Raises _Refused, and ClientError and its like when time is up."""
        give_up = self._process.world.loop.time() + self._load.delivery_timeout_ms / 1000
        told = await outcomes_of(*(self._deliver_to(each, writer, give_up) for each in batches.values()))
        for each in told:
            if isinstance(each, BaseException):
                raise each

    async def _deliver_to(self, waiting: deque[_Batch], writer: _Writer, give_up: float) -> None:
        """Send to one partition, with a window that moves on with each answer."""
        window: deque[_Batch] = deque()
        while waiting or window:
            answers: deque[tuple[_Batch, Answer]] = deque()
            try:
                connection = await self._connection()
                answers += [(batch, self._send(connection, batch, writer)) for batch in window]
                while waiting or answers:
                    while waiting and len(window) < IN_FLIGHT:
                        window.append(waiting.popleft())
                        answers.append((window[-1], self._send(connection, window[-1], writer)))
                    batch, answer = answers.popleft()
                    self._judge(batch, ErrorCode(_error_of(await answer)), writer)
                    window.popleft()
            except (OSError, ClientError, TimeoutError):
                await outcomes_of(*(answer for _, answer in answers))
                if self._process.world.loop.time() > give_up:
                    raise
                await asyncio.sleep(self._chance.uniform(0, 0.02))

    def _judge(self, batch: _Batch, error: ErrorCode, writer: _Writer) -> None:
        """Raises ClientError where it is to be sent again, and all behind it; _Refused where that is in vain."""
        if writer.tv2 and error in (ErrorCode.DUPLICATE_SEQUENCE_NUMBER, ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER):
            # Everything before it is acknowledged, and the broker remembers as much as is on its way.  In the older
            # protocol a late batch of the last transaction may have had its sequence noted as the lowest to come.
            self._outcomes.surprises.append(f"{batch.value}, which is the next one, is refused: {error.name}")
        if error.retriable:
            raise ClientError(error.name)
        if error:
            raise _Refused(f"{batch.value}: {error.name}")

    async def _end(self, writer: _Writer, *, commit: bool, connection: Connection | None = None) -> None:
        """End the transaction, asking until it is answered: where it was carried out, that is said again."""
        request = EndTxnRequest(
            transactional_id=self._id,
            producer_id=writer.producer_id_and_epoch.producer_id,
            producer_epoch=writer.producer_id_and_epoch.producer_epoch,
            committed=commit,
        )
        give_up = self._process.world.loop.time() + self._load.delivery_timeout_ms / 1000
        in_doubt = False
        while True:
            try:
                answer = await self._insist(connection or await self._connection(), request, _END_TXN[writer.tv2])
                break
            except _Refused as refused:
                if in_doubt:
                    raise ClientError(str(refused)) from refused
                raise
            except (OSError, ClientError, TimeoutError):
                in_doubt, connection = True, None
                if self._process.world.loop.time() > give_up:
                    raise
                await asyncio.sleep(self._chance.uniform(0, 0.02))
        if writer.tv2:
            self._writer = _Writer(ProducerIdAndEpoch.of(answer.producer_id, answer.producer_epoch), True)
            self._sequences.clear()
        elif in_doubt:
            # The first one may arrive yet, and would end the next transaction (KAFKA-17754).
            self._writer = None

    # While its batches are on their way

    async def _leave_it(self, fate: _Fate, writer: _Writer, batches: dict[TopicPartition, deque[_Batch]]) -> None:
        """Send batches as far as there is room, and not wait: abort, or let another instance take over."""
        connection = await self._connection()
        late = {at: waiting.pop() for at, waiting in batches.items() if len(waiting) > 1}
        answers = [
            self._send(connection, batch, writer) for waiting in batches.values() for batch in list(waiting)[:IN_FLIGHT]
        ]
        try:
            other = connection if self._chance.random() < 0.3 else await self._another_connection()
            if fate is _Fate.ABORTS_AT_ONCE:
                await self._end(writer, commit=False, connection=other)
            else:
                self._writer = await self._take_over(other, writer.tv2)
            for at, batch in late.items():
                answer = await self._send(connection, batch, writer)
                # An abort is answered before its markers are written: until then a batch may be taken, to be aborted.
                if fate is _Fate.IS_TAKEN_OVER:
                    self._check_fenced(batch, at, answer)
        finally:
            await outcomes_of(*answers)

    def _check_fenced(self, batch: _Batch, at: TopicPartition, answer: Any) -> None:
        if not _error_of(answer):
            told = f"{batch.value}, which comes after the end of its transaction, is taken by {at.topic}-{at.partition}"
            self._outcomes.surprises.append(told)


def _heard(answer: Answer) -> None:
    """Retrieve the exception of an answer that nobody waits for, so that asyncio does not log it."""
    if not answer.cancelled():
        answer.exception()


def _error_of(answer: Any) -> int:
    """The error code of an answer, or else the first one of a partition in it."""
    if hasattr(answer, "results_by_topic"):
        errors = [each.partition_error_code for topic in answer.results_by_topic for each in topic.results_by_partition]
        return int(
            next((error for error in errors if error not in (0, ErrorCode.OPERATION_NOT_ATTEMPTED)), max(errors))
        )
    if hasattr(answer, "responses"):
        return int(answer.responses[0].partition_responses[0].error_code)
    return int(answer.error_code)


async def produce_windowed(
    process: ClientProcess, outcomes: Outcomes, stop: asyncio.Event, load: Load, newest: int = _TV2
) -> None:
    """Write transactions until told to stop; one in three is aborted in some way.

    `newest`: the transaction.version that it knows.
    """
    await _Windowed(process, outcomes, load, newest).work(stop)
