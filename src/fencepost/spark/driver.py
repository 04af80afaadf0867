"""The driver's side of an exactly-once write: one micro-batch is one transaction.

    take over the application's id  ->  read the progress record  ->  tasks write under one (producer id, epoch)
    ->  check claims and counts     ->  progress record and positions into the same transaction  ->  EndTxn

Whatever goes wrong on the way ends in an abort and a new epoch.  Then the progress record says whether the commit was
carried out all the same, since its answer may have been lost; if not, the batch is run again.  A driver that was
interrupted, or could not bring a failed batch to an end, takes over anew before it writes again.

Knows nothing of Spark: `sink` has it run tasks there.
"""

from __future__ import annotations

import logging
from collections.abc import Coroutine, Mapping, Sequence
from enum import Enum
from typing import Any, Final, Protocol, TypeVar

from fencepost.client.admin import describe_transactions
from fencepost.client.cluster import Cluster, Deadline
from fencepost.client.errors import (
    BrokerError,
    ClientError,
    ConnectionLostError,
    ProducerFencedError,
    TransactionAbortableError,
    UnreachableError,
)
from fencepost.client.shared_transaction import SharedTransaction, Ticket
from fencepost.client.transaction_errors import fenced_error
from fencepost.client.transactional_id import ConsumerGroupMetadata, TransactionalId
from fencepost.protocol.compression import Compression
from fencepost.protocol.errors import ErrorCode
from fencepost.protocol.records import BatchBuilder
from fencepost.protocol.types import NO_PRODUCER, ProducerIdAndEpoch
from fencepost.spark import progress
from fencepost.spark.attempt import BATCH_BYTES, Plan, RowError, batch_bytes
from fencepost.spark.claims import Slots, Written, refusal, slot_name
from fencepost.spark.committed import Verdict, judge
from fencepost.spark.group_positions import beyond, group_offsets, positions_of, topics_of
from fencepost.spark.progress import Progress, read_progress
from fencepost.spark.report import Course, Report
from fencepost.spark.telling_line import telling_line
from fencepost.spark.topic_configs import topic_configs
from fencepost.spark.topic_lookups import look_up_anew

logger = logging.getLogger(__name__)

T = TypeVar("T")

_POSITIONS_WITHIN_MS: Final = 10_000


class Step(Enum):
    """The steps of a micro-batch that `watch` is called with."""

    WRITTEN = "all tasks are done, nothing is committed"
    COMMITTED = "the transaction is committed, Spark does not know yet"
    REPEATED = "an attempt at the batch failed, it is run again"
    SKIPPED = "the batch was committed before"


class WriteFailed(Exception):
    """A micro-batch could not be written, and was not; the message says why."""


class WriteCancelled(Exception):
    """The job of a micro-batch was cancelled, as by `query.stop()`: the driver does not try the batch again."""


class Surroundings(Protocol):
    """What a driver needs of the place where it runs: an event loop for its connections, and Spark's tasks."""

    async def call(self, work: Coroutine[Any, Any, T], /) -> T:
        """Run a coroutine that uses the connections of the cluster; its result."""
        ...

    async def run_tasks(self, plan: Plan, /) -> Sequence[Written]:
        """Have each slot's rows written by a task; the reports of the tasks.

        Raises the error of a task that failed, RowError if every attempt would fail so, and WriteCancelled if the batch
        is not to be run again.
        """
        ...

    def tell(self, step: Step, batch_id: int, /) -> None:
        """Note that a micro-batch has reached a step."""
        ...


