"""The ways in which a consumer hands records out: some at most, or all that was fetched of one partition."""

from __future__ import annotations

from typing import NamedTuple

from fencepost.client import Consumer, OffsetAndMetadata
from fencepost.client.records import ConsumerRecord
from fencepost.protocol.types import TopicPartition


class Taken(NamedTuple):
    """The records that one call handed out."""

    records: list[ConsumerRecord]
    next_offsets: dict[TopicPartition, int | OffsetAndMetadata] | None = None
    """The offsets to commit behind them, as the consumer says; None where it does not say."""


async def take(consumer: Consumer, wait_ms: float, most: int = 500, *, batches: bool) -> Taken:
    """The records that come within `wait_ms` milliseconds.  `batches`: of one partition, however many these are."""
    if not batches:
        return Taken(await consumer.poll(wait_ms, max_records=most))
    batch = await consumer.poll_batch(wait_ms)
    return Taken([]) if batch is None else Taken([*batch.records()], {batch.at: batch.next_offset})
