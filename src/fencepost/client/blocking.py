"""The clients without asyncio: every call returns when it is done.

Each object has an event loop in a thread of its own; use one object per thread, or take turns.
"""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Callable, Coroutine, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from typing import Any, Concatenate, ParamSpec, Self, TypeVar

from fencepost.client import admin, consumer, exactly_once, producer
from fencepost.client.admin import TransactionDescription
from fencepost.client.batches import Headers, RecordMetadata
from fencepost.client.commit_order.partition import OpenTransaction
from fencepost.client.errors import ClosedError
from fencepost.client.portal import Portal
from fencepost.client.producer_elsewhere import ProducerElsewhere
from fencepost.client.records import ConsumerRecord
from fencepost.client.transaction_loop import Handed, State, TransactionLoop
from fencepost.client.transactional_id import ConsumerGroupMetadata, OffsetAndMetadata
from fencepost.protocol.types import TopicPartition

T = TypeVar("T")
_Method = TypeVar("_Method", bound=Callable[..., Any])
_Parameters = ParamSpec("_Parameters")
_Constructor = Callable[Concatenate[Any, _Parameters], None]


def _as_in(original: Callable[..., Any]) -> Callable[[_Method], _Method]:
    """Gives a method the docstring of the asyncio one, which it waits for: there is one text for both."""

    def documented(method: _Method) -> _Method:
        method.__doc__ = original.__doc__
        return method

    return documented


def _takes(original: Callable[_Parameters, Any]) -> Callable[[Callable[..., None]], _Constructor[_Parameters]]:
    """Gives a constructor the parameters of the asyncio client, whom it hands them to: a wrong one is a type error."""

    def typed(constructor: Callable[..., None]) -> _Constructor[_Parameters]:
        own, its = inspect.signature(constructor), inspect.signature(original)
        itself = next(iter(own.parameters.values()))
        constructor.__signature__ = own.replace(  # type: ignore[attr-defined]
            parameters=[itself, *its.parameters.values()]
        )
        return constructor

    return typed


class Delivery:
    """A record on its way."""

    def __init__(self, portal: Portal, future: asyncio.Future[RecordMetadata]) -> None:
        self._portal = portal
        self._future = future

    def result(self) -> RecordMetadata:
        """Wait for its acknowledgement.

        Raises DeliveryError if it was not delivered within `delivery_timeout_ms`, TransactionAbortedError if it was not
        sent because its transaction was aborted, BrokerError if the broker refused it.
        """
        if self._future.done():
            return self._future.result()  # also after the client was closed
        return self._portal.call(self._wait())

    async def _wait(self) -> RecordMetadata:
        return await self._future


class _Blocking:
    """An asyncio client that runs in a thread of its own."""

    def __init__(self, close: Callable[[float | None], Coroutine[Any, Any, None]]) -> None:
        self._close = close
        self._portal = Portal()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()

    def close(self, timeout_ms: float | None = None) -> None:
        """Send or commit what is waiting, abort an open transaction, leave the group, end the connections.

        Nothing the second time.  `timeout_ms`: after so many milliseconds what is left of it is given up.
        """
        try:
            with suppress(ClosedError):
                self._portal.call(self._close(timeout_ms))
        finally:
            self._portal.close()


class Producer(_Blocking):
    """`fencepost.client.Producer`; takes the same arguments.

        with Producer("127.0.0.1:9092", transactional_id="payments") as payments:
            payments.init_transactions()
            with payments.transaction():
                payments.send("debits", b"-10", key=b"alice")

    It is closed at the end of the block.
    """

    @_takes(producer.Producer)
    def __init__(self, *given: Any, **options: Any) -> None:
        self._producer = producer.Producer(*given, **options)
        super().__init__(self._producer.close)
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
    ) -> Delivery:
        """Hand over a record; `result()` of what is returned waits for its acknowledgement, or raises what went wrong.

        Without a partition the key's hash chooses it, as every Kafka client does; without a key either, any one.
        `timestamp` is in milliseconds since 1970, now by default.  Waits while `buffer_bytes` are waiting to be sent.
        Raises MisuseError outside a transaction, TransactionError if the transaction has failed, BrokerError if there
        is no such partition.
        """
        sending = self._producer.send(topic, value, key=key, partition=partition, timestamp=timestamp, headers=headers)
        return Delivery(self._portal, self._portal.call(sending))

    @_as_in(producer.Producer.flush)
    def flush(self, timeout_ms: float | None = None) -> None:
        self._portal.call(self._producer.flush(timeout_ms))

    @_as_in(producer.Producer.init_transactions)
    def init_transactions(self) -> None:
        self._portal.call(self._producer.init_transactions())

    @_as_in(producer.Producer.begin_transaction)
    def begin_transaction(self) -> None:
        self._portal.call(self._producer.begin_transaction())

    @_as_in(producer.Producer.commit_transaction)
    def commit_transaction(self) -> None:
        self._portal.call(self._producer.commit_transaction())

    @_as_in(producer.Producer.abort_transaction)
    def abort_transaction(self) -> None:
        self._portal.call(self._producer.abort_transaction())

    @_as_in(producer.Producer.transaction)
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

    @_as_in(producer.Producer.send_offsets_to_transaction)
    def send_offsets_to_transaction(
        self, offsets: Mapping[TopicPartition, int | OffsetAndMetadata], group: str | ConsumerGroupMetadata
    ) -> None:
        self._portal.call(self._producer.send_offsets_to_transaction(offsets, group))