class Driver:
    """Writes the micro-batches of one application, one at a time.

    `transaction_timeout_ms`: milliseconds after which the coordinator aborts a micro-batch.  `attempts`: how often a
    batch is tried.  `delivery_timeout_ms`: milliseconds that a record may take to be acknowledged.  `resume`: a query
    that begins where the last committed batch ended goes on for the one that wrote it.  `accept_gap`: rows between the
    last committed batch and the next one are left out.
    """

    def __init__(
        self,
        cluster: Cluster,
        application_id: str,
        topics: Sequence[str],
        *,
        transaction_timeout_ms: int,
        attempts: int,
        compression: Compression = Compression.NONE,
        delivery_timeout_ms: float = 120_000,
        resume: bool = False,
        accept_gap: bool = False,
    ) -> None:
        self._cluster = cluster
        self._id = TransactionalId(cluster, application_id)
        self._topics = topics
        self._timeout_ms = transaction_timeout_ms
        self._attempts = attempts
        self._compression = compression
        self._delivery_timeout_ms = delivery_timeout_ms
        self._resume = resume
        self._accept_gap = accept_gap
        self._counts: dict[str, int] = {}
        self._topic_ids: dict[str, str] = {}
        """Name -> id of the topics that are written to, when the tasks were given their places."""
        self._batch_bytes = BATCH_BYTES
        self._progress: Progress | None = None
        self.producer_id_and_epoch = NO_PRODUCER
        """Producer id and epoch of the transaction that is open, or is the next."""
        self._is_fresh = False
        """Whether no task was ever given this epoch."""
        self._is_settled = False
        """Whether the last committed batch is known, and no transaction is open."""
        self._is_fenced = False
        self._course = Course(cluster.runtime.clock)
        """The measures of the batch that is written."""
        self.report: Report | None = None
        """The figures of the micro-batch that was written last; None: none was."""

    @property
    def application_id(self) -> str:
        return self._id.name

    async def cluster_id(self) -> str:
        """The id of the cluster that is written to; empty where it has none."""
        if not self._cluster.cluster_id:
            await self._look_up([], self._cluster.deadline("looking up the cluster"))
        return self._cluster.cluster_id

    # A micro-batch

    async def write(self, batch: Progress, slots: int, new_query: bool, around: Surroundings) -> bool:
        """Write a micro-batch, unless it was committed before; whether it was written.  `batch` is its record.

        `slots`: how many tasks write, at most.  `new_query`: another query than that of the last batch is no mistake.
        Raises WriteFailed, WriteCancelled, and ProducerFencedError for good once another driver has taken over.
        """
        if self._is_fenced:
            raise fenced_error(self.application_id)
        self._course = course = Course(self._cluster.runtime.clock)
        try:
            if not self._is_settled:
                await around.call(self.take_over(batch, new_query))
            if self._was_committed(self._progress, batch, new_query, Verdict.REFUSE, Verdict.MISSES):
                around.tell(Step.SKIPPED, batch.batch_id)
                return False
            if new_query:
                batch = batch.after(self._progress)
            self._is_settled = False
            failures = await self._try(batch, slots, around, course)
        except ProducerFencedError as error:
            self._is_fenced = True
            late = self._overdue()
            if late and not self._tv2:
                raise ProducerFencedError(f"{error}. Or nobody has: {late}, and start the query again") from error
            raise
        if failures is None:
            self._progress, self.report = batch, course.report(batch.batch_id)
        self._is_settled = True  # last: who is interrupted before it asks anew what was committed
        if failures is None:
            logger.info("application %s: %s", self._id.name, self.report)
            around.tell(Step.COMMITTED, batch.batch_id)
            return True
        raise WriteFailed(
            f"batch {batch.batch_id} of application {self.application_id!r} was tried {len(failures)} times and "
            f"nothing of it is committed. What went wrong: {'; '.join(dict.fromkeys(failures))}"
        )

    async def _try(self, batch: Progress, slots: int, around: Surroundings, course: Course) -> list[str] | None:
        """Try a batch `attempts` times: None if it is committed, else the messages of the failures, all aborted."""
        failures: list[str] = []
        for _ in range(self._attempts):
            course.attempt()
            try:
                plan = await around.call(self.begin(slots))
                course.done("begin")
                written = await around.run_tasks(plan)
                course.wrote(written)
                around.tell(Step.WRITTEN, batch.batch_id)
                await around.call(self.commit(plan, written, batch))
            except ProducerFencedError:
                raise
            except WriteCancelled:
                await around.call(self._end_the_epoch())
                raise
            except Exception as error:
                course.done("what failed")
                late = self._overdue()
                failures.append(f"{type(error).__name__}: {telling_line(error)}{late and f' ({late})'}")
                logger.warning("application %s: batch %d failed: %s", self._id.name, batch.batch_id, failures[-1])
                is_committed = await around.call(self.settle(batch))
                course.done("abort")
                if not is_committed and isinstance(error, RowError):
                    return failures
                if not is_committed:
                    around.tell(Step.REPEATED, batch.batch_id)
                    continue
            course.done("commit")
            return None
        return failures

    def _overdue(self) -> str:
        """A sentence if the attempt at a batch took longer than its transaction may be open; else empty."""
        return overdue(self._course.age_ms(), self._timeout_ms)

    def _was_committed(self, last: Progress | None, batch: Progress, new_query: bool, *refused: Verdict) -> bool:
        """Whether the batch was committed before.  Raises WriteFailed for one of the `refused` verdicts on it."""
        judgement = judge(self.application_id, last, batch, new_query, self._resume, self._accept_gap)
        if judgement.verdict in refused:
            raise WriteFailed(judgement.reason)
        return judgement.verdict is Verdict.SKIP

    # The steps of it

    async def take_over(self, batch: Progress, new_query: bool) -> None:
        """Take the application's id over: an older driver is fenced, a transaction that it left open is aborted.

        Unless `batch` is to be refused, or was committed before: then nobody is disturbed, since the healthy driver may
        be another one.  What is missing is not known before: the last batch may be committed, its marker on its way.
        """
        cluster = self._cluster
        await progress.ensure_topic(cluster)
        await self._count_partitions()
        self._progress = await read_progress(cluster, self.application_id)
        if self._was_committed(self._progress, batch, new_query, Verdict.REFUSE):
            return
        self.producer_id_and_epoch = await self._id.init(self._timeout_ms)
        # An older driver may have committed in between; from now on none does.
        self._progress = await read_progress(cluster, self.application_id)
        if self._progress is None and self._accept_gap:
            await self._refuse_what_was_committed(batch)
        await self._limit_batches()
        self._is_fresh = self._is_settled = True

    async def _refuse_what_was_committed(self, batch: Progress) -> None:
        """Raises WriteFailed where there is no record, and the group's positions say that the batch was committed."""
        topics = sorted(topics_of(batch.source_starts))
        there = await self._look_up(topics, self._cluster.deadline("looking up topics")) if topics else {}
        starts, ends = (
            group_offsets(each, self._cluster.cluster_id, there) for each in (batch.source_starts, batch.source_offsets)
        )
        began = dict.fromkeys(ends, 0) | {at: position.offset for at, position in starts.items()}
        reason = beyond(
            self.application_id, batch, began, await positions_of(self._cluster, self.application_id, began)
        )
        if reason is not None:
            raise WriteFailed(reason)

    async def _count_partitions(self) -> None:
        """Look up the partitions of the topics that are written to.  Raises WriteFailed if a topic is not there."""
        await look_up_anew(self._cluster, self._topics)
        for topic in self._topics:
            deadline = self._cluster.deadline(f"looking up topic {topic!r}")
            try:
                view = await self._cluster.topic(topic, deadline, create=False)
            except BrokerError as error:
                if error.code != ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
                    raise
                raise WriteFailed(
                    f"there is no topic {topic!r} to write to: make it first, or put its name right"
                ) from None
            self._counts[topic] = view.partition_count
            self._topic_ids[topic] = str(view.topic_id)

    async def _limit_batches(self) -> None:
        """Set the most bytes of record batches by max.message.bytes of the topics."""
        deadline = self._cluster.deadline("looking up max.message.bytes")
        limits = await topic_configs(self._cluster, self._topics, "max.message.bytes", deadline)
        self._batch_bytes = batch_bytes(map(int, limits.values()))

    async def begin(self, slots: int) -> Plan:
        """Begin a run; the plan has an epoch that no task had before, and the slots as they are before any starts."""
        await self._count_partitions()
        if not self._is_fresh:
            self.producer_id_and_epoch = await self._id.init(self._timeout_ms, self.producer_id_and_epoch)
        self._is_fresh = False
        used = max(min(slots, sum(self._counts.values())), 1)
        ticket = Ticket(self.application_id, self.producer_id_and_epoch, self._tv2)
        known = await self._describe(range(used))
        places, rest = dict(self._counts), (self._compression, self._delivery_timeout_ms, self._batch_bytes)
        return Plan(self.application_id, ticket, known, places, *rest)

    async def commit(self, plan: Plan, written: Sequence[Written], batch: Progress) -> None:
        """Commit the records of the tasks, with the progress record and the group's positions.  Raises WriteFailed."""
        reason = refusal(plan.slots, written, await self._describe(list(plan.slots)))
        if reason is not None:
            raise WriteFailed(reason)
        names = sorted({*self._topic_ids, *topics_of(batch.source_offsets)})
        there = await self._look_up(names, self._cluster.deadline("looking up topics"))
        reason = replaced(self._topic_ids, there)
        if reason is not None:
            raise WriteFailed(reason)
        writer = SharedTransaction(self._cluster, plan.ticket, delivery_timeout_ms=plan.delivery_timeout_ms)
        try:
            record = BatchBuilder()
            record.append(self._cluster.runtime.clock.now(), self.application_id.encode(), batch.encode())
            await writer.write(progress.PARTITION, record)
            await writer.finish()
            await self._commit_positions(plan.ticket.tv2, batch, there)
        finally:
            await writer.close()
        self._go_on_as(await self._id.end(self.producer_id_and_epoch, True, plan.ticket.tv2))

    async def _commit_positions(self, tv2: bool, batch: Progress, topic_ids: Mapping[str, str]) -> None:
        """Commit the sources' positions in the transaction, for the lag only: an error is logged, and not raised."""
        deadline = self._cluster.deadline("committing positions", min(self._cluster.patience_ms, _POSITIONS_WITHIN_MS))
        group = ConsumerGroupMetadata(self.application_id)
        try:
            offsets = group_offsets(batch.source_offsets, self._cluster.cluster_id, topic_ids)
            if offsets:
                if not tv2:
                    await self._id.add_offsets(self.producer_id_and_epoch, group.group_id, deadline)
                await self._id.commit_offsets(self.producer_id_and_epoch, group, offsets, tv2, deadline)
        except ClientError as error:
            logger.warning("application %s: positions of batch %d: %s", self._id.name, batch.batch_id, error)

    async def _look_up(self, names: Sequence[str], deadline: Deadline) -> dict[str, str]:
        """Name -> id of those of these topics that exist.  Raises TimedOutError."""
        while True:
            try:
                answer = await self._cluster.refresh(names)
            except (ConnectionLostError, UnreachableError) as lost:
                await deadline.pause(lost)
            else:
                return {topic.name or "": str(topic.topic_id) for topic in answer.topics if not topic.error_code}

    async def settle(self, batch: Progress) -> bool:
        """After a failed attempt, end its epoch; whether the batch is committed all the same, as with a lost answer."""
        await self._end_the_epoch()
        await self._limit_batches()  # it may have failed of a limit that was lowered
        self._progress = await read_progress(self._cluster, self.application_id)
        last = self._progress
        return last is not None and (last.query_id, last.batch_id) == (batch.query_id, batch.batch_id)

    async def _end_the_epoch(self) -> None:
        """Abort an open transaction, and take a new epoch, under which no late task can write.

        Before transaction.version 2 these are two requests: asked for a new epoch while a transaction is open, Apache
        Kafka takes one for itself, to abort with, and answers the pair that asked as fenced.  Who is late, and opens
        another transaction in between, has it aborted by the second.
        """
        try:
            ended = await self._id.end(self.producer_id_and_epoch, False, self._tv2)
        except TransactionAbortableError:
            pass  # no transaction was open, or it was timed out: a new epoch is all that is needed
        else:
            if self._tv2:
                self._go_on_as(ended)
                return
        self._go_on_as(await self._id.init(self._timeout_ms, self.producer_id_and_epoch))

    def _go_on_as(self, producer_id_and_epoch: ProducerIdAndEpoch) -> None:
        """Go on with this producer id and epoch: before transaction.version 2 the end of a transaction leaves them."""
        self._is_fresh = self._is_fresh or producer_id_and_epoch != self.producer_id_and_epoch
        self.producer_id_and_epoch = producer_id_and_epoch

    @property
    def _tv2(self) -> bool:
        return self._cluster.transaction_version >= 2

    async def _describe(self, slots: Sequence[int]) -> Slots:
        names = {slot: slot_name(self.application_id, slot) for slot in slots}
        found = await describe_transactions(self._cluster, list(names.values()))
        known: dict[int, ProducerIdAndEpoch | None] = {}
        for slot, name in names.items():
            state = found[name]
            known[slot] = None if state is None else ProducerIdAndEpoch.of(state.producer_id, state.producer_epoch)
        return known


def replaced(before: Mapping[str, str], now: Mapping[str, str]) -> str | None:
    """Why a batch must not be committed whose topics had other ids when its tasks began; None if it may be.

    Records that were written to a topic before it was deleted are gone, though they were acknowledged.
    """
    for name, topic_id in sorted(before.items()):
        if now.get(name) != topic_id:
            what = "was deleted and made anew" if name in now else "was deleted"
            return f"topic {name!r} {what} while this batch was written: records of it are gone with the old topic"
    return None


def overdue(took_ms: int, timeout_ms: int) -> str:
    """A sentence on a batch that took longer than its transaction may be open; empty if it did not."""
    if took_ms < timeout_ms:
        return ""
    return (
        f"this took {took_ms / 1000:.0f} s, and after transaction_timeout_ms={timeout_ms} a transaction is aborted: "
        "raise that, or make the batches smaller"
    )
