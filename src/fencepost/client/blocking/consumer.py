"""The consumer without asyncio."""

from __future__ import annotations

import asyncio
import logging
import re
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping
from concurrent.futures import Future
from functools import partial
from typing import Any, Self, TypeVar

from fencepost.client import consumer
from fencepost.client.blocking.face import Blocking, as_in, takes
from fencepost.client.commit_order.partition import OpenTransaction
from fencepost.client.commits import CommitCallback, Committed
from fencepost.client.interceptors import RAISED_BY_USER
from fencepost.client.lent import Lent
from fencepost.client.partition_batch import PartitionBatch
from fencepost.client.rebalance_listener import RebalanceListener
from fencepost.client.records import ConsumerRecord
from fencepost.client.subscription import SubscriptionPattern
from fencepost.client.transactional_id import ConsumerGroupMetadata, OffsetAndMetadata
from fencepost.protocol.types import TopicPartition

logger = logging.getLogger(__name__)

T = TypeVar("T")


class InThread(RebalanceListener):
    """Calls the listener of a blocking consumer in a thread, so that the listener may call the consumer."""

    def __init__(self, listener: RebalanceListener) -> None:
        self._listener = listener

    async def on_partitions_revoked(self, partitions: list[TopicPartition]) -> None:
        await asyncio.to_thread(self._listener.on_partitions_revoked, partitions)

    async def on_partitions_assigned(self, partitions: list[TopicPartition]) -> None:
        await asyncio.to_thread(self._listener.on_partitions_assigned, partitions)

    async def on_partitions_lost(self, partitions: list[TopicPartition]) -> None:
        await asyncio.to_thread(self._listener.on_partitions_lost, partitions)


