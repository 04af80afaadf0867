"""What one task of a write does: claim its slot, then write its partitions under the shared transaction.

A claim is InitProducerId on the slot's own transactional id, which only ever counts up.  Two attempts at one slot, even
ones that know nothing of each other, cannot both get the number that is next, and only who gets it may write.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import pairwise, repeat
from typing import Any, Final

import numpy as np
import pyarrow as pa
from pyspark import TaskContext

from fencepost.client.cluster import Cluster
from fencepost.client.shared_transaction import SharedTransaction, Ticket
from fencepost.client.transactional_id import TransactionalId
from fencepost.protocol.compression import Compression
from fencepost.protocol.records import BatchBuilder
from fencepost.protocol.types import LAST_CLIENT_EPOCH, ProducerIdAndEpoch, TopicPartition
from fencepost.runtime import SystemClock

logger = logging.getLogger(__name__)

_BATCH_BYTES: Final = 512 * 1024
_CLAIM_TIMEOUT_MS: Final = 60_000

RESULT: Final = "slot int, producer_id long, epoch int, topic string, partition int, records long"


class PoisonedError(Exception):
    """Another attempt has claimed this slot: what was written under this epoch cannot be told apart any more."""


def follows(claimed: ProducerIdAndEpoch, known: ProducerIdAndEpoch | None) -> bool:
    """Whether a claim is exactly the next one after what the slot had (None: never claimed)."""
    if known is None:
        return claimed.producer_epoch == 0
    if claimed.producer_id == known.producer_id:
        return claimed.producer_epoch == known.producer_epoch + 1
    return known.producer_epoch >= LAST_CLIENT_EPOCH and claimed.producer_epoch == 0


@dataclass(frozen=True)
class Write:
    """What the driver tells every task of one write."""

    bootstrap_servers: str
    application_id: str
    ticket: Ticket
    slots: Mapping[int, ProducerIdAndEpoch | None]
    """What each slot had before the tasks started."""
    counts: Mapping[str, int]
    """Partitions of each topic."""
    compression: str = "none"

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Run as the function of mapInArrow."""
        context = TaskContext.get()
        assert context is not None, "this runs in a Spark task"
        if context.attemptNumber() > 0:
            raise PoisonedError("a second attempt of a task does not write: the driver runs the batch again")
        loop = asyncio.new_event_loop()
        try:
            written = loop.run_until_complete(self._write(context.partitionId(), batches))
        finally:
            loop.close()
        yield pa.RecordBatch.from_pylist(written, schema=_RESULT_SCHEMA)

    async def _write(self, slot: int, batches: Iterator[pa.RecordBatch]) -> list[dict[str, Any]]:
        cluster = Cluster(self.bootstrap_servers, client_id=f"fencepost-spark-slot-{slot}")
        writer: SharedTransaction | None = None
        try:
            claimed = await TransactionalId(cluster, slot_name(self.application_id, slot)).init(_CLAIM_TIMEOUT_MS)
            if not follows(claimed, self.slots.get(slot)):
                raise PoisonedError(f"slot {slot} of {self.application_id} was claimed by another attempt")
            codec = Compression[self.compression.upper()]
            writer = SharedTransaction(cluster, self.ticket, compression=codec)
            counted = await self._send(writer, codec, batches)
            await writer.finish()
        finally:
            if writer is not None:
                await writer.close()
            await cluster.close()
        results = [
            {"topic": at.topic, "partition": at.partition, "records": count} for at, count in sorted(counted.items())
        ]
        claim = {"slot": slot, "producer_id": claimed.producer_id, "epoch": claimed.producer_epoch}
        return [claim | found for found in results or [{"topic": None, "partition": None, "records": 0}]]

    async def _send(
        self, writer: SharedTransaction, codec: Compression, batches: Iterator[pa.RecordBatch]
    ) -> dict[TopicPartition, int]:
        places = targets(self.counts)
        building: dict[int, BatchBuilder] = {}
        counted: dict[TopicPartition, int] = {}

        async def send(target: int) -> None:
            builder, at = building.pop(target), places[target]
            counted[at] = counted.get(at, 0) + builder.count
            await writer.write(at, builder)

        for batch in batches:
            if "timestamp" in batch.schema.names or "headers" in batch.schema.names:
                for target, key, value, timestamp, headers in _rows(batch):
                    builder = building.get(target)
                    if builder is None:
                        builder = building[target] = BatchBuilder(codec)
                    builder.append(timestamp, key, value, headers)
                    if builder.size >= _BATCH_BYTES:
                        await send(target)
            else:
                now = SystemClock().now()
                for target, keys, values in _by_target(batch):
                    at = 0
                    while at < len(keys):
                        builder = building.setdefault(target, BatchBuilder(codec))
                        at += builder.extend(
                            now, keys[at:] if at else keys, values[at:] if at else values, _BATCH_BYTES
                        )
                        if builder.size >= _BATCH_BYTES:
                            await send(target)
            await asyncio.sleep(0)  # let answers in
        for target in list(building):
            await send(target)
        return counted


def targets(counts: Mapping[str, int]) -> list[TopicPartition]:
    """Every topic-partition that may be written to; a row carries its place in this list."""
    return [TopicPartition(topic, number) for topic in sorted(counts) for number in range(counts[topic])]


def slot_name(application_id: str, slot: int) -> str:
    """The transactional id on which a slot is claimed."""
    return f"{application_id}/slot/{slot}"


_RESULT_SCHEMA: Final = pa.schema(
    [
        ("slot", pa.int32()),
        ("producer_id", pa.int64()),
        ("epoch", pa.int32()),
        ("topic", pa.string()),
        ("partition", pa.int32()),
        ("records", pa.int64()),
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
