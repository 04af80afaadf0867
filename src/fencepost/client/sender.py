"""Sends batches to the leaders of their partitions, again until they are answered for good.

Whoever owns it decides, through its `Rules`, who writes, what may be written now, and what a failure means.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from functools import partial
from typing import Final

from fencepost.client.batches import Batch, Headers, Lane, RecordMetadata, portions, topic_data
from fencepost.client.buffer_memory import BufferMemory
from fencepost.client.cluster import Cluster
from fencepost.client.connection import Connection
from fencepost.client.errors import (
    BrokerError,
    ClientError,
    ClosedError,
    ConnectionLostError,
    TimedOutError,
    TransactionAbortedError,
    UnreachableError,
)
from fencepost.client.outcomes import LEADER_MOVED, MAYBE_WRITTEN, Outcome, outcome_of
from fencepost.client.producer_record import too_large
from fencepost.client.rules import Rules
from fencepost.protocol.batch import next_sequence
from fencepost.protocol.compression import Compression
from fencepost.protocol.errors import ErrorCode
from fencepost.protocol.messages import ProduceRequest, ProduceResponse
from fencepost.protocol.messages.produce import PartitionProduceResponse
from fencepost.protocol.records import BatchBuilder
from fencepost.protocol.types import ProducerIdAndEpoch, TopicPartition

_ALL: Final = -1
_LARGEST_REQUEST: Final = 16 * 1024 * 1024
#: Seconds before a batch is sent again, by the number of its tries.
_PAUSES: Final = (0.01, 0.02, 0.04, 0.08, 0.16, 0.32, 0.5)


class Sender:
    """Sends batches to the leaders of their partitions, again until they are answered for good or too late.

    `linger_ms` and `delivery_timeout_ms` are in milliseconds, sizes in bytes.  A record's future raises
    DeliveryError after `delivery_timeout_ms`, and what the rules make of any other failure.
    """

    def __init__(
        self,
        cluster: Cluster,
        rules: Rules,
        *,
        linger_ms: float,
        batch_bytes: int,
        max_request_size: int = _LARGEST_REQUEST,
        buffer_bytes: int,
        delivery_timeout_ms: float,
        compression: Compression,
    ) -> None:
        self._cluster = cluster
        self._rules = rules
        self._linger = linger_ms / 1000
        self._batch_bytes = min(batch_bytes, max_request_size)
        self._max_request_size = max_request_size
        self._largest_request = min(max_request_size, _LARGEST_REQUEST)
        self._memory = BufferMemory(buffer_bytes)
        self._delivery_timeout = delivery_timeout_ms / 1000
        self._compression = compression
        self._loop = asyncio.get_running_loop()
        self._lanes: dict[TopicPartition, Lane] = {}
        self._busy: dict[TopicPartition, Lane] = {}
        """Lanes that have something to send or on its way."""
        self._idle: list[asyncio.Future[None]] = []
        self._flushing = 0
        self._scheduled: asyncio.Handle | None = None
        self._scheduled_at = 0.0
        self._tasks: dict[asyncio.Task[None], None] = {}
        self._preparing: dict[object, None] = {}

    # Records in

    @property
    def is_full(self) -> bool:
        return self._memory.is_full

    @property
    def unacknowledged(self) -> int:
        """How many records wait, or are on their way."""
        return sum(lane.count for lane in list(self._busy.values()))

    async def wait_for_room(self) -> None:
        """Wait while the buffer is full."""
        while self.is_full:
            self.wake()
            await self._memory.room()

    def append(
        self, at: TopicPartition, timestamp: int, key: bytes | None, value: bytes | None, headers: Headers
    ) -> tuple[asyncio.Future[RecordMetadata], bool]:
        """Put a record into the batch of its partition; its future, and whether a batch is full now.

        Raises RecordTooLargeError, and TypeError, ValueError or AttributeError for what is no record.  Nothing is
        changed then.
        """
        lane = self._lanes.get(at)
        if lane is None:
            lane = self._lanes[at] = Lane(at)
        future: asyncio.Future[RecordMetadata] = self._loop.create_future()
        batch = lane.queue[-1] if lane.queue else None
        before, full = 0 if batch is None else batch.builder.size, False
        if batch is None or not batch.append(timestamp, key, value, headers, future, self._batch_bytes):
            batch = Batch(at, self._compression, self._loop.time() + self._delivery_timeout)
            if not batch.append(timestamp, key, value, headers, future, self._max_request_size):
                raise too_large(at, key, value, self._max_request_size)
            full = bool(lane.queue)
            lane.queue.append(batch)
            self._busy[at] = lane
            before = 0
        size = batch.builder.size
        self._memory.take(size - before)
        full = full or size >= self._batch_bytes
        if full or self._linger == 0:
            self.wake()
        else:
            self._schedule(self._loop.time() + self._linger)
        return future, full

    def append_batch(self, at: TopicPartition, builder: BatchBuilder) -> asyncio.Future[int]:
        """Send a batch that is filled already; its future gives the offset of its first record."""
        lane = self._lanes.get(at)
        if lane is None:
            lane = self._lanes[at] = Lane(at)
        batch = Batch(at, builder.compression, self._loop.time() + self._delivery_timeout)
        batch.builder = builder
        batch.whole = self._loop.create_future()
        lane.queue.append(batch)
        self._busy[at] = lane
        self._memory.take(builder.size)
        self.wake()
        return batch.whole

    # Waiting for the end

    async def flush(self) -> None:
        """Wait until everything that was appended is answered for good; failures are told elsewhere."""
        self._flushing += 1
        try:
            while self._busy:
                self.wake()
                idle = self._loop.create_future()
                self._idle.append(idle)
                await idle
        finally:
            self._flushing -= 1

    def abandon(self, error: ClientError) -> bool:
        """Drop what is not on the wire; true if something was dropped, or is out, that the broker may have."""
        uncertain = False
        for lane in list(self._busy.values()):
            while lane.queue:
                self._drop(lane.queue.popleft(), error)
            batch = lane.in_flight
            if batch is not None and lane.retry_at is None:
                batch.abandoned = uncertain = True
            elif batch is not None:
                uncertain = True
                lane.in_flight = lane.retry_at = None
                self._drop(batch, error)
            self._settle(lane)
        return uncertain

    def _drop(self, batch: Batch, error: ClientError) -> None:
        self._memory.give_back(batch.builder.size)
        batch.fail(error, reported=True)

    def _settle(self, lane: Lane) -> None:
        """A lane may have become idle."""
        if lane.in_flight is None and not lane.queue:
            self._busy.pop(lane.at, None)
        if not self._busy:
            idle, self._idle = self._idle, []
            for waiter in idle:
                if not waiter.done():
                    waiter.set_result(None)

    async def close(self) -> None:
        """Send nothing any more."""
        if self._scheduled is not None:
            self._scheduled.cancel()
        for task in list(self._tasks):
            task.cancel()
        self.abandon(ClosedError("the producer was closed before the record was acknowledged: flush() first"))

    # Sending

    def wake(self) -> None:
        """Look for something to send, after what runs now."""
        self._schedule(0.0)

    def _schedule(self, when: float) -> None:
        """Drain at this time of the loop's clock (0: at once), if not earlier."""
        if self._scheduled is not None:
            if self._scheduled_at <= when:
                return
            self._scheduled.cancel()
        self._scheduled_at = when
        loop = self._loop
        self._scheduled = loop.call_soon(self._drain) if when <= loop.time() else loop.call_at(when, self._drain)

    def _drain(self) -> None:
        self._scheduled = None
        identity, now = self._rules.identity, self._loop.time()
        if identity is None:
            for lane in list(self._busy.values()):
                self._expire(lane, now)
                if lane.queue:
                    self._schedule(lane.queue[0].deadline)
            return
        by_node: dict[int, list[Lane]] = {}
        for lane in list(self._busy.values()):
            if self._is_due(lane, now):
                node = self._leader(lane.at)
                if node is not None:
                    by_node.setdefault(node, []).append(lane)
        for node, lanes in by_node.items():
            connection = self._cluster.ready_connection(node)
            if connection is None:
                self._prepare(node, partial(self._cluster.connection, node))
                continue
            for portion in portions(lanes, self._largest_request):
                self._send(connection, portion, identity)

    def _expire(self, lane: Lane, now: float) -> None:
        """Fail what has waited for too long."""
        while lane.queue and now >= lane.queue[0].deadline:
            batch = lane.queue.popleft()
            self._failed(lane, batch, Outcome.ABORTABLE, batch.too_late(), unresolved=False)

    def _is_due(self, lane: Lane, now: float) -> bool:
        batch = lane.in_flight
        if batch is not None:
            if lane.retry_at is None:
                return False
            if now >= batch.deadline:
                self._refused(lane, Outcome.ABORTABLE, batch.too_late(), unresolved=True)
                return False
            if lane.retry_at > now:
                self._schedule(lane.retry_at)
                return False
            return True
        self._expire(lane, now)
        if not lane.queue:
            return False
        batch = lane.queue[0]
        if self._linger and not self._flushing and len(lane.queue) == 1 and batch.builder.size < self._batch_bytes:
            due = batch.deadline - self._delivery_timeout + self._linger
            if due > now:
                self._schedule(due)
                return False
        if not self._rules.admits(lane.at):
            self._schedule(batch.deadline)
            return False
        return True

    def _leader(self, at: TopicPartition) -> int | None:
        topic = self._cluster.topics.get(at.topic)
        leader = -1 if topic is None else topic.leaders.get(at.partition, -1)
        if leader in self._cluster.nodes:
            return leader
        deadline = self._cluster.deadline(f"looking for the leader of {at.topic}-{at.partition}")
        known = topic is not None
        look = partial(self._cluster.topic, at.topic, deadline)
        self._prepare(at.topic, partial(self._cluster.look_again, at.topic) if known else look)
        return None

    def _prepare(self, what: object, work: Callable[[], Awaitable[object]]) -> None:
        """Get a connection or metadata, once at a time; then look again what can be sent."""
        if what in self._preparing:
            return
        self._preparing[what] = None
        task = self._loop.create_task(self._prepared(what, work))
        self._tasks[task] = None
        task.add_done_callback(self._tasks.pop)

    async def _prepared(self, what: object, work: Callable[[], Awaitable[object]]) -> None:
        pause = 0.0
        try:
            await work()
        except (ConnectionLostError, UnreachableError, TimedOutError):
            # The leader may have moved; ask anew whoever answers, as long as the records have time.
            self._cluster.topics.clear()
            pause = _PAUSES[1]
        except ClientError as error:
            self._fail_lanes(what, error)
            pause = _PAUSES[-1]
        finally:
            self._preparing.pop(what, None)
        self._schedule(self._loop.time() + pause)

    def _fail_lanes(self, what: object, error: ClientError) -> None:
        """Nothing can be sent to a topic, or to the node that leads a partition."""
        for lane in list(self._busy.values()):
            if what in (lane.at.topic, self._leader(lane.at)):
                if lane.in_flight is not None and lane.retry_at is not None:
                    self._refused(lane, Outcome.ABORTABLE, error, unresolved=lane.in_flight.in_doubt)
                while lane.queue:
                    self._failed(lane, lane.queue.popleft(), Outcome.ABORTABLE, error, unresolved=False)

    def _send(self, connection: Connection, lanes: list[Lane], identity: ProducerIdAndEpoch) -> None:
        rules = self._rules
        for lane in lanes:
            batch = lane.in_flight
            if batch is None:
                batch = lane.in_flight = lane.queue.popleft()
                if lane.identity != identity:
                    lane.identity, lane.next_sequence = identity, 0
                batch.number(identity, lane.next_sequence, rules.transactional_id is not None)
            lane.retry_at = None
            batch.tries += 1
        request = ProduceRequest(
            transactional_id=rules.transactional_id,
            acks=_ALL,
            timeout_ms=self._cluster.request_timeout_ms,
            topic_data=topic_data(lanes),
        )
        least, most = rules.versions()
        try:
            answer = connection.request(request, connection.version_of(ProduceRequest, most, least))
        except ClientError as error:
            for lane in lanes:
                self._refused(lane, Outcome.FATAL, error, unresolved=False)
            return
        answer.add_done_callback(partial(self._answered, lanes))

    # Answers

    def _answered(self, lanes: list[Lane], answer: asyncio.Future[ProduceResponse]) -> None:
        if answer.cancelled():
            return
        lost = answer.exception()
        if lost is not None:
            self._cluster.topics.clear()
            for lane in lanes:
                self._again(lane, in_doubt=True)
            return
        found = {
            TopicPartition(topic.name, part.index): part
            for topic in answer.result().responses
            for part in topic.partition_responses
        }
        for lane in lanes:
            self._one_answered(lane, found.get(lane.at))
        if self._busy:
            self.wake()

    def _one_answered(self, lane: Lane, answer: PartitionProduceResponse | None) -> None:
        batch = lane.in_flight
        assert batch is not None, "an answer is to a batch that is on its way"
        if answer is None:
            self._again(lane, in_doubt=True)
            return
        error = ErrorCode(answer.error_code)
        outcome = outcome_of("Produce", error)
        if outcome is Outcome.DONE:
            lane.in_flight = None
            self._memory.give_back(batch.builder.size)
            lane.next_sequence = next_sequence(batch.base_sequence, batch.builder.count)
            batch.succeed(answer.base_offset, answer.log_append_time_ms)
            self._settle(lane)
        elif outcome is Outcome.RETRY:
            if error in LEADER_MOVED:
                self._cluster.forget_topic(lane.at.topic)
            self._again(lane, in_doubt=error in MAYBE_WRITTEN)
        elif error is ErrorCode.MESSAGE_TOO_LARGE and batch.can_be_split:
            self._split(lane, batch)
        else:
            what = f"{batch.builder.count} records for {lane.at.topic}-{lane.at.partition} were refused"
            refused = BrokerError(answer.error_code, f"{what}: {answer.error_message or error.name}")
            self._refused(lane, outcome, refused, unresolved=batch.in_doubt)

    def _split(self, lane: Lane, batch: Batch) -> None:
        """Send its halves: a topic may take less than `batch_bytes`.  Its numbers were not used."""
        lane.in_flight = None
        halves = batch.halves()
        self._memory.take(sum(half.builder.size for half in halves) - batch.builder.size)
        lane.queue.extendleft(reversed(halves))

    def _again(self, lane: Lane, *, in_doubt: bool) -> None:
        """Send the batch that is on its way once more, unless its transaction is being aborted.

        `in_doubt`: this try may have written it, whatever is answered to the next one.
        """
        batch = lane.in_flight
        assert batch is not None, "a batch that is sent again is on its way"
        batch.in_doubt = batch.in_doubt or in_doubt
        if batch.abandoned:
            lane.in_flight = None
            self._drop(batch, TransactionAbortedError("the transaction was aborted: send the record in the next one"))
            self._settle(lane)
            return
        pause = _PAUSES[min(batch.tries, len(_PAUSES)) - 1]
        lane.retry_at = self._loop.time() + pause * (0.8 + 0.4 * self._cluster.runtime.random.random())
        self._schedule(lane.retry_at)

    def _refused(self, lane: Lane, outcome: Outcome, error: ClientError, unresolved: bool) -> None:
        batch = lane.in_flight
        assert batch is not None, "what is refused was on its way"
        lane.in_flight = lane.retry_at = None
        self._failed(lane, batch, outcome, error, unresolved)

    def _failed(self, lane: Lane, batch: Batch, outcome: Outcome, error: ClientError, unresolved: bool) -> None:
        told = self._rules.failed(batch, outcome, error, unresolved)
        self._memory.give_back(batch.builder.size)
        batch.fail(told, reported=self._rules.transactional_id is not None)
        self._settle(lane)
        self.wake()
