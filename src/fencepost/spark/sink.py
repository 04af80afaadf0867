"""The driver's side of an exactly-once write: one micro-batch is one transaction.

    take over the application's id  ->  read the progress record  ->  tasks write under one (producer id, epoch)
    ->  check claims and counts     ->  progress record and group offsets into the same transaction  ->  EndTxn

Whatever goes wrong on the way ends in an abort and a new epoch.  Then the progress record says whether the commit was
carried out all the same, since its answer may have been lost; if not, the batch is run again.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from fencepost.client.admin import describe_transactions
from fencepost.client.cluster import Cluster
from fencepost.client.errors import (
    ClientError,
    ProducerFencedError,
    TransactionAbortableError,
)
from fencepost.client.portal import Portal
from fencepost.client.shared_transaction import SharedTransaction, Ticket
from fencepost.client.transactional_id import ConsumerGroupMetadata, OffsetAndMetadata, TransactionalId, fenced_error
from fencepost.protocol.records import BatchBuilder
from fencepost.protocol.types import NO_PRODUCER, ProducerIdAndEpoch, TopicPartition
from fencepost.spark import progress
from fencepost.spark.progress import Progress, read_progress
from fencepost.spark.tasks import RESULT, Write, follows, slot_name

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

logger = logging.getLogger(__name__)

_LARGEST_ID: Final = 200


class Step(Enum):
    """How far a micro-batch is, for those who watch."""

    WRITTEN = "all tasks are done, nothing is committed"
    COMMITTED = "the transaction is committed, Spark does not know yet"
    REPEATED = "an attempt at the batch failed, it is run again"
    SKIPPED = "the batch was committed before"


class WriteFailed(Exception):
    """A micro-batch could not be written, and was not; the message says why."""


class _Connected(NamedTuple):
    """What a sink has while it is open."""

    portal: Portal
    cluster: Cluster
    id: TransactionalId

    @property
    def tv2(self) -> bool:
        return self.cluster.transaction_version >= 2


@dataclass
class Sink:
    """Writes micro-batches of one application.  `application_id` names it for good: across restarts, and for fencing.

    `transaction_timeout_ms` must be longer than any micro-batch takes; transaction.max.timeout.ms limits it.
    `tasks`: how many tasks write, by default as many as Spark runs at once, at most one for each topic-partition.
    `attempts`: how often a batch is tried before the query fails.
    """

    application_id: str
    bootstrap_servers: str
    topics: Sequence[str]
    transaction_timeout_ms: int = 600_000
    compression: str = "none"
    tasks: int | None = None
    attempts: int = 3
    watch: Callable[[Step, int], None] | None = None
    _connected: _Connected | None = field(default=None, init=False, repr=False)
    _identity: ProducerIdAndEpoch = field(default=NO_PRODUCER, init=False, repr=False)
    _progress: Progress | None = field(default=None, init=False, repr=False)
    _counts: dict[str, int] = field(default_factory=dict, init=False, repr=False)

    def __post_init__(self) -> None:
        if not self.application_id or len(self.application_id) > _LARGEST_ID:
            raise ValueError(f"application_id={self.application_id!r}: it must have 1 to {_LARGEST_ID} characters")
        if not self.topics:
            raise ValueError("topics is empty: name every topic that is written to")

    # Life

    def _open(self) -> _Connected:
        """Take over: an older driver is fenced, what it left open is aborted."""
        if self._connected is not None:
            return self._connected
        cluster = Cluster(self.bootstrap_servers, client_id="fencepost-spark-driver")
        portal = Portal("fencepost-spark-sink")
        connected = self._connected = _Connected(portal, cluster, TransactionalId(cluster, self.application_id))
        try:
            portal.call(self._take_over(connected))
        except BaseException:
            self.close()
            raise
        return connected

    async def _take_over(self, to: _Connected) -> None:
        await progress.ensure_topic(self.bootstrap_servers)
        for topic in self.topics:
            view = await to.cluster.topic(topic, to.cluster.deadline(f"looking up topic {topic!r}"))
            self._counts[topic] = view.partition_count
        self._identity = await to.id.init(self.transaction_timeout_ms)
        self._progress = await read_progress(to.cluster, self.application_id)

    def close(self) -> None:
        """End the connections.  An open transaction is aborted by whoever comes next."""
        connected, self._connected = self._connected, None
        if connected is not None:
            connected.portal.call(connected.cluster.close())
            connected.portal.close()

    @property
    def identity(self) -> ProducerIdAndEpoch:
        """The producer id and epoch of the next transaction; (-1, -1) before the first micro-batch."""
        return self._identity

    # A micro-batch

    def write(
        self,
        rows: DataFrame,
        batch_id: int,
        query_id: str,
        *,
        topic: str | None = None,
        source_offsets: Sequence[Any] = (),
        new_query: bool = False,
    ) -> bool:
        """Write a micro-batch, unless it was committed before; whether it was written.  Raises WriteFailed.

        `new_query`: another query than that of the last batch is no mistake.
        """
        from fencepost.spark.routing import check_columns, route

        check_columns(rows, topic)
        to = self._open()
        if self._was_committed(batch_id, query_id, new_query):
            self._tell(Step.SKIPPED, batch_id)
            return False
        slots = self._slots(rows)
        done = Progress(query_id, batch_id, list(source_offsets))
        failures: list[str] = []
        for _ in range(self.attempts):
            try:
                plan = to.portal.call(self._begin(to, slots))
                routed = route(rows, topic, self._counts, slots)
                results = [tuple(row) for row in routed.mapInArrow(plan, RESULT).collect()]
                self._tell(Step.WRITTEN, batch_id)
                to.portal.call(self._commit(to, plan, results, done))
            except ProducerFencedError:
                raise
            except Exception as error:
                failures.append(f"{type(error).__name__}: {_first_line(error)}")
                logger.warning("application %s: batch %d failed: %s", self.application_id, batch_id, failures[-1])
                if not to.portal.call(self._settle(to, done)):
                    self._tell(Step.REPEATED, batch_id)
                    continue
            self._progress = done
            self._tell(Step.COMMITTED, batch_id)
            return True
        raise WriteFailed(
            f"batch {batch_id} of application {self.application_id!r} was tried {self.attempts} times and nothing of "
            f"it is committed. What went wrong: {'; '.join(dict.fromkeys(failures))}"
        )

    def _was_committed(self, batch_id: int, query_id: str, new_query: bool) -> bool:
        last = self._progress
        if last is None or (new_query and last.query_id != query_id):
            return False
        if last.query_id != query_id:
            raise WriteFailed(
                f"the application id {self.application_id!r} belongs to another query (its last "
                f"batch was {last.batch_id}). If the checkpoint was deleted on purpose, choose a new application_id: "
                "under the old one batches would be taken for those that are committed already"
            )
        return batch_id <= last.batch_id

    def _slots(self, rows: DataFrame) -> int:
        most = sum(self._counts.values())
        return max(min(self.tasks or rows.sparkSession.sparkContext.defaultParallelism, most), 1)

    def _tell(self, step: Step, batch_id: int) -> None:
        if self.watch is not None:
            self.watch(step, batch_id)

    # The transaction

    async def _begin(self, to: _Connected, slots: int) -> Write:
        """A fresh epoch, and what the slots have before any task starts."""
        if not to.tv2:
            self._identity = await to.id.init(self.transaction_timeout_ms, self._identity)
        names = {slot: slot_name(self.application_id, slot) for slot in range(slots)}
        found = await describe_transactions(to.cluster, list(names.values()))
        known: dict[int, ProducerIdAndEpoch | None] = {}
        for slot, name in names.items():
            state = found[name]
            known[slot] = None if state is None else ProducerIdAndEpoch.of(state.producer_id, state.producer_epoch)
        ticket = Ticket(self.application_id, self._identity, to.tv2)
        return Write(self.bootstrap_servers, self.application_id, ticket, known, self._counts, self.compression)

    async def _commit(self, to: _Connected, plan: Write, results: Sequence[tuple[Any, ...]], done: Progress) -> None:
        await self._check_claims(to, plan, results)
        writer = SharedTransaction(to.cluster, plan.ticket)
        try:
            record = BatchBuilder()
            record.append(to.cluster.runtime.clock.now(), self.application_id.encode(), done.encode())
            await writer.write(progress.PARTITION, record)
            await writer.finish()
            offsets = group_offsets(done.source_offsets)
            if offsets:
                group = ConsumerGroupMetadata(self.application_id)
                if not plan.ticket.tv2:
                    await to.id.add_offsets(self._identity, group.group_id)
                await to.id.commit_offsets(self._identity, group, offsets, plan.ticket.tv2)
        finally:
            await writer.close()
        self._identity = await to.id.end(self._identity, True, plan.ticket.tv2)

    async def _check_claims(self, to: _Connected, plan: Write, results: Sequence[tuple[Any, ...]]) -> None:
        """One attempt for each slot, and no topic-partition from two of them."""
        claims: dict[int, ProducerIdAndEpoch] = {}
        owners: dict[TopicPartition, int] = {}
        for slot, producer_id, epoch, topic, partition, _ in results:
            claim = ProducerIdAndEpoch.of(producer_id, epoch)
            if claims.setdefault(slot, claim) != claim:
                raise WriteFailed(f"two attempts reported for slot {slot}")
            if topic is not None and owners.setdefault(TopicPartition(topic, partition), slot) != slot:
                raise WriteFailed(f"{topic}-{partition} was written by two tasks")
        found = await describe_transactions(to.cluster, [slot_name(self.application_id, slot) for slot in plan.slots])
        for slot, before in plan.slots.items():
            state = found[slot_name(self.application_id, slot)]
            now = None if state is None else ProducerIdAndEpoch.of(state.producer_id, state.producer_epoch)
            claim_of_slot = claims.get(slot)
            if claim_of_slot is None and now == before:
                continue  # a task without rows is not always started
            if claim_of_slot is None or now != claim_of_slot or not follows(claim_of_slot, before):
                raise WriteFailed(f"slot {slot} was claimed by more than one attempt")

    async def _settle(self, to: _Connected, done: Progress) -> bool:
        """After a failure: whether the batch is committed all the same, only the answer to that being lost."""
        await self._end_the_epoch(to)
        found = await read_progress(to.cluster, self.application_id)
        return found is not None and (found.query_id, found.batch_id) == (done.query_id, done.batch_id)

    async def _end_the_epoch(self, to: _Connected) -> None:
        """Drop what is open, and go on under an epoch in which nobody who is late can write."""
        try:
            if to.tv2:
                self._identity = await to.id.end(self._identity, False, True)
                return
        except ClientError as error:
            # No transaction was open, or it was timed out: a new epoch is all that is needed.
            if not isinstance(error, TransactionAbortableError):
                raise
        try:
            self._identity = await to.id.init(self.transaction_timeout_ms, self._identity)
        except ProducerFencedError:
            raise fenced_error(self.application_id) from None


def group_offsets(source_offsets: Sequence[Any]) -> dict[TopicPartition, OffsetAndMetadata]:
    """The offsets to commit among those of a micro-batch: those of sources that read Kafka's protocol."""
    found: dict[TopicPartition, OffsetAndMetadata] = {}
    for offsets in source_offsets:
        if not isinstance(offsets, Mapping):
            continue
        for topic, partitions in offsets.items():
            if isinstance(partitions, Mapping) and all(str(number).isdigit() for number in partitions):
                for number, offset in partitions.items():
                    if isinstance(offset, int) and offset >= 0:
                        found[TopicPartition(str(topic), int(number))] = OffsetAndMetadata(offset)
    return found


def _first_line(error: Exception) -> str:
    lines = [line for line in str(error).splitlines() if line.strip()]
    known = [line for line in lines if "Error: " in line or "Exception: " in line]
    return (known or lines or ["?"])[-1 if known else 0].strip()[:300]
