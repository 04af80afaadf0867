"""The function of one task of a write in Spark: it takes record batches, writes them, and gives its report."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise
from typing import Final

import numpy as np
import pyarrow as pa
from pyspark import TaskContext

from fencepost.client.cluster import Cluster
from fencepost.client.security import Security
from fencepost.protocol.batch import read_header
from fencepost.protocol.records import BatchBuilder
from fencepost.spark.attempt import Attempt, Plan, claim
from fencepost.spark.claims import Written
from fencepost.spark.encoding import RECORD_GROWS, receipt_in, targets, together
from fencepost.spark.ledger import Turns
from fencepost.spark.ledger_file import open_ledger
from fencepost.spark.worker import set_aside_what_is_loaded

#: The columns of `Written`.
RESULT: Final = (
    "slot int, producer_id long, epoch int, rows long, topic string, partition int, records long, "
    "first_offset long, last_offset long, size long"
)


_WAITING: Final = 64 * 1024 * 1024
"""Bytes of small batches that a task keeps to put them together, at most, of all its topic-partitions."""


@dataclass(frozen=True)
class Task:
    """The function of mapInArrow that writes the record batches of one Spark partition."""

    bootstrap_servers: str
    security: Security
    plan: Plan
    ledger: str | None = None
    """The path of the ledger, if batches are sent before the shuffle; None: none are."""

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Write the rows of one Spark partition; a row of `Written` for each topic-partition that it wrote to."""
        set_aside_what_is_loaded()
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
                if self.ledger is None:
                    return await attempt.finish(await _send(attempt, self.plan, batches))
                with Turns(open_ledger(self.ledger), attempt, targets(self.plan.counts)) as turns:
                    return await turns.finish(await _send(attempt, self.plan, batches, turns))
            finally:
                await attempt.close()
        finally:
            await cluster.close()


async def _send(attempt: Attempt, plan: Plan, batches: Iterator[pa.RecordBatch], turns: Turns | None = None) -> int:
    """Hand all records over; the number of rows, with those that were sent ahead.  Raises as `Attempt.write`."""
    places, codec = targets(plan.counts), plan.compression
    waiting: dict[int, list[bytes]] = {}
    sizes: Counter[int] = Counter()
    """Target -> bytes of its batches that wait, once they are put together."""
    rows = total = 0

    async def write(target: int, records: BatchBuilder) -> None:
        if turns is None:
            await attempt.write(places[target], records)
        else:
            await turns.write(target, records)

    for arrow in batches:
        for target, whole, batch in _shuffled(arrow):
            if whole is None:
                receipt = receipt_in(batch)
                attempt.note(places[target], receipt)
                rows += receipt.records
                continue
            count = read_header(batch).record_count
            rows += count
            size = len(batch) + count * RECORD_GROWS
            if target in waiting and (whole or sizes[target] + size > plan.batch_bytes):
                await write(target, together(waiting.pop(target), codec))
                total -= sizes.pop(target)
            if whole:
                await write(target, together([batch], codec))
            else:
                # A copy: what waits is little of the Arrow batch that it came in, which would stay with it.
                waiting.setdefault(target, []).append(bytes(batch))
                sizes[target] += size
                total += size
            while total > _WAITING:  # what waits longest for more is written first
                first = next(iter(waiting))
                await write(first, together(waiting.pop(first), codec))
                total -= sizes.pop(first)
        await asyncio.sleep(0)  # let answers in
    for target, others in waiting.items():
        await write(target, together(others, codec))
    return rows


def _shuffled(arrow: pa.RecordBatch) -> Iterator[tuple[int, bool | None, memoryview]]:
    """The rows of `encoding.ENCODED`; the last column without a copy of its bytes."""
    targets_, wholes, batches = (arrow.column(name) for name in arrow.schema.names)
    batches = batches.cast(pa.large_binary())  # as some sessions have it
    _, places, data = batches.buffers()
    ends = np.frombuffer(places, np.int64)[batches.offset :][: len(batches) + 1].tolist()
    whole_data = memoryview(data if data is not None else b"")
    for target, whole, (start, stop) in zip(targets_.to_pylist(), wholes.to_pylist(), pairwise(ends), strict=True):
        yield target, whole, whole_data[start:stop]


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
        ("size", pa.int64()),
    ]
)
