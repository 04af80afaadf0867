"""What one task of a write does in Spark: rows of Arrow batches in, `attempt.Attempt` for the rest, its report out."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import pairwise, repeat
from typing import Any, Final

import numpy as np
import pyarrow as pa
from pyspark import TaskContext

from fencepost.client.cluster import Cluster
from fencepost.client.security import Security
from fencepost.protocol.compression import Compression
from fencepost.protocol.records import BatchBuilder
from fencepost.protocol.types import TopicPartition
from fencepost.runtime import SystemClock
from fencepost.spark.attempt import Attempt, Plan, claim
from fencepost.spark.claims import Written

_BATCH_BYTES: Final = 512 * 1024

#: The columns of `Written`.
RESULT: Final = (
    "slot int, producer_id long, epoch int, rows long, topic string, partition int, records long, "
    "first_offset long, last_offset long"
)


@dataclass(frozen=True)
class Task:
    """The function of mapInArrow that writes what it is given."""

    bootstrap_servers: str
    security: Security
    plan: Plan

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Write the rows of one Spark partition; a row for each topic-partition of what was written."""
        context = TaskContext.get()
        assert context is not None, "this runs in a Spark task"
        loop = asyncio.new_event_loop()
        try:
            written = loop.run_until_complete(self._write(context.partitionId(), context.attemptNumber(), batches))
        finally:
            loop.close()
        yield pa.RecordBatch.from_pylist([found._asdict() for found in written], schema=_RESULT_SCHEMA)

    async def _write(self, slot: int, attempt_number: int, batches: Iterator[pa.RecordBatch]) -> list[Written]:
        cluster = Cluster(self.bootstrap_servers, client_id=f"fencepost-spark-slot-{slot}", security=self.security)
        try:
            attempt = await claim(cluster, self.plan, slot, attempt_number)
            try:
                rows = await _send(attempt, self.plan, batches)
                return await attempt.finish(rows)
            finally:
                await attempt.close()
        finally:
            await cluster.close()


async def _send(attempt: Attempt, plan: Plan, batches: Iterator[pa.RecordBatch]) -> int:
    """Hand all rows over; how many there were."""
    places, codec = targets(plan.counts), plan.compression
    building: dict[int, BatchBuilder] = {}
    rows = 0
    for batch in batches:
        rows += batch.num_rows
        for target in _fill(building, batch, codec):
            await attempt.write(places[target], building.pop(target))
        await asyncio.sleep(0)  # let answers in
    for target in list(building):
        await attempt.write(places[target], building.pop(target))
    return rows


def _fill(building: dict[int, BatchBuilder], batch: pa.RecordBatch, codec: Compression) -> Iterator[int]:
    """Put the rows into the batches of their targets; a target whenever its batch is full, and is to be taken out."""
    if "timestamp" in batch.schema.names or "headers" in batch.schema.names:
        for target, key, value, timestamp, headers in _rows(batch):
            builder = building.get(target)
            if builder is None:
                builder = building[target] = BatchBuilder(codec)
            builder.append(timestamp, key, value, headers)
            if builder.size >= _BATCH_BYTES:
                yield target
        return
    now = SystemClock().now()
    for target, keys, values in _by_target(batch):
        at = 0
        while at < len(keys):
            builder = building.setdefault(target, BatchBuilder(codec))
            at += builder.extend(now, keys[at:] if at else keys, values[at:] if at else values, _BATCH_BYTES)
            if builder.size >= _BATCH_BYTES:
                yield target


def targets(counts: Mapping[str, int]) -> list[TopicPartition]:
    """Every topic-partition that may be written to; a row carries its place in this list."""
    return [TopicPartition(topic, number) for topic in sorted(counts) for number in range(counts[topic])]


_RESULT_SCHEMA: Final = pa.schema(
    [
        ("slot", pa.int32()),
        ("producer_id", pa.int64()),
        ("epoch", pa.int32()),
        ("rows", pa.int64()),
        ("topic", pa.string()),
        ("partition", pa.int32()),
        ("records", pa.int64()),
        ("first_offset", pa.int64()),
        ("last_offset", pa.int64()),
    ]
)


def _by_target(batch: pa.RecordBatch) -> Iterator[tuple[int, list[bytes | None], list[bytes | None]]]:
    """Target, keys and values of the rows of each target, in their order."""
    targets = batch.column("target").to_numpy(zero_copy_only=False)
    order = np.argsort(targets, kind="stable")
    sorted_targets = targets[order]
    starts = [0, *(np.flatnonzero(np.diff(sorted_targets)) + 1).tolist(), len(order)]
    for start, stop in pairwise(starts):
        if start < stop:
            rows = batch if stop - start == batch.num_rows else batch.take(pa.array(order[start:stop]))
            yield int(sorted_targets[start]), rows.column("key").to_pylist(), rows.column("value").to_pylist()


def _rows(batch: pa.RecordBatch) -> Iterator[tuple[int, bytes | None, bytes | None, int, Any]]:
    """Target, key, value, timestamp and headers of each row."""
    count, names = batch.num_rows, batch.schema.names
    targets, keys, values = (batch.column(name).to_pylist() for name in ("target", "key", "value"))
    times: Any = repeat(SystemClock().now(), count)
    if "timestamp" in names:
        milliseconds = batch.column("timestamp").cast(pa.timestamp("ms", tz="UTC"), safe=False).cast(pa.int64())
        times = milliseconds.fill_null(SystemClock().now()).to_pylist()
    headers: Any = repeat((), count)
    if "headers" in names:
        headers = [
            tuple((entry["key"], entry["value"]) for entry in given) if given else ()
            for given in batch.column("headers").to_pylist()
        ]
    return zip(targets, keys, values, times, headers, strict=True)