async def _in_the_loop(call: Callable[[], T]) -> T:
    return call()


async def _leave(entered: Any, error: BaseException | None) -> None:
    await entered.__aexit__(
        None if error is None else type(error), error, None if error is None else error.__traceback__
    )


class Consumer(_Blocking):
    """`fencepost.client.Consumer`; takes the same arguments.

        with Consumer("payments", bootstrap_servers="127.0.0.1:9092", group_id="ledger") as consumer:
            for record in consumer:
                print(record.key, record.value)

    It is closed at the end of the block.
    """

    @_takes(consumer.Consumer)
    def __init__(self, *topics: str, **options: Any) -> None:
        self._consumer = consumer.Consumer(*topics, **options)
        super().__init__(self._consumer.close)

    @_as_in(consumer.Consumer.subscribe)
    def subscribe(self, *topics: str) -> None:
        self._consumer.subscribe(*topics)

    @_as_in(consumer.Consumer.assign)
    def assign(self, partitions: Iterable[TopicPartition]) -> None:
        self._consumer.assign(partitions)

    @_as_in(consumer.Consumer.assignment)
    def assignment(self) -> list[TopicPartition]:
        return self._consumer.assignment()

    @_as_in(consumer.Consumer.group_metadata)
    def group_metadata(self) -> ConsumerGroupMetadata:
        return self._consumer.group_metadata()

    @_as_in(consumer.Consumer.poll)
    def poll(self, timeout_ms: float = 1000, max_records: int = 500) -> list[ConsumerRecord]:
        return self._portal.call(self._consumer.poll(timeout_ms, max_records))

    def __iter__(self) -> Self:
        return self

    def __next__(self) -> ConsumerRecord:
        return self._portal.call(self._consumer.__anext__())

    @_as_in(consumer.Consumer.commit)
    def commit(self, offsets: Mapping[TopicPartition, int | OffsetAndMetadata] | None = None) -> None:
        self._portal.call(self._consumer.commit(offsets))

    @_as_in(consumer.Consumer.committed)
    def committed(self, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, OffsetAndMetadata | None]:
        return self._portal.call(self._consumer.committed(partitions))

    @_as_in(consumer.Consumer.position)
    def position(self, at: TopicPartition) -> int:
        return self._consumer.position(at)

    @_as_in(consumer.Consumer.next_offsets)
    def next_offsets(self) -> dict[TopicPartition, OffsetAndMetadata]:
        return self._consumer.next_offsets()

    @_as_in(consumer.Consumer.open_transactions)
    def open_transactions(self) -> list[OpenTransaction]:
        return self._portal.call(_in_the_loop(self._consumer.open_transactions))

    @_as_in(consumer.Consumer.seek)
    def seek(self, at: TopicPartition, offset: int | OffsetAndMetadata) -> None:
        self._consumer.seek(at, offset)

    @_as_in(consumer.Consumer.seek_to_committed)
    def seek_to_committed(self, otherwise: Mapping[TopicPartition, int] | None = None) -> None:
        self._consumer.seek_to_committed(otherwise)

    @_as_in(consumer.Consumer.pause)
    def pause(self, partitions: Iterable[TopicPartition]) -> None:
        self._consumer.pause(partitions)

    @_as_in(consumer.Consumer.resume)
    def resume(self, partitions: Iterable[TopicPartition]) -> None:
        self._consumer.resume(partitions)

    @_as_in(consumer.Consumer.beginning_offsets)
    def beginning_offsets(self, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, int]:
        return self._portal.call(self._consumer.beginning_offsets(partitions))

    @_as_in(consumer.Consumer.end_offsets)
    def end_offsets(self, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, int]:
        return self._portal.call(self._consumer.end_offsets(partitions))

    @_as_in(consumer.Consumer.offsets_for_times)
    def offsets_for_times(self, times: Mapping[TopicPartition, int]) -> dict[TopicPartition, tuple[int, int] | None]:
        return self._portal.call(self._consumer.offsets_for_times(times))


