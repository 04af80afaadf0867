"""A producer that has five batches on their way at once, as the Java client and librdkafka have, in raw requests.

What is not answered is sent again as it was, in its order: only what the broker remembers of its producer keeps each
record from being there twice, or out of order (facts §6.4).
"""

from __future__ import annotations

import asyncio
from collections import deque
from typing import Final, NamedTuple

from fencepost.client.connection import Connection
from fencepost.client.errors import ClientError
from fencepost.client.opening import open_connection
from fencepost.protocol.batch import next_sequence
from fencepost.protocol.errors import ErrorCode
from fencepost.protocol.messages import InitProducerIdRequest, ProduceRequest, ProduceResponse
from fencepost.protocol.messages.produce import PartitionProduceData, TopicProduceData
from fencepost.protocol.records import encode_batch
from fencepost.protocol.types import Epoch, ProducerId
from fencepost.simulation.surroundings import ClientProcess
from fencepost.simulation.waiting import outcomes_of
from fencepost.simulation.workload import Load, Outcomes, Sent

#: As many batches as a broker remembers of a producer.
IN_FLIGHT: Final = 5
_VERSION: Final = 9


class _Batch(NamedTuple):
    """A batch to send, its first sequence, and the values of its records as the checkers know them."""

    tags: list[str]
    sequence: int
    data: bytes


class _Pipeline:
    """The batches of one producer for one partition."""

    def __init__(self, process: ClientProcess, outcomes: Outcomes, load: Load) -> None:
        self._process, self._name, self._outcomes = process, process.name, outcomes
        self._chance = process.world.chance(process.name)
        self._load = load
        self._cluster = process.world.cluster
        self._topic = self._chance.choice(list(self._cluster.topics))
        self._index = self._chance.randrange(self._cluster.topics[self._topic])
        self._waiting: deque[_Batch] = deque()
        """Not answered yet, in order."""
        self._number = self._sequence = 0
        self._producer_id = -1

    async def work(self, stop: asyncio.Event) -> None:
        connection: Connection | None = None
        while self._waiting or not stop.is_set():
            try:
                if connection is None or not connection.is_open:
                    host, port = self._cluster.host, self._cluster.port
                    network = self._process.runtime().network
                    connection = await open_connection(network, host, port, self._name, self._load.impatience_ms)
                if self._producer_id < 0:
                    await self._take_id(connection)
                await self._fill(connection, stop)
            except (OSError, ClientError, TimeoutError):
                await asyncio.sleep(self._chance.uniform(0, 0.02))
        if connection is not None:
            connection.close()

    async def _take_id(self, connection: Connection) -> None:
        request = InitProducerIdRequest(transactional_id=None, transaction_timeout_ms=1000)
        answer = await connection.request(request, connection.version_of(InitProducerIdRequest, 4))
        if not answer.error_code:
            self._producer_id = answer.producer_id
        else:
            await asyncio.sleep(0.01)

    async def _fill(self, connection: Connection, stop: asyncio.Event) -> None:
        """Send waiting batches again, new ones behind them, and take the answers.  Raises ClientError: connect anew."""
        while len(self._waiting) < IN_FLIGHT and not stop.is_set() and self._producer_id >= 0:
            self._waiting.append(self._new())
        sent = [(batch, self._send(connection, batch)) for batch in self._waiting]
        answers = await outcomes_of(*(answer for _, answer in sent))
        for (batch, _), answer in zip(sent, answers, strict=True):
            if isinstance(answer, BaseException):
                raise ClientError(str(answer)) from answer
            told = answer.responses[0].partition_responses[0]
            error = ErrorCode(told.error_code)
            if error:
                if not error.retriable and error is not ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER:
                    self._outcomes.surprises.append(f"{batch.tags[0]}, which is in order, is refused: {error.name}")
                break
            self._waiting.popleft()
            for tag in batch.tags:
                self._outcomes.committed[tag] = self._outcomes.unknown.pop(tag)
        await asyncio.sleep(self._chance.uniform(0, 0.01 + 4 * self._load.pause))

    def _new(self) -> _Batch:
        tags = [f"{self._name}-{self._number + n}" for n in range(self._chance.randint(1, 3))]
        for tag in tags:
            self._outcomes.unknown[tag] = [Sent(self._topic, self._index, f"{tag}-0")]
        now, shape = self._process.runtime().clock.now(), self._load.shape
        data = encode_batch(
            [
                (now, shape.key_of(value), value.encode(), shape.headers_of(value, len(tags)))
                for value in (f"{tag}-0" for tag in tags)
            ],
            producer_id=ProducerId(self._producer_id),
            producer_epoch=Epoch(0),
            base_sequence=self._sequence,
        )
        batch = _Batch(tags, self._sequence, data)
        self._number += len(tags)
        self._sequence = next_sequence(self._sequence, len(tags))
        return batch

    def _send(self, connection: Connection, batch: _Batch) -> asyncio.Future[ProduceResponse]:
        partition = PartitionProduceData(index=self._index, records=batch.data)
        topic = TopicProduceData(name=self._topic, partition_data=[partition])
        request = ProduceRequest(acks=-1, timeout_ms=1000, topic_data=[topic])
        return connection.request(request, connection.version_of(ProduceRequest, _VERSION))


async def produce_pipelined(process: ClientProcess, outcomes: Outcomes, stop: asyncio.Event, load: Load) -> None:
    """Write batches until told to stop, then until all are answered.  Each record is a transaction to the checkers."""
    await _Pipeline(process, outcomes, load).work(stop)
