"""A range of one partition as Arrow batches, in the columns of Spark's own Kafka source."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from typing import Any, Final

import pyarrow as pa

from fencepost.client.cluster import Cluster
from fencepost.client.errors import BrokerError, ConnectionLostError, UnreachableError
from fencepost.client.fetcher import EARLIEST, fetch_partition, list_offsets
from fencepost.client.records import visible_batches
from fencepost.protocol.errors import ErrorCode
from fencepost.protocol.records import decode_batch
from fencepost.protocol.types import Isolation, TopicPartition
from fencepost.spark.offsets import lost

_FETCH_BYTES: Final = 8 * 1024 * 1024
_ROWS: Final = 20_000

HEADERS: Final = pa.list_(pa.struct([pa.field("key", pa.string()), pa.field("value", pa.binary())]))
FIELDS: Final = {
    "key": pa.binary(),
    "value": pa.binary(),
    "topic": pa.string(),
    "partition": pa.int32(),
    "offset": pa.int64(),
    "timestamp": pa.timestamp("us", tz="UTC"),
    "timestampType": pa.int32(),
    "headers": HEADERS,
}


def read_range(
    bootstrap_servers: str,
    at: TopicPartition,
    start: int,
    end: int,
    isolation: Isolation,
    columns: list[str],
    fail_on_data_loss: bool,
) -> Iterator[pa.RecordBatch]:
    """The records in [start, end) that a reader of this isolation may see, fetched one request ahead."""
    loop = asyncio.new_event_loop()
    cluster = Cluster(bootstrap_servers, client_id="fencepost-spark-source", runtime=None)
    reader = _RangeReader(cluster, at, isolation, fail_on_data_loss)
    try:
        position = start
        following = loop.create_task(reader.fetch(position))
        while position < end:
            position, data, aborted = loop.run_until_complete(following)
            if not data:
                if position >= end:
                    break
                following = loop.create_task(reader.fetch(position))
                continue
            batches = [(n, header) for n, header, visible in visible_batches(data, aborted) if visible]
            last = _last_offset(data)
            if last + 1 < end:
                following = loop.create_task(reader.fetch(last + 1))
                loop.run_until_complete(asyncio.sleep(0))  # so that the request leaves
            yield from _arrow(data, batches, at, position, end, columns)
            position = last + 1
        following.cancel()
    finally:
        loop.run_until_complete(cluster.close())
        loop.close()


def _last_offset(data: memoryview) -> int:
    last = -1
    for _, header, _ in visible_batches(data, None):
        last = header.last_offset
    return last


class _RangeReader:
    """Fetches of one partition."""

    def __init__(self, cluster: Cluster, at: TopicPartition, isolation: Isolation, fail_on_data_loss: bool) -> None:
        self._cluster = cluster
        self._at = at
        self._isolation = isolation
        self._fail_on_data_loss = fail_on_data_loss

    async def fetch(self, position: int) -> tuple[int, memoryview, list[tuple[int, int]] | None]:
        """Where reading goes on (later than asked if records are lost), raw batches, aborted transactions."""
        cluster, at = self._cluster, self._at
        deadline = cluster.deadline(f"reading {at.topic}-{at.partition} at {position}")
        while True:
            because: object
            try:
                leader = await cluster.leader(at, deadline)
                found = await fetch_partition(cluster, leader, at, position, self._isolation, max_bytes=_FETCH_BYTES)
            except (ConnectionLostError, UnreachableError) as error:
                because = error
            else:
                error_code = ErrorCode(found.error_code)
                if error_code is ErrorCode.OFFSET_OUT_OF_RANGE:
                    first = (await list_offsets(cluster, [at], EARLIEST, self._isolation))[at][0]
                    if self._fail_on_data_loss or first <= position:
                        raise lost(at, position, first)
                    return first, memoryview(b""), None
                if error_code and not error_code.retriable:
                    raise BrokerError(error_code, f"{at.topic}-{at.partition} cannot be read at offset {position}")
                if found.records:
                    aborted = None
                    if self._isolation is Isolation.READ_COMMITTED:
                        aborted = [
                            (entry.producer_id, entry.first_offset) for entry in found.aborted_transactions or ()
                        ]
                    return position, memoryview(found.records), aborted
                because = error_code.name
            cluster.forget_topic(at.topic)
            await deadline.pause(because)


def _arrow(
    data: memoryview, batches: list[Any], at: TopicPartition, start: int, end: int, columns: list[str]
) -> Iterator[pa.RecordBatch]:
    rows: list[Any] = []
    kinds: list[int] = []
    for position, header in batches:
        found = decode_batch(data, position, header)
        if header.base_offset < start or header.last_offset >= end:
            found = [record for record in found if start <= record.offset < end]
        rows += found
        kinds += [header.attributes >> 3 & 1] * len(found)
        if len(rows) >= _ROWS:
            yield _batch(rows, kinds, at, columns)
            rows, kinds = [], []
    if rows:
        yield _batch(rows, kinds, at, columns)


def _batch(rows: list[Any], kinds: list[int], at: TopicPartition, columns: list[str]) -> pa.RecordBatch:
    offsets, timestamps, keys, values, headers = zip(*rows, strict=True)
    count = len(rows)
    made = []
    for name in columns:
        kind = FIELDS[name]
        match name:
            case "key":
                made.append(pa.array(keys, kind))
            case "value":
                made.append(pa.array(values, kind))
            case "topic":
                made.append(pa.repeat(pa.scalar(at.topic, kind), count))
            case "partition":
                made.append(pa.repeat(pa.scalar(at.partition, kind), count))
            case "offset":
                made.append(pa.array(offsets, kind))
            case "timestamp":
                made.append(pa.array(timestamps, pa.timestamp("ms", tz="UTC")).cast(kind))
            case "timestampType":
                made.append(pa.array(kinds, kind))
            case _:
                made.append(_headers(headers))
    return pa.RecordBatch.from_arrays(made, schema=pa.schema([pa.field(name, FIELDS[name]) for name in columns]))


def _headers(headers: Any) -> pa.Array:
    listed = [[{"key": name, "value": value} for name, value in given] if given else None for given in headers]
    return pa.array(listed, HEADERS)
