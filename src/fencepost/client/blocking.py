"""The clients without asyncio: every call returns when it is done.

Each object has an event loop in a thread of its own; use one object per thread, or take turns.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, Self

from fencepost.client import admin, consumer, producer
from fencepost.client.admin import TransactionDescription
from fencepost.client.batches import Headers, RecordMetadata
from fencepost.client.portal import Portal
from fencepost.client.records import ConsumerRecord
from fencepost.client.transactional_id import ConsumerGroupMetadata, OffsetAndMetadata
from fencepost.protocol.types import TopicPartition


class Delivery:
    """A record on its way."""

    def __init__(self, portal: Portal, future: asyncio.Future[RecordMetadata]) -> None:
        self._portal = portal
        self._future = future

    def result(self) -> RecordMetadata:
        """Wait for its acknowledgement.  Raises what went wrong."""
        return self._portal.call(self._wait())

    async def _wait(self) -> RecordMetadata:
        return await self._future


class _Blocking:
    """An asyncio client that runs in a thread of its own."""

    def __init__(self, close: Callable[[], Coroutine[Any, Any, None]]) -> None:
        self._close = close
        self._portal = Portal()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()

    def close(self) -> None:
        """Send or commit what is waiting, abort an open transaction, leave the group, end the connections."""
        try:
            self._portal.call(self._close())
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

    def __init__(self, bootstrap_servers: str, **options: Any) -> None:
        self._producer = producer.Producer(bootstrap_servers, **options)
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
        sending = self._producer.send(topic, value, key=key, partition=partition, timestamp=timestamp, headers=headers)
        return Delivery(self._portal, self._portal.call(sending))

    def flush(self) -> None:
        self._portal.call(self._producer.flush())

    def init_transactions(self) -> None:
        self._portal.call(self._producer.init_transactions())

    def begin_transaction(self) -> None:
        self._portal.call(self._producer.begin_transaction())

    def commit_transaction(self) -> None:
        self._portal.call(self._producer.commit_transaction())

    def abort_transaction(self) -> None:
        self._portal.call(self._producer.abort_transaction())

    @contextmanager
    def transaction(self) -> Iterator[Self]:
        """A transaction around a block: committed at its end, aborted if it raises."""
        entered = self._producer.transaction()
        self._portal.call(entered.__aenter__())
        try:
            yield self
        except BaseException as error:
            self._portal.call(_leave(entered, error))
            raise
        self._portal.call(_leave(entered, None))

    def send_offsets_to_transaction(
        self, offsets: Mapping[TopicPartition, int | OffsetAndMetadata], group: str | ConsumerGroupMetadata
    ) -> None:
        self._portal.call(self._producer.send_offsets_to_transaction(offsets, group))


async def _leave(entered: Any, error: BaseException | None) -> None:
    await entered.__aexit__(
        None if error is None else type(error), error, None if error is None else error.__traceback__
    )


class Consumer(_Blocking):
    """`fencepost.client.Consumer`; takes the same arguments."""

    def __init__(self, *topics: str, bootstrap_servers: str, **options: Any) -> None:
        self._consumer = consumer.Consumer(*topics, bootstrap_servers=bootstrap_servers, **options)
        super().__init__(self._consumer.close)

    def subscribe(self, *topics: str) -> None:
        self._consumer.subscribe(*topics)

    def assign(self, partitions: Iterable[TopicPartition]) -> None:
        self._consumer.assign(partitions)

    def assignment(self) -> list[TopicPartition]:
        return self._consumer.assignment()

    def group_metadata(self) -> ConsumerGroupMetadata:
        return self._consumer.group_metadata()

    def poll(self, timeout_ms: float = 1000, max_records: int = 500) -> list[ConsumerRecord]:
        return self._portal.call(self._consumer.poll(timeout_ms, max_records))

    def __iter__(self) -> Self:
        return self

    def __next__(self) -> ConsumerRecord:
        return self._portal.call(self._consumer.__anext__())

    def commit(self, offsets: Mapping[TopicPartition, int | OffsetAndMetadata] | None = None) -> None:
        self._portal.call(self._consumer.commit(offsets))

    def committed(self, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, OffsetAndMetadata | None]:
        return self._portal.call(self._consumer.committed(partitions))

    def position(self, at: TopicPartition) -> int:
        return self._consumer.position(at)

    def seek(self, at: TopicPartition, offset: int) -> None:
        self._consumer.seek(at, offset)

    def beginning_offsets(self, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, int]:
        return self._portal.call(self._consumer.beginning_offsets(partitions))

    def end_offsets(self, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, int]:
        return self._portal.call(self._consumer.end_offsets(partitions))


class Admin(_Blocking):
    """`fencepost.client.Admin`; takes the same arguments."""

    def __init__(self, bootstrap_servers: str, **options: Any) -> None:
        self._admin = admin.Admin(bootstrap_servers, **options)
        super().__init__(self._admin.close)

    def topics(self) -> list[str]:
        return self._portal.call(self._admin.topics())

    def partitions(self, topic: str) -> int:
        return self._portal.call(self._admin.partitions(topic))

    def create_topic(self, name: str, **options: Any) -> None:
        self._portal.call(self._admin.create_topic(name, **options))

    def delete_topic(self, name: str) -> None:
        self._portal.call(self._admin.delete_topic(name))

    def create_partitions(self, topic: str, count: int) -> None:
        self._portal.call(self._admin.create_partitions(topic, count))

    def update_feature(self, feature: str, level: int) -> None:
        self._portal.call(self._admin.update_feature(feature, level))

    def describe_transaction(self, transactional_id: str) -> TransactionDescription | None:
        return self._portal.call(self._admin.describe_transaction(transactional_id))

    def list_transactions(self, states: Sequence[str] = ()) -> dict[str, str]:
        return self._portal.call(self._admin.list_transactions(states))
