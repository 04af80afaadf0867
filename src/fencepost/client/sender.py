"""Sends batches to the leaders of their partitions, again until they are answered for good.

Whoever owns it decides, through its `Rules`, who writes, what may be written now, and what a failure means.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Sequence
from functools import partial
from typing import Final

from fencepost.client.batches import Batch, Headers, RecordMetadata
from fencepost.client.buffer_memory import BufferMemory
from fencepost.client.cluster import Cluster
from fencepost.client.connection import Connection
from fencepost.client.errors import BrokerError, ClientError, ClosedError
from fencepost.client.lanes import Lane, Next, portions, topic_data
from fencepost.client.outcomes import (
    LEADER_MOVED,
    MAYBE_WRITTEN,
    RECORDS_REFUSED,
    Outcome,
    Verdict,
    outcome_of,
    verdict_of,
)
from fencepost.client.producer_record import too_large
from fencepost.client.routes import Routes
from fencepost.client.rules import Rules
from fencepost.client.together import Together
from fencepost.protocol.compression import Compression
from fencepost.protocol.errors import ErrorCode
from fencepost.protocol.messages import ProduceRequest, ProduceResponse
from fencepost.protocol.messages.produce import PartitionProduceResponse
from fencepost.protocol.records import BatchBuilder
from fencepost.protocol.types import ProducerIdAndEpoch, TopicPartition

_ALL: Final = -1
_LARGEST_REQUEST: Final = 16 * 1024 * 1024
#: Seconds that a batch which is not full waits for more records while others of its partition are in flight: where
#: answers come sooner it is sent with the next one, where they take long it does not wait for them.
_BEHIND: Final = 0.005
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
        max_in_flight: int = 1,
    ) -> None:
        """`max_in_flight`: requests to a node, and batches of a partition, that may be on the wire together."""
        self._cluster = cluster
        self._rules = rules
        self._linger = linger_ms / 1000
        self._batch_bytes = min(batch_bytes, max_request_size)
        self._max_request_size = max_request_size
        self._largest_request = min(max_request_size, _LARGEST_REQUEST)
        self._memory = BufferMemory(buffer_bytes)
        self._delivery_timeout = delivery_timeout_ms / 1000
        self._compression = compression
        self._max_in_flight = max_in_flight
        self._requests: Counter[Connection] = Counter()  # on the wire
        self._loop = asyncio.get_running_loop()
        self._lanes: dict[TopicPartition, Lane] = {}
        self._busy: dict[TopicPartition, Lane] = {}  # they have something to send or on its way
        self._waiting: list[asyncio.Future[None]] = []  # for the end of some batch
        self._flushing = 0
        self._scheduled: asyncio.Handle | None = None
        self._scheduled_at = 0.0
        self._routes = Routes(cluster, self._look_in, self._fail_lanes)

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
        lane = self._lane(at)
        future: asyncio.Future[RecordMetadata] = self._loop.create_future()
        batch = lane.queue[-1] if lane.queue and lane.queue[-1].together is None else None
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
        self._note(lane, full=full)
        return future, full

    def _note(self, lane: Lane, *, full: bool) -> None:
        """Something has come into the queue of a partition."""
        wait = 0.0 if full else max(self._linger, _BEHIND if lane.in_flight else 0.0)
        self._schedule(self._loop.time() + wait if wait else 0.0)

    def _lane(self, at: TopicPartition) -> Lane:
        lane = self._lanes.get(at)
        if lane is None:
            lane = self._lanes[at] = Lane(at)
        return lane

    def append_batch(self, at: TopicPartition, builder: BatchBuilder) -> asyncio.Future[int]:
        """Send a batch that is filled already; its future gives the offset of its first record."""
        whole = self._loop.create_future()
        self._put_in(at, builder).whole = whole
        return whole

    def append_together(self, at: TopicPartition, builder: BatchBuilder, together: Together) -> None:
        """Send a batch that is filled already, as one of several."""
        self._put_in(at, builder).together = together
        together.one_more()

    def _put_in(self, at: TopicPartition, builder: BatchBuilder) -> Batch:
        lane = self._lane(at)
        batch = Batch(at, builder.compression, self._loop.time() + self._delivery_timeout)
        batch.builder = builder
        lane.queue.append(batch)
        self._busy[at] = lane
        self._memory.take(builder.size)
        self.wake()
        return batch

    # Waiting for the end

    async def flush(self) -> None:
        """Wait until everything that was appended before is answered for good; failures are told elsewhere."""
        self._flushing += 1
        until = self._loop.time() + self._delivery_timeout
        try:
            while any(first.deadline <= until for lane in self._busy.values() if (first := lane.first) is not None):
                self.wake()
                settled = self._loop.create_future()
                self._waiting.append(settled)
                await settled
        finally:
            self._flushing -= 1

    def abandon(self, error: ClientError, unanswered: ClientError | None = None) -> bool:
        """Drop what is not on the wire; true if something was dropped, or is out, that the broker may have.

        `unanswered`: what is told of records that are on the wire, if their answer does not come.
        """
        uncertain = False
        for lane in list(self._busy.values()):
            while lane.queue:
                self._drop(lane.queue.popleft(), error)
            for batch in list(lane.in_flight):
                uncertain = True
                if batch.on_wire:
                    batch.abandoned = unanswered or error
                else:
                    lane.in_flight.remove(batch)
                    self._drop(batch, error)
            self._settle(lane)
        return uncertain

    def _drop(self, batch: Batch, error: ClientError) -> None:
        self._memory.give_back(batch.builder.size)
        batch.fail(error, reported=True)

    def _settle(self, lane: Lane) -> None:
        """A batch has ended; its lane may have become idle."""
        if lane.is_idle:
            self._busy.pop(lane.at, None)
        waiting, self._waiting = self._waiting, []
        for waiter in waiting:
            if not waiter.done():
                waiter.set_result(None)

    async def close(self) -> None:
        if self._scheduled is not None:
            self._scheduled.cancel()
        self._routes.close()
        self.abandon(
            ClosedError("the producer was closed before the record was sent: flush() first"),
            ClosedError("the producer was closed before the answer came: whether the record was written is not known"),
        )

    # Sending

    def wake(self) -> None:
        """Look for something to send, after what runs now."""
        self._schedule(0.0)

    def _look_in(self, pause: float) -> None:
        self._schedule(self._loop.time() + pause)

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
        lanes = list(self._busy.values())
        for lane in lanes:
            self._expire(lane, now)
            if identity is None and (oldest := lane.oldest) is not None:
                self._schedule(oldest.deadline)
        while identity is not None and lanes:
            lanes = self._send_to_each(lanes, identity, now)

    def _send_to_each(self, lanes: Sequence[Lane], identity: ProducerIdAndEpoch, now: float) -> list[Lane]:
        """Send a batch to each of these partitions that may have one now; to which one was sent."""
        by_node: dict[int, list[Lane]] = {}
        for lane in lanes:
            if self._is_due(lane, identity, now):
                node = self._routes.leader(lane.at)
                if node is not None:
                    by_node.setdefault(node, []).append(lane)
        sent: list[Lane] = []
        for node, due in by_node.items():
            connection = self._routes.connection(node)
            if connection is None:
                continue
            for portion in portions((lane for lane in due if lane.may_use(connection)), self._largest_request):
                if self._requests[connection] >= self._max_in_flight:
                    break  # the next answer lets it go
                self._send(connection, portion, identity)
                sent += portion
        return sent

    def _expire(self, lane: Lane, now: float) -> None:
        """Fail what has waited for too long."""
        while (batch := lane.oldest) is not None and now >= batch.deadline:
            if lane.queue and batch is lane.queue[0]:
                lane.queue.popleft()
                self._failed(lane, batch, Outcome.ABORTABLE, batch.too_late(), is_spent=False)
            else:
                self._refused(lane, batch, Outcome.ABORTABLE, batch.too_late(), is_spent=True)

    def _is_due(self, lane: Lane, identity: ProducerIdAndEpoch, now: float) -> bool:
        following = lane.next(identity, self._max_in_flight)
        if following is Next.NOTHING:
            return False
        if following is Next.AGAIN:
            if lane.retry_at is not None and lane.retry_at > now:
                self._schedule(lane.retry_at)
                return False
            return True
        batch = lane.queue[0]
        if not self._flushing and len(lane.queue) == 1 and batch.builder.size < self._batch_bytes:
            wait = max(self._linger, _BEHIND if lane.in_flight else 0.0)
            due = batch.deadline - self._delivery_timeout + wait
            if wait and due > now:
                self._schedule(due)
                return False
        if not self._rules.admits(lane.at):
            self._schedule(batch.deadline)
            return False
        return True

    def _fail_lanes(self, what: object, error: ClientError) -> None:
        """Nothing can be sent to a topic, or to the node that leads a partition."""
        for lane in list(self._busy.values()):
            if what in (lane.at.topic, self._routes.leader(lane.at)):
                if lane.in_flight and not lane.is_on_wire:
                    batch = lane.in_flight[0]
                    self._refused(lane, batch, Outcome.ABORTABLE, error, is_spent=batch.in_doubt)
                while lane.queue:
                    self._failed(lane, lane.queue.popleft(), Outcome.ABORTABLE, error, is_spent=False)

    def _send(self, connection: Connection, lanes: list[Lane], identity: ProducerIdAndEpoch) -> None:
        rules = self._rules
        transactional = rules.transactional_id is not None
        sent = [(lane, lane.take(identity, connection, transactional)) for lane in lanes]
        request = ProduceRequest(
            transactional_id=rules.transactional_id,
            acks=_ALL,
            timeout_ms=self._cluster.request_timeout_ms,
            topic_data=topic_data(batch for _, batch in sent),
        )
        least, most = rules.versions()
        try:
            answer = connection.request(request, connection.version_of(ProduceRequest, most, least))
        except Exception as error:
            # Also where it cannot be encoded: nobody may wait for its answer.
            for lane, batch in sent:
                batch.on_wire = False
                refused = error if isinstance(error, ClientError) else ClientError(f"it cannot be sent: {error!r}")
                self._refused(lane, batch, Outcome.FATAL, refused, is_spent=batch.in_doubt)
            return
        self._requests[connection] += 1
        answer.add_done_callback(partial(self._answered, connection, sent))

    # Answers

    def _answered(
        self, connection: Connection, sent: list[tuple[Lane, Batch]], answer: asyncio.Future[ProduceResponse]
    ) -> None:
        self._requests[connection] -= 1
        if not self._requests[connection]:
            del self._requests[connection]
        if answer.cancelled():
            return
        lost = answer.exception()
        found: dict[TopicPartition, PartitionProduceResponse] = {}
        if lost is not None:
            self._cluster.topics.clear()
        else:
            found = {
                TopicPartition(topic.name, part.index): part
                for topic in answer.result().responses
                for part in topic.partition_responses
            }
        for lane, batch in sent:
            batch.on_wire = False
            part = found.get(lane.at)
            if part is None:
                self._again(lane, batch, in_doubt=True)
            else:
                self._judge(lane, batch, part)
            self._release_stranded(lane)
        if self._busy:
            self.wake()

    def _judge(self, lane: Lane, batch: Batch, answer: PartitionProduceResponse) -> None:
        error = ErrorCode(answer.error_code)
        is_behind = batch.is_stranded or batch is not lane.in_flight[0]
        verdict = verdict_of(error, is_behind=is_behind, can_be_split=batch.can_be_split)
        if verdict is Verdict.WRITTEN:
            lane.acknowledged(batch)
            self._memory.give_back(batch.builder.size)
            batch.succeed(answer.base_offset, answer.log_append_time_ms)
            self._settle(lane)
        elif verdict is Verdict.AGAIN:
            if error in LEADER_MOVED:
                self._cluster.forget_topic(lane.at.topic)
            self._again(lane, batch, in_doubt=error in MAYBE_WRITTEN)
        elif verdict is Verdict.SPLIT:
            # A topic may take less than `batch_bytes`.
            halves = lane.split(batch, self._rules.transactional_id is not None)
            self._memory.take(sum(half.builder.size for half in halves) - batch.builder.size)
        else:
            refused = BrokerError(answer.error_code, batch.refused(answer.error_message or error.name))
            self._refused(lane, batch, outcome_of("Produce", error), refused, is_spent=batch.in_doubt)

    def _again(self, lane: Lane, batch: Batch, *, in_doubt: bool) -> None:
        """Send a batch once more, unless its transaction is being aborted.

        `in_doubt`: this try may have written it, whatever is answered to the next one.
        """
        batch.in_doubt = batch.in_doubt or in_doubt
        if batch.abandoned:
            lane.in_flight.remove(batch)
            self._drop(batch, batch.abandoned)
            self._settle(lane)
            return
        if lane.retry_at is None or batch is lane.in_flight[0]:
            pause = _PAUSES[min(batch.tries, len(_PAUSES)) - 1]
            lane.retry_at = self._loop.time() + pause * (0.8 + 0.4 * self._cluster.runtime.random.random())
        self._schedule(lane.retry_at)

    def _refused(self, lane: Lane, batch: Batch, outcome: Outcome, error: ClientError, *, is_spent: bool) -> None:
        """A batch in flight failed for good."""
        by_itself = isinstance(error, BrokerError) and error.code in RECORDS_REFUSED and not is_spent
        is_spent = lane.give_up(batch, is_spent=is_spent, others_fail=not by_itself)
        self._failed(lane, batch, outcome, error, is_spent=is_spent)
        self._release_stranded(lane)

    def _release_stranded(self, lane: Lane) -> None:
        """Those that were stranded by another one fail or follow, when all of them are answered."""
        for batch in lane.take_stranded():
            self._failed(lane, batch, Outcome.ABORTABLE, batch.behind_a_failed_one(), is_spent=True)

    def _failed(self, lane: Lane, batch: Batch, outcome: Outcome, error: ClientError, *, is_spent: bool) -> None:
        told = self._rules.failed(batch, outcome, error, is_spent)
        self._memory.give_back(batch.builder.size)
        batch.fail(told, reported=self._rules.transactional_id is not None)
        self._settle(lane)
        self.wake()