class ExactlyOnce:
    """`fencepost.client.ExactlyOnce`; takes the same arguments.

        for transaction in ExactlyOnce(consumer, producer):
            with transaction:
                for record in transaction.records:
                    transaction.send("ledger", record.value, key=record.key)

    A block that takes too long is not interrupted here: the broker aborts its transaction, which the commit is told.
    """

    def __init__(
        self,
        consumer: Consumer,
        producer: Producer,
        *,
        max_records: int = 500,
        linger_ms: float = 0,
        retry_timeout_ms: float = 300_000,
    ) -> None:
        self._producer = producer
        self._portal = consumer._portal
        self._loop = TransactionLoop(
            consumer._consumer,
            ProducerElsewhere(producer._producer, producer._portal),
            max_records=max_records,
            linger_ms=linger_ms,
            retry_timeout_ms=retry_timeout_ms,
        )

    @_as_in(exactly_once.ExactlyOnce.stop)
    def stop(self) -> None:
        self._loop.stop()

    def __iter__(self) -> Self:
        return self

    def __next__(self) -> Transaction:
        handed = self._portal.call(self._loop.next())
        if handed is None:
            raise StopIteration
        return Transaction(self._loop, handed, self._portal, self._producer)


class Transaction:
    """Records, and what is written because of them.  `with` it, once."""

    def __init__(self, loop: TransactionLoop, handed: Handed, portal: Portal, producer: Producer) -> None:
        self._loop = loop
        self._handed = handed
        self._portal = portal
        self._producer = producer

    @property
    def records(self) -> Sequence[ConsumerRecord]:
        """In the order of each partition."""
        return self._handed.records

    @property
    def committed(self) -> bool:
        """Whether it is known that it was committed.  False after the block: its records are handed out again."""
        return self._handed.state is State.COMMITTED

    def send(
        self,
        topic: str,
        value: bytes | None,
        *,
        key: bytes | None = None,
        partition: int | None = None,
        timestamp: int | None = None,
        headers: Headers = (),
    ) -> Delivery:
        """Write a record in the transaction, as `Producer.send` does.

        Its result need not be awaited: the commit does.  Raises MisuseError outside of the block.
        """
        exactly_once.check_open(self._handed)
        return self._producer.send(topic, value, key=key, partition=partition, timestamp=timestamp, headers=headers)

    def __enter__(self) -> Self:
        self._portal.call(self._loop.begin(self._handed))
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, traceback: object) -> bool:
        return self._portal.call(self._loop.end(self._handed, error))


class Admin(_Blocking):
    """`fencepost.client.Admin`; takes the same arguments.

    with Admin("127.0.0.1:9092") as admin:
        admin.create_topic("payments", partitions=6)
    """

    @_takes(admin.Admin)
    def __init__(self, *given: Any, **options: Any) -> None:
        self._admin = admin.Admin(*given, **options)
        super().__init__(self._admin.close)

    @_as_in(admin.Admin.topics)
    def topics(self) -> list[str]:
        return self._portal.call(self._admin.topics())

    @_as_in(admin.Admin.partitions)
    def partitions(self, topic: str) -> int:
        return self._portal.call(self._admin.partitions(topic))

    @_as_in(admin.Admin.create_topic)
    def create_topic(
        self,
        name: str,
        *,
        partitions: int = -1,
        replication_factor: int = -1,
        config: Mapping[str, str] | None = None,
        exist_ok: bool = False,
    ) -> None:
        creating = self._admin.create_topic(
            name, partitions=partitions, replication_factor=replication_factor, config=config, exist_ok=exist_ok
        )
        self._portal.call(creating)

    @_as_in(admin.Admin.delete_topic)
    def delete_topic(self, name: str) -> None:
        self._portal.call(self._admin.delete_topic(name))

    @_as_in(admin.Admin.create_partitions)
    def create_partitions(self, topic: str, count: int) -> None:
        self._portal.call(self._admin.create_partitions(topic, count))

    @_as_in(admin.Admin.update_feature)
    def update_feature(self, feature: str, level: int) -> None:
        self._portal.call(self._admin.update_feature(feature, level))

    @_as_in(admin.Admin.describe_transaction)
    def describe_transaction(self, transactional_id: str) -> TransactionDescription | None:
        return self._portal.call(self._admin.describe_transaction(transactional_id))

    @_as_in(admin.Admin.list_transactions)
    def list_transactions(self, states: Sequence[str] = ()) -> dict[str, str]:
        return self._portal.call(self._admin.list_transactions(states))
