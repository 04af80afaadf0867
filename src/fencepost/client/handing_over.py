"""Hands the records of one call over to the sender, in chunks, while batches of those before are sent."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Iterator
from functools import partial
from itertools import repeat
from typing import Protocol

from fencepost.client.batches import RecordMetadata
from fencepost.client.bulk import AS_ANY, NOW, Chunk, Own, chunks, filled, filled_each, refusal
from fencepost.client.cluster import Cluster, TopicView
from fencepost.client.errors import MisuseError
from fencepost.client.interceptors import ProducerRecord
from fencepost.client.partitioner import check_place
from fencepost.client.placement import Placement
from fencepost.client.producer_record import checked_timestamp
from fencepost.client.sender import WAITING_FOR_ROOM, Sender
from fencepost.client.together import ManyMetadata, Together
from fencepost.protocol.batch import HEADER_SIZE
from fencepost.protocol.compression import Compression
from fencepost.protocol.records import BatchBuilder
from fencepost.protocol.types import TopicPartition

One = Callable[[ProducerRecord], Awaitable[asyncio.Future[RecordMetadata]]]
"""A function that sends one record, and returns the future of its metadata."""


def one_by_one(send: Callable[..., Awaitable[asyncio.Future[RecordMetadata]]]) -> One:
    """A function that sends a ProducerRecord by `send`, the method of a producer."""

    def one(record: ProducerRecord) -> Awaitable[asyncio.Future[RecordMetadata]]:
        topic, value, key, partition, timestamp, headers = record
        return send(topic, value, key=key, partition=partition, timestamp=timestamp, headers=headers)

    return one


class ArrowStream(Protocol):
    """Rows that any library of Arrow can read: tables of pyarrow, data frames of pandas and polars.

    (The Arrow PyCapsule interface.)
    """

    def __arrow_c_stream__(self, requested_schema: object | None = None) -> object: ...


def follow(record: asyncio.Future[RecordMetadata], together: Together) -> None:
    """Count `record`, which was sent by itself, as one of the records of a call."""

    def ended(record: asyncio.Future[RecordMetadata]) -> None:
        error = record.exception()
        if isinstance(error, Exception):
            together.failed(error, reported=False)
        else:
            topic, partition, offset, _ = record.result()
            together.written(TopicPartition(topic, partition), offset, 1)

    together.one_more()
    record.add_done_callback(ended)


class HandingOver:
    """Hands the records of one producer over to their partitions.

    `check` returns the sender, or raises why no record can be sent now; sizes are in bytes.
    """

    def __init__(
        self,
        cluster: Cluster,
        placement: Placement,
        *,
        check: Callable[[], Awaitable[Sender]],
        note_send: Callable[[], None],
        compression: Compression,
        batch_bytes: int,
        buffer_bytes: int,
        max_request_size: int,
    ) -> None:
        self._cluster = cluster
        self._placement = placement
        self._check = check
        self._note_send = note_send
        self._compression = compression
        self._batch_bytes = batch_bytes
        self._chunk_bytes = min(batch_bytes, buffer_bytes)
        self._max_request_size = max_request_size

    async def all_of(
        self,
        topic: str,
        values: Iterable[bytes | None],
        keys: Iterable[bytes | None] | None,
        partition: int | None,
        timestamp: int | None,
        one: One | None = None,
    ) -> asyncio.Future[ManyMetadata]:
        """Put all values, with their keys, into batches; a future of the result.  `one`: sends each of them by itself.

        What this raises, as `Producer.send_many` says, has a note of how many records were handed over.
        """
        return await self._all(partial(self._taken, values, keys), topic, partition, timestamp, one)

    async def rows_of(
        self, topic: str, rows: ArrowStream, partition: int | None, timestamp: int | None, one: One | None = None
    ) -> asyncio.Future[ManyMetadata]:
        """As `all_of`, with the rows of an Arrow table, all of which are looked at before one is put into a batch."""
        look = partial(self._looked_at, topic, rows, partition, timestamp)
        return await self._all(look, topic, partition, timestamp, one)

    async def _taken(self, values: Iterable[bytes | None], keys: Iterable[bytes | None] | None) -> Iterator[Chunk]:
        return chunks(values, keys, self._chunk_bytes, self._max_request_size - HEADER_SIZE)

    async def _looked_at(
        self, topic: str, rows: ArrowStream, partition: int | None, timestamp: int | None
    ) -> Iterator[Chunk]:
        try:
            from fencepost.client.arrow_rows import Rows
        except ImportError as missing:
            raise MisuseError(
                f"send_arrow() needs pyarrow and numpy ({missing}): install fencepost[arrow], or use send_many()"
            ) from missing
        given = [name for name, said in (("partition", partition), ("timestamp", timestamp)) if said is not None]
        looked_at = Rows(topic, rows, self._max_request_size, given)
        if looked_at.largest_partition >= 0:
            view = self._cluster.topics.get(topic)
            if view is None or looked_at.largest_partition not in view.leaders:
                await self._placement.looked_up(topic, looked_at.largest_partition)
        return looked_at.chunks(self._chunk_bytes)

    async def _all(
        self,
        look: Callable[[], Awaitable[Iterator[Chunk]]],
        topic: str,
        partition: int | None,
        timestamp: int | None,
        one: One | None,
    ) -> asyncio.Future[ManyMetadata]:
        together, handed = Together(), 0
        try:
            await self._check()
            check_place(topic, partition)
            for chunk in await look():
                if one is None:
                    await self._hand_over(topic, chunk, partition, timestamp, together)
                    handed += len(chunk.values)
                else:
                    for record in _records(topic, chunk, partition, timestamp):
                        follow(await one(record), together)
                        handed += 1
                if chunk.refused is not None:
                    raise refusal(topic, handed, chunk.refused, self._max_request_size)
                await asyncio.sleep(0)  # let answers in
        except BaseException as error:
            error.add_note(f"{handed} records were handed over.")
            together.result.add_done_callback(lambda done: done.cancelled() or done.exception())
            raise
        finally:
            together.one_less()
        return together.result

    async def _hand_over(
        self, topic: str, chunk: Chunk, partition: int | None, timestamp: int | None, together: Together
    ) -> None:
        """Hand over all records of a chunk, or none.  Raises as `check`, BrokerError, TimedOutError."""
        sender, view = await self._check(), self._cluster.topics.get(topic)
        if view is None or not (partition is None or partition in view.leaders):
            view = await self._placement.looked_up(topic, partition)
        if sender.is_full:
            await sender.wait_for_room(self._cluster.deadline(WAITING_FOR_ROOM))
        await self._check()
        now = self._cluster.runtime.clock.now() if timestamp is None else checked_timestamp(timestamp)
        for number, builder in self._batches(view, chunk, partition, now):
            sender.append_together(TopicPartition(topic, number), builder, together)
        if chunk.values:
            self._note_send()

    def _batches(
        self, view: TopicView, chunk: Chunk, partition: int | None, now: int
    ) -> Iterable[tuple[int, BatchBuilder]]:
        if chunk.own is not None:
            numbers = self._placement.partitioner.numbers(view, chunk, partition)
            return [*filled_each(chunk, numbers, now, self._compression, self._batch_bytes)]
        return (
            (number, builder)
            for number, (keys, values) in self._placement.partitioner.spread(view, chunk, partition).items()
            for builder in filled(keys, values, chunk.largest, now, self._compression, self._batch_bytes)
        )


def _records(topic: str, chunk: Chunk, partition: int | None, timestamp: int | None) -> Iterator[ProducerRecord]:
    nothing: Own = AS_ANY, NOW, ()
    for key, value, (number, time, headers) in zip(
        chunk.keys, chunk.values, chunk.own or repeat(nothing), strict=False
    ):
        place, stamped = partition if number == AS_ANY else number, timestamp if time == NOW else time
        yield ProducerRecord(topic, value, key, place, stamped, headers)
