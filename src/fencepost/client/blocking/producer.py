"""The producer without asyncio."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from typing import Any, Self

from fencepost.client import producer
from fencepost.client.arguments import keys_or_values
from fencepost.client.batches import RecordMetadata
from fencepost.client.blocking.face import Blocking, as_in, takes
from fencepost.client.delivery import Delivery
from fencepost.client.errors import ClosedError
from fencepost.client.handing_over import ArrowStream
from fencepost.client.portal import Portal
from fencepost.client.prepared import PreparedTxnState
from fencepost.client.producer_elsewhere import ProducerElsewhere
from fencepost.client.send_queue import SendQueue
from fencepost.client.statistics import ProducerStatistics
from fencepost.client.together import ManyMetadata
from fencepost.client.transactional_id import ConsumerGroupMetadata, OffsetAndMetadata
from fencepost.protocol.records import Headers
from fencepost.protocol.types import TopicPartition


class Producer(Blocking):
    """`fencepost.client.Producer`; takes the same arguments.

        with Producer("127.0.0.1:9092", transactional_id="payments") as payments:
            payments.init_transactions()
            with payments.transaction():
                payments.send("debits", b"-10", key=b"alice")

    It is closed at the end of the block.
    """

    @takes(producer.Producer)
    def __init__(self, *given: Any, **options: Any) -> None:
        self._producer = producer.Producer(*given, **options)
        super().__init__(self._producer)
        self._elsewhere = ProducerElsewhere(self._producer, self._portal)
        """The producer as loops have it whose consumer is in another event loop; one, so that each sees the others."""
        self._queue = _queue_of(self._producer, self._portal)
        self._portal.call(self._producer.start())

    def send(
        self,
        topic: str,
        value: bytes | None,
        *,
        key: bytes | None = None,
        partition: int | None = None,
        timestamp: int | None = None,
        headers: Headers = (),
    ) -> Delivery[RecordMetadata]:
        """Hand over a record; `result()` of the Delivery waits for its acknowledgement, and raises its error.

        Without a partition the key's hash chooses it, as every Kafka client does; without a key either, any one.
        `timestamp` is in milliseconds since 1970, now by default.  Waits while `buffer_bytes` are waiting to be sent,
        and raises TimedOutError where that takes too long.
        Raises MisuseError outside a transaction, TransactionError if the transaction has failed, BrokerError if there
        is no such partition.
        """
        self._portal.check()
        if not (self._producer._intercepts or self._queue.is_full):
            placed = self._producer._sending.placed(topic, value, key, partition, timestamp, headers)
            delivery = None if placed is None else self._queue.leave(*placed)
            if delivery is not None:
                return delivery
        sending = self._producer.send(topic, value, key=key, partition=partition, timestamp=timestamp, headers=headers)
        return Delivery(self._portal, self._portal.call(sending))

    @as_in(producer.Producer.send_and_wait)
    def send_and_wait(
        self,
        topic: str,
        value: bytes | None,
        *,
        key: bytes | None = None,
        partition: int | None = None,
        timestamp: int | None = None,
        headers: Headers = (),
    ) -> RecordMetadata:
        return self._portal.call(
            self._producer.send_and_wait(
                topic, value, key=key, partition=partition, timestamp=timestamp, headers=headers
            )
        )

    @as_in(producer.Producer.send_many)
    def send_many(
        self,
        topic: str,
        values: Iterable[bytes | None],
        *,
        keys: Iterable[bytes | None] | None = None,
        partition: int | None = None,
        timestamp: int | None = None,
    ) -> Delivery[ManyMetadata]:
        # Whatever an iterable of the caller's does is done in the caller's thread.
        values = list(keys_or_values("values", values))
        keys = None if keys is None else list(keys_or_values("keys", keys))
        sending = self._producer.send_many(topic, values, keys=keys, partition=partition, timestamp=timestamp)
        return Delivery(self._portal, self._portal.call(sending))

    @as_in(producer.Producer.send_arrow)
    def send_arrow(
        self, topic: str, rows: ArrowStream, *, partition: int | None = None, timestamp: int | None = None
    ) -> Delivery[ManyMetadata]:
        sending = self._producer.send_arrow(topic, rows, partition=partition, timestamp=timestamp)
        return Delivery(self._portal, self._portal.call(sending))

    @as_in(producer.Producer.flush)
    def flush(self, timeout_ms: float | None = None) -> None:
        with suppress(ClosedError):
            self._portal.call(self._producer.flush(timeout_ms))

    @as_in(producer.Producer.partitions_for)
    def partitions_for(self, topic: str) -> list[int]:
        return self._portal.call(self._producer.partitions_for(topic))

    @as_in(producer.Producer.statistics)
    def statistics(self) -> ProducerStatistics:
        return self._producer.statistics()

    @as_in(producer.Producer.init_transactions)
    def init_transactions(self, keep_prepared: bool = False) -> None:
        self._portal.call(self._producer.init_transactions(keep_prepared))

    @as_in(producer.Producer.begin_transaction)
    def begin_transaction(self) -> None:
        self._portal.call(self._producer.begin_transaction())

    @as_in(producer.Producer.commit_transaction)
    def commit_transaction(self) -> None:
        self._portal.call(self._producer.commit_transaction())

    @as_in(producer.Producer.abort_transaction)
    def abort_transaction(self) -> None:
        self._portal.call(self._producer.abort_transaction())

    @as_in(producer.Producer.prepare_transaction)
    def prepare_transaction(self) -> PreparedTxnState:
        return self._portal.call(self._producer.prepare_transaction())

    @as_in(producer.Producer.complete_transaction)
    def complete_transaction(self, prepared: PreparedTxnState | str) -> bool:
        return self._portal.call(self._producer.complete_transaction(prepared))

    @as_in(producer.Producer.transaction)
    @contextmanager
    def transaction(self) -> Iterator[Self]:
        entered = self._producer.transaction()
        self._portal.call(entered.__aenter__())
        try:
            yield self
        except BaseException as error:
            self._portal.call(_leave(entered, error))
            raise
        self._portal.call(_leave(entered, None))

    @as_in(producer.Producer.send_offsets_to_transaction)
    def send_offsets_to_transaction(
        self, offsets: Mapping[TopicPartition, int | OffsetAndMetadata], group: str | ConsumerGroupMetadata
    ) -> None:
        self._portal.call(self._producer.send_offsets_to_transaction(offsets, group))


def _queue_of(its: producer.Producer, portal: Portal) -> SendQueue:
    """A queue for records of this producer."""
    queue = SendQueue(its._sending, portal, its._buffer_bytes)
    its._sending.take_from(queue)
    return queue


async def _leave(entered: Any, error: BaseException | None) -> None:
    await entered.__aexit__(
        None if error is None else type(error), error, None if error is None else error.__traceback__
    )