class Consumer(Blocking):
    """`fencepost.client.Consumer`; takes the same arguments.

        with Consumer("payments", bootstrap_servers="127.0.0.1:9092", group_id="ledger") as consumer:
            for record in consumer:
                print(record.key, record.value)

    It is closed at the end of the block.
    """

    @takes(consumer.Consumer)
    def __init__(self, *topics: str, **options: Any) -> None:
        self._consumer = consumer.Consumer(*topics, **options)
        self._lent: Lent | None = None
        """The records that iteration hands out next; None: none are lent."""
        self._callbacks_due: deque[Callable[[], object]] = deque()
        """Callbacks of commits that have ended, for the caller's own thread: they may call the consumer."""
        super().__init__(self._consumer)

    def close(self, timeout_ms: float | None = None) -> None:
        """Commit (with auto_commit), leave the group, end the connections, and call the callbacks of commits.

        Nothing the second time.  `timeout_ms`: after so many milliseconds what is left of it is given up.
        """
        try:
            super().close(timeout_ms)
        finally:
            self._tell()

    def _tell(self) -> None:
        while self._callbacks_due:
            try:
                self._callbacks_due.popleft()()
            except RAISED_BY_USER:
                logger.exception("a callback of commit_async() failed")

    @as_in(consumer.Consumer.subscribe)
    def subscribe(
        self,
        *topics: str,
        pattern: str | re.Pattern[str] | SubscriptionPattern | None = None,
        listener: RebalanceListener | None = None,
    ) -> None:
        threaded = None if listener is None else InThread(listener)
        self._portal.call(_in_the_loop(partial(self._consumer.subscribe, *topics, pattern=pattern, listener=threaded)))

    @as_in(consumer.Consumer.assign)
    def assign(self, partitions: Iterable[TopicPartition]) -> None:
        self._portal.call(_in_the_loop(partial(self._consumer.assign, partitions)))

    @as_in(consumer.Consumer.unsubscribe)
    def unsubscribe(self) -> None:
        self._portal.call(self._consumer.unsubscribe())

    @as_in(consumer.Consumer.assignment)
    def assignment(self) -> list[TopicPartition]:
        return self._portal.call(_in_the_loop(self._consumer.assignment))

    @as_in(consumer.Consumer.subscription)
    def subscription(self) -> list[str]:
        return self._portal.call(_in_the_loop(self._consumer.subscription))

    @as_in(consumer.Consumer.topics)
    def topics(self) -> list[str]:
        return self._portal.call(self._consumer.topics())

    @as_in(consumer.Consumer.partitions_for_topic)
    def partitions_for_topic(self, topic: str) -> list[int]:
        return self._portal.call(self._consumer.partitions_for_topic(topic))

    @as_in(consumer.Consumer.group_metadata)
    def group_metadata(self) -> ConsumerGroupMetadata:
        return self._portal.call(_in_the_loop(self._consumer.group_metadata))

    @as_in(consumer.Consumer.poll)
    def poll(self, timeout_ms: float = 1000, max_records: int = 500) -> list[ConsumerRecord]:
        self._tell()
        return self._portal.call(self._consumer.poll(timeout_ms, max_records), self._take_back)

    @as_in(consumer.Consumer.poll_batch)
    def poll_batch(self, timeout_ms: float = 1000) -> PartitionBatch | None:
        self._tell()
        return self._portal.call(self._consumer.poll_batch(timeout_ms), self._take_back)

    @as_in(consumer.Consumer.batches)
    def batches(self) -> Iterator[PartitionBatch]:
        while True:
            batch = self.poll_batch()
            if batch is not None:
                yield batch

    def __iter__(self) -> Self:
        return self

    def __next__(self) -> ConsumerRecord:
        if self._lent is not None and not self._callbacks_due:
            record = self._lent.next(self._portal.time())
            if record is not None:
                return record
        self._tell()
        record, self._lent = self._portal.call(self._next_and_more(), self._take_back)
        return record

    async def _next_and_more(self) -> tuple[ConsumerRecord, Lent | None]:
        fetcher = self._consumer._fetcher
        fetcher.settle()
        record = await self._consumer.__anext__()
        partition = fetcher.followed.get(TopicPartition(record.topic, record.partition))
        return record, fetcher.lending.lend(partition, record, asyncio.get_running_loop().time())

    def _take_back(self, _: object) -> None:
        """Hand records out again by the next call, if they came after the caller was interrupted."""
        self._consumer._fetcher.take_back()

    @as_in(consumer.Consumer.commit)
    def commit(self, offsets: Mapping[TopicPartition, int | OffsetAndMetadata] | None = None) -> None:
        try:
            self._portal.call(self._consumer.commit(offsets))
        finally:
            self._tell()

    @as_in(consumer.Consumer.commit_async)
    def commit_async(
        self,
        offsets: Mapping[TopicPartition, int | OffsetAndMetadata] | None = None,
        callback: CommitCallback | None = None,
    ) -> Future[Committed]:
        return self._portal.call(self._begin_commit(offsets, callback))

    async def _begin_commit(
        self, offsets: Mapping[TopicPartition, int | OffsetAndMetadata] | None, callback: CommitCallback | None
    ) -> Future[Committed]:
        done: Future[Committed] = Future()

        def on_complete(positions: Committed, error: Exception | None) -> None:
            if callback is not None:
                self._callbacks_due.append(partial(callback, positions, error))
            elif error is not None:
                logger.warning("positions were not committed: %s", error)
            if done.set_running_or_notify_cancel():
                done.set_result(positions) if error is None else done.set_exception(error)

        self._consumer.commit_async(offsets, on_complete)
        return done

    @as_in(consumer.Consumer.committed)
    def committed(self, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, OffsetAndMetadata | None]:
        return self._portal.call(self._consumer.committed(partitions))

    @as_in(consumer.Consumer.position)
    def position(self, at: TopicPartition) -> int:
        return self._portal.call(_in_the_loop(partial(self._consumer.position, at)))

    @as_in(consumer.Consumer.next_offsets)
    def next_offsets(self) -> dict[TopicPartition, OffsetAndMetadata]:
        return self._portal.call(_in_the_loop(self._consumer.next_offsets))

    @as_in(consumer.Consumer.open_transactions)
    def open_transactions(self) -> list[OpenTransaction]:
        return self._portal.call(_in_the_loop(self._consumer.open_transactions))

    @as_in(consumer.Consumer.seek)
    def seek(self, at: TopicPartition, offset: int | OffsetAndMetadata) -> None:
        self._portal.call(_in_the_loop(partial(self._consumer.seek, at, offset)))

    @as_in(consumer.Consumer.seek_to_beginning)
    def seek_to_beginning(self, partitions: Iterable[TopicPartition] | None = None) -> None:
        self._portal.call(self._consumer.seek_to_beginning(partitions))

    @as_in(consumer.Consumer.seek_to_end)
    def seek_to_end(self, partitions: Iterable[TopicPartition] | None = None) -> None:
        self._portal.call(self._consumer.seek_to_end(partitions))

    @as_in(consumer.Consumer.lag)
    def lag(self, partitions: Iterable[TopicPartition] | None = None) -> dict[TopicPartition, int]:
        return self._portal.call(self._consumer.lag(partitions))

    @as_in(consumer.Consumer.seek_to_committed)
    def seek_to_committed(self, otherwise: Mapping[TopicPartition, int] | None = None) -> None:
        self._portal.call(_in_the_loop(partial(self._consumer.seek_to_committed, otherwise)))

    @as_in(consumer.Consumer.pause)
    def pause(self, partitions: Iterable[TopicPartition]) -> None:
        self._portal.call(_in_the_loop(partial(self._consumer.pause, partitions)))

    @as_in(consumer.Consumer.resume)
    def resume(self, partitions: Iterable[TopicPartition]) -> None:
        self._portal.call(_in_the_loop(partial(self._consumer.resume, partitions)))

    @as_in(consumer.Consumer.paused)
    def paused(self) -> list[TopicPartition]:
        return self._portal.call(_in_the_loop(self._consumer.paused))

    @as_in(consumer.Consumer.beginning_offsets)
    def beginning_offsets(
        self, partitions: Iterable[TopicPartition], timeout_ms: float | None = None
    ) -> dict[TopicPartition, int]:
        return self._portal.call(self._consumer.beginning_offsets(partitions, timeout_ms))

    @as_in(consumer.Consumer.end_offsets)
    def end_offsets(
        self, partitions: Iterable[TopicPartition], timeout_ms: float | None = None
    ) -> dict[TopicPartition, int]:
        return self._portal.call(self._consumer.end_offsets(partitions, timeout_ms))

    @as_in(consumer.Consumer.offsets_for_times)
    def offsets_for_times(self, times: Mapping[TopicPartition, int]) -> dict[TopicPartition, tuple[int, int] | None]:
        return self._portal.call(self._consumer.offsets_for_times(times))


async def _in_the_loop(call: Callable[[], T]) -> T:
    return call()
