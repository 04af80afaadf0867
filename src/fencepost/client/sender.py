"""Sends batches to the leaders of their partitions, again until they are answered for good.

Whoever owns it decides, through its `Rules`, who writes, what may be written now, and what a failure means.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Sequence
from functools import partial
from typing import Final

from fencepost.client.alarm import Alarm
from fencepost.client.batch_ends import BatchEnds
from fencepost.client.batches import Batch, OnAcknowledged, RecordMetadata
from fencepost.client.buffer_memory import BufferMemory
from fencepost.client.cluster import Cluster
from fencepost.client.connection import Connection
from fencepost.client.deadline import Deadline
from fencepost.client.errors import ClientError, ClosedError
from fencepost.client.lanes import Lane, Next, portions, topic_data
from fencepost.client.outcomes import Outcome
from fencepost.client.producer_record import too_large
from fencepost.client.routes import Routes
from fencepost.client.rules import Rules
from fencepost.client.statistics import SendCounts
from fencepost.client.together import Together
from fencepost.protocol.compression import Compression
from fencepost.protocol.messages import ProduceRequest, ProduceResponse
from fencepost.protocol.messages.produce import PartitionProduceResponse
from fencepost.protocol.records import BatchBuilder, Headers
from fencepost.protocol.types import ProducerIdAndEpoch, TopicPartition

#: `acks`: a leader answers when all that are in sync have the batch (-1), or not at all (0).
_ALL: Final = -1
_NONE: Final = 0
#: What is said of who waited too long for it.
WAITING_FOR_ROOM: Final = "waiting for room among the records that are to be sent (buffer_bytes)"
_LARGEST_REQUEST: Final = 16 * 1024 * 1024
#: Seconds that a batch which is not full waits for more records while others of its partition are in flight: where
#: answers come sooner it is sent with the next one, where they take long it does not wait for them.
_BEHIND: Final = 0.005


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
        acks: int = _ALL,
        on_acknowledged: OnAcknowledged | None = None,
        counts: SendCounts | None = None,
        creates_topics: bool = True,
    ) -> None:
        """`max_in_flight`: requests to a node, and batches of a partition, that may be on the wire together.

        `acks`: 1, 0 or -1 (all), as Produce has it.  `on_acknowledged` is called for each record, `counts` counts
        records and requests.  `creates_topics`: as of `Routes`.
        """
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
        self._acks = acks
        self._on_acknowledged = on_acknowledged
        self._counts = counts or SendCounts()
        self._requests: Counter[Connection] = Counter()  # on the wire
        self._loop = asyncio.get_running_loop()
        self._lanes: dict[tuple[str, int], Lane] = {}
        self._busy: dict[TopicPartition, Lane] = {}  # they have something to send or on its way
        self._flushing = 0
        self._alarm = Alarm(self._loop, self._drain)
        self._expiry = Alarm(self._loop, self._expire_all)
        self._ends = BatchEnds(cluster, rules, self._busy, self._memory, self._counts, self._alarm)
        self._last: dict[int, Connection] = {}
        """Node -> the connection by which the last request was sent to it, with acks=0, which it does not answer."""
        self._routes = Routes(cluster, self._look_in, self.hindered, self._fail_lanes, creates_topics)

    # Records in

    @property
    def is_full(self) -> bool:
        return self._memory.is_full

    @property
    def buffer_used(self) -> int:
        """Bytes of the records that wait or are on their way."""
        return self._memory.used

    @property
    def unacknowledged(self) -> int:
        """The number of records that wait or are on their way."""
        return sum(lane.count for lane in list(self._busy.values()))

    async def wait_for_room(self, deadline: Deadline | None = None) -> None:
        """Wait while the buffer is full, until `deadline` (None: any time).  Raises TimedOutError."""
        while self.is_full:
            self.wake()
            await (self._memory.room() if deadline is None else deadline.within(self._memory.room()))

    def append(
        self, at: tuple[str, int], timestamp: int, key: bytes | None, value: bytes | None, headers: Headers
    ) -> tuple[asyncio.Future[RecordMetadata], bool]:
        """Put a record into the batch of its topic and partition; its future, and whether a batch is full now.

        Raises RecordTooLargeError, and TypeError, ValueError or AttributeError if these are no fields of a record.
        Nothing is changed then.
        """
        lane = self._lanes.get(at) or self._lane(at)
        future: asyncio.Future[RecordMetadata] = self._loop.create_future()
        batch = lane.queue[-1] if lane.queue and lane.queue[-1].together is None else None
        before, full = 0 if batch is None else batch.builder.size, False
        if batch is None or not batch.append(timestamp, key, value, headers, future, self._batch_bytes):
            batch = Batch(lane.at, self._compression, self._loop.time() + self._delivery_timeout, self._on_acknowledged)
            if not batch.append(timestamp, key, value, headers, future, self._max_request_size):
                raise too_large(lane.at, key, value, self._max_request_size)
            full = bool(lane.queue)
            lane.queue.append(batch)
            self._busy[lane.at] = lane
            before = 0
            self._note(lane, full=full)
        size = batch.builder.size
        self._counts.taken += 1
        self._memory.used += size - before
        if size >= self._batch_bytes:
            full = True
        if full or not self._alarm.is_set:
            self._note(lane, full=full)
        return future, full

    def _note(self, lane: Lane, *, full: bool) -> None:
        """Set the time to look for something to send, as a record has come in; `full`: a batch is full."""
        wait = 0.0 if full else self._patience(lane)
        self._alarm.set(self._loop.time() + wait if wait else 0.0)

    def _patience(self, lane: Lane) -> float:
        """Seconds that a batch which is not full waits for more records."""
        return max(self._linger, _BEHIND if lane.in_flight else 0.0)

    def _lane(self, at: tuple[str, int]) -> Lane:
        lane = self._lanes.get(at)
        if lane is None:
            known = TopicPartition(*at)
            lane = self._lanes[known] = Lane(known)
        return lane

    def append_batch(self, at: TopicPartition, builder: BatchBuilder) -> asyncio.Future[int]:
        """Send a batch that is filled already; its future gives the offset of its first record."""
        whole = self._loop.create_future()
        self._put_in(at, builder).whole = whole
        return whole

    def go_on(self, at: TopicPartition, who: ProducerIdAndEpoch, sequence: int) -> None:
        """Give the next batch for a partition this sequence number, under this producer id and epoch."""
        self._lane(at).go_on(who, sequence)

    def append_together(self, at: TopicPartition, builder: BatchBuilder, together: Together) -> None:
        """Send a batch that is filled already, as one of the batches of `together`."""
        self._put_in(at, builder).together = together
        together.one_more()

    def _put_in(self, at: TopicPartition, builder: BatchBuilder) -> Batch:
        lane = self._lane(at)
        batch = Batch(at, builder.compression, self._loop.time() + self._delivery_timeout)
        batch.builder = builder
        lane.queue.append(batch)
        self._busy[at] = lane
        self._memory.take(builder.size)
        self._counts.taken += builder.count
        self.wake()
        return batch

    # Waiting for the end

    async def flush(self) -> None:
        """Wait until every record appended before is answered for good; a failure is raised by its future, not here."""
        self._flushing += 1
        until = self._loop.time() + self._delivery_timeout
        try:
            while any(first.deadline <= until for lane in self._busy.values() if (first := lane.first) is not None):
                self.wake()
                await self._ends.next()
        finally:
            self._flushing -= 1

    def abandon(self, error: ClientError, unanswered: ClientError | None = None) -> bool:
        """Fail the records that are not on the wire with `error`; True: the broker may have some, or others are on it.

        `unanswered`: the error of records on the wire if their answer does not come (None: `error`).
        """
        uncertain = False
        for lane in list(self._busy.values()):
            while lane.queue:
                self._ends.drop(lane.queue.popleft(), error)
            for batch in list(lane.in_flight):
                uncertain = True
                if batch.on_wire:
                    batch.abandoned = unanswered or error
                else:
                    lane.in_flight.remove(batch)
                    self._ends.drop(batch, error)
            self._ends.settle(lane)
        return uncertain

    def close(self) -> None:
        """Fail the records that are left with ClosedError; nothing is sent any more."""
        self._alarm.cancel()
        self._expiry.cancel()
        self._routes.close()
        self.abandon(
            ClosedError("the producer was closed before the record was sent: flush() first"),
            ClosedError("the producer was closed before the answer came: whether the record was written is not known"),
        )

    # Sending

    def wake(self) -> None:
        """Look for batches to send in the loop's next turn."""
        self._alarm.set(0.0)

    def _look_in(self, pause: float) -> None:
        self._alarm.set(self._loop.time() + pause)

    def _drain(self) -> None:
        producer_id_and_epoch, now = self._rules.producer_id_and_epoch, self._loop.time()
        lanes = list(self._busy.values())
        for lane in lanes:
            self._expire(lane, now)
        while producer_id_and_epoch is not None and lanes:
            lanes = self._send_to_each(lanes, producer_id_and_epoch, now)

    def _send_to_each(self, lanes: Sequence[Lane], producer_id_and_epoch: ProducerIdAndEpoch, now: float) -> list[Lane]:
        """Send a batch of each of these partitions that may send one now; those of which one was sent."""
        by_node: dict[int, list[Lane]] = {}
        for lane in lanes:
            if self._is_due(lane, producer_id_and_epoch, now):
                node = self._routes.leader(lane.at)
                if node is not None:
                    by_node.setdefault(node, []).append(lane)
        sent: list[Lane] = []
        for node, due in by_node.items():
            connection = self._routes.connection(node)
            if connection is None or (self._acks == _NONE and self._has_refused(node, connection)):
                continue
            for portion in portions((lane for lane in due if lane.may_use(connection)), self._largest_request):
                if self._requests[connection] >= self._max_in_flight:
                    break  # the next answer lets it go
                self._send(connection, portion, producer_id_and_epoch)
                sent += portion
        return sent

    def _has_refused(self, node: int, connection: Connection) -> bool:
        """Whether a node ended the connection before this one: so it refuses what it does not answer.

        It may lead a partition no more.
        """
        before = self._last.get(node)
        self._last[node] = connection
        if before is None or before is connection:
            return False
        self._cluster.topics.clear()
        self.wake()
        return True

    def _expire_all(self) -> None:
        """Fail the batches past their `delivery_timeout_ms`: on the wire (their outcome is unknown) or never sent."""
        now = self._loop.time()
        for lane in list(self._busy.values()):
            for batch in [each for each in lane.in_flight if each.on_wire and not each.ended]:
                if now < batch.deadline:
                    self._expiry.set(batch.deadline)
                    break
                batch.in_doubt = True
                error = self._rules.failed(batch, Outcome.ABORTABLE, batch.too_late(), is_spent=True)
                self._ends.tell(batch, error, reported=self._rules.transactional_id is not None)
                batch.abandoned = batch.abandoned or error
            self._expire(lane, now)
        self._ends.settled()

    def _expire(self, lane: Lane, now: float) -> None:
        """Fail the batches of a partition that are past their deadline and not on the wire."""
        while (batch := lane.oldest) is not None and now >= batch.deadline:
            batch.last = batch.last or self._routes.why_not_led(lane.at)
            if lane.queue and batch is lane.queue[0]:
                lane.queue.popleft()
                self._ends.failed(lane, batch, Outcome.ABORTABLE, batch.too_late(), is_spent=False)
            else:
                self._ends.refused(lane, batch, Outcome.ABORTABLE, batch.too_late(), is_spent=True)
        if batch is not None:
            self._expiry.set(batch.deadline)  # whatever it waits for until then: a leader, a connection, its turn

    def _is_due(self, lane: Lane, producer_id_and_epoch: ProducerIdAndEpoch, now: float) -> bool:
        following = lane.next(producer_id_and_epoch, self._max_in_flight)
        if following is Next.NOTHING:
            return False
        if following is Next.AGAIN:
            if lane.retry_at is not None and lane.retry_at > now:
                self._alarm.set(lane.retry_at)
                return False
            return True
        batch = lane.queue[0]
        if not self._flushing and len(lane.queue) == 1 and batch.builder.size < self._batch_bytes:
            wait = self._patience(lane)
            due = batch.deadline - self._delivery_timeout + wait
            if wait and due > now:
                self._alarm.set(due)
                return False
        if not self._rules.admits(lane.at):
            self._alarm.set(batch.deadline)
            return False
        return True

    def hindered(self, what: object, why: str) -> None:
        """Note, for messages, why nothing can be sent now to `what`: a topic, or a node; None: to all."""
        for lane in self._busy.values():
            if what is None or what in (lane.at.topic, self._routes.known(lane.at)):
                for batch in (*lane.in_flight, *lane.queue):
                    batch.last = batch.last if batch.on_wire else why

    def _fail_lanes(self, what: object, error: ClientError) -> None:
        """Fail all batches for a topic, or for the partitions that a node leads: nothing can be sent there."""
        for lane in list(self._busy.values()):
            if what in (lane.at.topic, self._routes.leader(lane.at)):
                if lane.in_flight and not lane.is_on_wire:
                    batch = lane.in_flight[0]
                    self._ends.refused(lane, batch, Outcome.ABORTABLE, error, is_spent=batch.in_doubt)
                while lane.queue:
                    self._ends.failed(lane, lane.queue.popleft(), Outcome.ABORTABLE, error, is_spent=False)

    def _send(self, connection: Connection, lanes: list[Lane], producer_id_and_epoch: ProducerIdAndEpoch) -> None:
        rules = self._rules
        transactional = rules.transactional_id is not None
        sent = [(lane, lane.take(producer_id_and_epoch, connection, transactional)) for lane in lanes]
        request = ProduceRequest(
            transactional_id=rules.transactional_id,
            acks=self._acks,
            timeout_ms=self._cluster.request_timeout_ms,
            topic_data=topic_data(batch for _, batch in sent),
        )
        least, most = rules.versions()
        try:
            version = connection.version_of(ProduceRequest, most, least)
            if self._acks == _NONE:
                answer = connection.request(request, version, answered=False)
            else:
                answer = connection.request(request, version)
        except Exception as error:
            # Also where it cannot be encoded: nobody may wait for its answer.
            for lane, batch in sent:
                batch.on_wire = False
                refused = error if isinstance(error, ClientError) else ClientError(f"it cannot be sent: {error!r}")
                self._ends.refused(lane, batch, Outcome.FATAL, refused, is_spent=batch.in_doubt)
            return
        self._requests[connection] += 1
        self._counts.requests += 1
        self._counts.retried += sum(batch.builder.count for _, batch in sent if batch.tries > 1)
        self._expiry.set(min(batch.deadline for _, batch in sent))
        answer.add_done_callback(partial(self._answered, connection, sent, self._loop.time()))

    # Answers

    def _answered(
        self,
        connection: Connection,
        sent: list[tuple[Lane, Batch]],
        since: float,
        answer: asyncio.Future[ProduceResponse | None],
    ) -> None:
        took = self._loop.time() - since
        self._counts.answered(took)
        self._rules.answered(took)
        self._requests[connection] -= 1
        if not self._requests[connection]:
            del self._requests[connection]
        if answer.cancelled():
            return
        lost = answer.exception()
        found: dict[TopicPartition, PartitionProduceResponse] = {}
        if lost is not None:
            self._cluster.topics.clear()
        elif (produced := answer.result()) is not None:
            found = {
                TopicPartition(topic.name, part.index): part
                for topic in produced.responses
                for part in topic.partition_responses
            }
        for lane, batch in sent:
            batch.on_wire = False
            part = found.get(lane.at)
            if lost is None and self._acks == _NONE:
                self._ends.written(lane, batch, -1, -1)
            elif part is None:
                self._ends.again(lane, batch, str(lost or "it was left out of the answer"), in_doubt=True)
            else:
                self._ends.judge(lane, batch, part)
            self._ends.release_stranded(lane)
        if self._busy:
            self.wake()
