"""A transaction that several processes write to, each to partitions of its own.

One process owns it: takes the transactional id over, hands the pair to the others, and ends it when all of them are
done.  Sequence numbers are counted by producer id, epoch and partition, so the others need to know nothing of each
other, as long as no partition is written by two of them.
"""

from __future__ import annotations

import asyncio
from typing import NamedTuple

from fencepost.client.batches import Batch
from fencepost.client.cluster import Cluster
from fencepost.client.errors import ClientError
from fencepost.client.lanes import MOST_IN_FLIGHT
from fencepost.client.outcomes import Outcome
from fencepost.client.sender import Sender
from fencepost.client.transactional_id import BEFORE_TV2, SINCE_TV2, TransactionalId
from fencepost.client.transactions import NEWEST_PRODUCE
from fencepost.protocol.batch import next_sequence
from fencepost.protocol.compression import Compression
from fencepost.protocol.errors import ErrorCode
from fencepost.protocol.records import BatchBuilder
from fencepost.protocol.types import ProducerIdAndEpoch, TopicPartition


class Ticket(NamedTuple):
    """All that a process needs to write to the transaction.  `tv2`: the cluster's transaction.version is 2 or more."""

    transactional_id: str
    producer_id_and_epoch: ProducerIdAndEpoch
    tv2: bool


class SharedTransaction:
    """The part of one process in a shared transaction, which makes no topics: the `rules.Rules` of its sender."""

    def __init__(
        self,
        cluster: Cluster,
        ticket: Ticket,
        *,
        compression: Compression = Compression.NONE,
        buffer_bytes: int = 16 * 1024 * 1024,
        delivery_timeout_ms: float = 120_000,
    ) -> None:
        self.transactional_id: str | None = ticket.transactional_id
        self._id = TransactionalId(cluster, ticket.transactional_id)
        self._ticket = ticket
        self.error: ClientError | None = None
        self.record_too_large = False
        """Whether `error` is of a record that, alone in a batch, is larger than its topic allows."""
        self._registered: dict[TopicPartition, None] = {}
        self.sender: Sender | None = Sender(
            cluster,
            self,
            linger_ms=0,
            batch_bytes=1,
            buffer_bytes=buffer_bytes,
            delivery_timeout_ms=delivery_timeout_ms,
            compression=compression,
            creates_topics=False,
            max_in_flight=MOST_IN_FLIGHT,
        )

    @property
    def producer_id_and_epoch(self) -> ProducerIdAndEpoch | None:
        return self._ticket.producer_id_and_epoch

    def versions(self) -> tuple[int, int]:
        return (SINCE_TV2["Produce"], NEWEST_PRODUCE) if self._ticket.tv2 else (3, BEFORE_TV2["Produce"])

    def admits(self, at: TopicPartition) -> bool:  # noqa: ARG002 - `write` registers before
        return True

    def answered(self, took: float) -> None:
        """Does nothing: what is sent next does not depend on how long an answer took."""

    def failed(self, batch: Batch, outcome: Outcome, error: ClientError, is_spent: bool) -> ClientError:  # noqa: ARG002
        if self.error is None:
            self.error = error
            is_too_large = getattr(error, "code", None) == ErrorCode.MESSAGE_TOO_LARGE
            self.record_too_large = is_too_large and batch.builder.count == 1
            assert self.sender is not None
            self.sender.abandon(error)
        return error

    async def write(self, at: TopicPartition, builder: BatchBuilder) -> asyncio.Future[int]:
        """Send a batch; its future gives the offset of its first record.  Raises the first error of this part."""
        assert self.sender is not None
        if not self._ticket.tv2 and at not in self._registered:
            await self._id.add_partitions(self._ticket.producer_id_and_epoch, [at])
            self._registered[at] = None
        if self.sender.is_full:
            await self.sender.wait_for_room()
        if self.error is not None:
            raise self.error
        return self.sender.append_batch(at, builder)

    def go_on(self, at: TopicPartition, records: int) -> None:
        """Give the next batch for a partition the sequence number after `records` records of this epoch.

        So partitions can be written by several processes by turns; nothing of this one may be on its way there.
        """
        assert self.sender is not None
        self.sender.go_on(at, self._ticket.producer_id_and_epoch, next_sequence(0, records))

    async def finish(self) -> None:
        """Wait until every batch is acknowledged.  Raises the first error of this part."""
        assert self.sender is not None
        await self.sender.flush()
        if self.error is not None:
            raise self.error

    async def close(self) -> None:
        assert self.sender is not None
        self.sender.close()
