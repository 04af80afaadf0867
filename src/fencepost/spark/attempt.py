"""One attempt at a task: it claims its slot, then writes its topic-partitions in the shared transaction.

Knows nothing of Spark: `tasks` has it run in one.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from typing import Final, NamedTuple

from fencepost.client.cluster import Cluster
from fencepost.client.errors import ClientError
from fencepost.client.shared_transaction import SharedTransaction, Ticket
from fencepost.client.transactional_id import TransactionalId
from fencepost.protocol.compression import Compression
from fencepost.protocol.records import BatchBuilder
from fencepost.protocol.types import ProducerIdAndEpoch, TopicPartition
from fencepost.spark.advice import for_a_pipeline
from fencepost.spark.claims import Slots, Written, follows, slot_name
from fencepost.spark.topic_lookups import look_up_anew

BATCH_BYTES: Final = 512 * 1024
"""The most of a record batch that has more than one record, before compression, where the topics take as much.

Java gives memory of its own, at once and cleared, to an array of more than half a MiB (if it has less than 2 GiB).
"""
_CLAIM_TIMEOUT_MS: Final = 1
"""Milliseconds, for a transaction that is never begun; more may be above transaction.max.timeout.ms."""


SECOND_ATTEMPT: Final = "a second attempt of a task does not write: the driver runs the batch again"


class PoisonedError(Exception):
    """Another attempt may write here, too: records of this epoch cannot be told apart, and the batch is run again."""


class RowError(ValueError):
    """A row can never be written as it is, however often: the message says why."""


class Plan(NamedTuple):
    """All that the driver hands to every task of one write."""

    application_id: str
    ticket: Ticket
    slots: Slots
    """The producer id and epoch that each slot had before the tasks started."""
    counts: Mapping[str, int]
    """The number of partitions of each topic."""
    compression: Compression = Compression.NONE
    delivery_timeout_ms: float = 120_000
    batch_bytes: int = BATCH_BYTES
    """The most bytes of a record batch that has more than one record, before compression."""


def batch_bytes(limits: Iterable[int]) -> int:
    """The most bytes of a record batch with several records, for topics with these `limits` (max.message.bytes).

    Not all of it: what cannot be compressed takes some bytes more with compression than without.
    """
    return max(min((BATCH_BYTES, *(limit - limit // 8 for limit in limits))), 1)


class Receipt(NamedTuple):
    """Records of one topic-partition that are acknowledged, from `first_offset` to `last_offset` among others.

    `size`: bytes of their record batches before compression.
    """

    records: int
    first_offset: int
    last_offset: int
    size: int

    def __or__(self, other: Receipt) -> Receipt:
        """One receipt for the records of both."""
        return Receipt(
            self.records + other.records,
            min(self.first_offset, other.first_offset),
            max(self.last_offset, other.last_offset),
            self.size + other.size,
        )


class _Sent(NamedTuple):
    """A batch that was handed over: records, bytes, and where they are once they are acknowledged."""

    records: int
    size: int
    offset: asyncio.Future[int]


async def claim(cluster: Cluster, plan: Plan, slot: int, attempt_number: int) -> Attempt:
    """Claim a slot.  Raises PoisonedError if another attempt may have claimed it before: then nothing may be written.

    `attempt_number` is Spark's: 0 for the first attempt of each stage attempt.
    """
    if attempt_number > 0:
        raise PoisonedError(SECOND_ATTEMPT)
    claimed = await TransactionalId(cluster, slot_name(plan.application_id, slot)).init(_CLAIM_TIMEOUT_MS)
    if not follows(claimed, plan.slots.get(slot)):
        raise PoisonedError(f"slot {slot} of {plan.application_id} was claimed by another attempt")
    return Attempt(cluster, plan, slot, claimed)


class Sending:
    """Sends the batches of one task in the shared transaction.  `close` it."""

    def __init__(self, cluster: Cluster, plan: Plan) -> None:
        self._cluster = cluster
        self._topics = list(plan.counts)
        self._sent: dict[TopicPartition, list[_Sent]] = {}
        self._knows_topics = False
        self._writer = SharedTransaction(
            cluster, plan.ticket, compression=plan.compression, delivery_timeout_ms=plan.delivery_timeout_ms
        )

    async def write(self, at: TopicPartition, records: BatchBuilder) -> None:
        """Send a batch.  Raises the first error of this task: RowError for a record too large for its topic."""
        if not self._knows_topics:
            await look_up_anew(self._cluster, self._topics)
            self._knows_topics = True
        count, size = records.count, records.size
        with self._naming_rows():
            offset = await self._writer.write(at, records)
        self._sent.setdefault(at, []).append(_Sent(count, size, offset))

    def go_on(self, at: TopicPartition, records: int) -> None:
        """Number the next batch for a place behind the `records` that others have sent there under this epoch."""
        self._writer.go_on(at, records)

    async def acknowledged(self, at: TopicPartition) -> Receipt:
        """Wait until the batches sent to a place since the last call are acknowledged; their receipt.  As `write`."""
        sent = self._sent.pop(at)
        with self._naming_rows():
            offsets = [await each.offset for each in sent]
        return Receipt(
            records=sum(each.records for each in sent),
            first_offset=offsets[0],
            last_offset=offsets[-1] + sent[-1].records - 1,
            size=sum(each.size for each in sent),
        )

    @contextmanager
    def _naming_rows(self) -> Iterator[None]:
        try:
            yield
        except ClientError as error:
            if self._writer.record_too_large:
                raise RowError(
                    f"a row is larger by itself than its topic takes: {for_a_pipeline(str(error))}. Make the row "
                    "smaller, or raise max.message.bytes of the topic"
                ) from error
            raise

    async def close(self) -> None:
        """End the connections; nothing more is sent."""
        await self._writer.close()


class Attempt(Sending):
    """An attempt that has claimed its slot.  `close` it."""

    def __init__(self, cluster: Cluster, plan: Plan, slot: int, claimed: ProducerIdAndEpoch) -> None:
        super().__init__(cluster, plan)
        self._slot = slot
        self._claimed = claimed
        self._elsewhere: dict[TopicPartition, Receipt] = {}

    def note(self, at: TopicPartition, sent: Receipt) -> None:
        """Add records to the report of `finish` which the task that computed the rows has sent already."""
        self._elsewhere[at] = sent | self._elsewhere[at] if at in self._elsewhere else sent

    async def finish(self, rows: int) -> list[Written]:
        """Wait until every batch is acknowledged; the report.  `rows`: how many the attempt was given or told of.

        Raises as `write`.
        """
        found = self._elsewhere
        for at in list(self._sent):
            self.note(at, await self.acknowledged(at))
        claimed = self._slot, *self._claimed, rows
        return [Written(*claimed, *at, *found[at]) for at in sorted(found)] or [Written(*claimed)]
