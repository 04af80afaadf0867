"""The consumer: records of topics or partitions, alone or in a group; read_committed unless told otherwise."""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncIterator, Iterable, Mapping, Sequence
from functools import partial
from typing import Self, Unpack

from fencepost.client.arguments import offsets_at, place, places
from fencepost.client.assignment import Assignment
from fencepost.client.cluster import Cluster
from fencepost.client.commit_order.options import commit_order
from fencepost.client.commit_order.partition import OpenTransaction
from fencepost.client.commits import CommitCallback, Commits, Committed
from fencepost.client.consumer_settings import check_settings
from fencepost.client.deadline import attempt
from fencepost.client.errors import ClosedError, MisuseError
from fencepost.client.fetcher import Fetcher
from fencepost.client.forgotten import left_by_a_consumer, tell_if_forgotten
from fencepost.client.group_choice import CLASSIC, group_settings, membership
from fencepost.client.leaving import Leaving
from fencepost.client.partition_batch import PartitionBatch
from fencepost.client.positions import Positions, isolation_of
from fencepost.client.reading import Reading
from fencepost.client.rebalance_listener import RebalanceListener
from fencepost.client.records import ConsumerRecord
from fencepost.client.security import Security, SecurityOptions
from fencepost.client.subscription import Subscription, SubscriptionPattern, chosen
from fencepost.client.topic_lookups import partitions_as_of_now, topics_as_of_now
from fencepost.client.transactional_id import ConsumerGroupMetadata, OffsetAndMetadata
from fencepost.protocol.messages.list_offsets import EARLIEST, LATEST
from fencepost.protocol.types import Isolation, TopicPartition
from fencepost.runtime import Runtime


class Consumer:
    """A client that reads the records of topics, alone or as a member of a group.

        async with Consumer("payments", bootstrap_servers="127.0.0.1:9092", group_id="ledger") as consumer:
            async for record in consumer:
                print(record.key, record.value)

    With a group the partitions are shared among its members, and offsets are committed: by `commit`, by a
    producer in a transaction, or (auto_commit) every `auto_commit_interval_ms`, for records whose successors were
    asked for.  Without a group all partitions are read, from `auto_offset_reset` on.  Times are in milliseconds, sizes
    in bytes.  What cannot be done within `max_block_ms` raises TimedOutError, what the broker refuses BrokerError, a
    setting of a wrong type TypeError, one out of range ValueError.

    `partition_assignment_strategy` names how a group shares partitions out: range, roundrobin, sticky or
    cooperative-sticky, several in the order of preference (None: range, cooperative-sticky); all members must have one
    in common.  With cooperative-sticky alone a member keeps what stays its own through a rebalance.  A member that asks
    for no records for `max_poll_interval_ms` leaves the group, which is logged, and joins again when it asks.  It sends
    a heartbeat each `heartbeat_interval_ms` (None: 3000); it is dead `session_timeout_ms` (None: 45,000) after one.

    With group_protocol="consumer" the broker decides about all three, and a rebalance stops nobody (KIP-848);
    `group_remote_assignor` is its "uniform" or "range", None leaves it the choice.
    Partitions that are added are seen after `metadata_max_age_ms`; without a group they are read from their beginning.
    A topic that was deleted and made anew is read from its beginning.

    With delivery="commit_order" no open transaction holds up what others commit.  Of each partition a transaction is
    delivered, all its records in a row, when its commit is read, and a record outside transactions at once.  Until then
    transactions are kept, all together in `transaction_buffer_bytes` of memory, what has no room there in a temporary
    file in `spill_directory` (None: where the system has them).  One that is open for longer than
    `open_transaction_warning_ms` is logged as a warning, and again each time that doubles.
    """

    def __init__(
        self,
        *topics: str,
        bootstrap_servers: str,
        group_id: str | None = None,
        group_instance_id: str | None = None,
        isolation_level: str = "read_committed",
        delivery: str = "offset_order",
        transaction_buffer_bytes: int = 64 * 1024 * 1024,
        spill_directory: str | None = None,
        open_transaction_warning_ms: int = 900_000,
        auto_offset_reset: str = "earliest",
        auto_commit: bool = True,
        auto_commit_interval_ms: int = 5000,
        group_protocol: str = CLASSIC,
        group_remote_assignor: str | None = None,
        partition_assignment_strategy: str | Sequence[str] | None = None,
        session_timeout_ms: int | None = None,
        rebalance_timeout_ms: int = 300_000,
        max_poll_interval_ms: int = 300_000,
        heartbeat_interval_ms: int | None = None,
        fetch_max_wait_ms: int = 500,
        fetch_min_bytes: int = 1,
        fetch_max_bytes: int = 50 * 1024 * 1024,
        max_partition_fetch_bytes: int = 1024 * 1024,
        request_timeout_ms: int = 30_000,
        max_block_ms: int = 60_000,
        metadata_max_age_ms: int = 300_000,
        client_id: str = "fencepost-consumer",
        runtime: Runtime | None = None,
        **security: Unpack[SecurityOptions],
    ) -> None:
        settings = group_settings(locals())
        check_settings(topics, settings)
        order = commit_order(
            delivery, isolation_level, transaction_buffer_bytes, spill_directory, open_transaction_warning_ms
        )
        self._cluster = Cluster(
            bootstrap_servers,
            client_id=client_id,
            runtime=runtime,
            request_timeout_ms=request_timeout_ms,
            patience_ms=max_block_ms,
            security=Security.of_client(Consumer, security),
        )
        self._isolation = isolation_of(isolation_level) if order is None else Isolation.READ_UNCOMMITTED
        self._places = Positions(self._cluster, auto_offset_reset, self._isolation, order is not None)
        self.begins_at_beginning = auto_offset_reset == "earliest"
        """Whether `auto_offset_reset` is "earliest": a partition without a position is begun at the same one by all."""
        self._fetcher = Fetcher(
            self._cluster,
            self._isolation,
            max_wait_ms=fetch_max_wait_ms,
            min_bytes=fetch_min_bytes,
            max_bytes=fetch_max_bytes,
            max_partition_bytes=max_partition_fetch_bytes,
            order=order,
        )
        self._group = membership(self._cluster, settings)
        interval = auto_commit_interval_ms if auto_commit else None
        self._commits = Commits(self._group, self._fetcher, self._places, interval)
        self._subscription = Subscription(self._cluster, topics, metadata_max_age_ms / 1000)
        self._assignment = Assignment(
            self._subscription, self._fetcher, self._places, self._group, self._commits.before_joining
        )
        self._leaving = Leaving(self._cluster, self._assignment, self._fetcher, self._commits, self._group)
        self._reading = Reading(self._assignment, self._fetcher, self._commits, self._group, self._check_open)
        self._closing = False
        self._closed = asyncio.Event()
        named = f"consumer {client_id!r}" + (f" of group {group_id!r}" if group_id is not None else "")
        self._forgotten = tell_if_forgotten(self, partial(left_by_a_consumer, named), runtime)

    # Life

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    async def close(self, timeout_ms: float | None = None) -> None:
        """Commit (with auto_commit), leave the group, end the connections.

        A commit that is under way is waited for, also that of a `close` before this one.
        `timeout_ms`: for commit and leaving together, in milliseconds; None: `max_block_ms` and 2 seconds.  A commit
        that fails raises nothing: what is not committed is read again.  A `poll` that waits raises ClosedError.
        """
        if self._closed.is_set() or not self._cluster.home.is_here:
            return  # in a forked child: its place in the group is its parent's
        self._cluster.home.check()
        patience_ms = self._cluster.patience_ms + 2000 if timeout_ms is None else timeout_ms
        deadline = self._cluster.deadline("close()", patience_ms)
        self._forgotten.detach()
        if self._closing:
            await attempt(self._closed.wait, deadline)
            return
        self._closing = True
        self._assignment.stop()
        await self._leaving.close(deadline, self._closed.set)

    def _check_open(self, while_closing: bool = False) -> None:
        """Raises ClosedError once this is closed; also while it is being closed, unless `while_closing`."""
        self._cluster.home.check()
        if self._closed.is_set() if while_closing else self._closing:
            raise ClosedError("the consumer is closed: make a new one")

    @property
    def _share(self) -> Assignment:
        """The assignment.  Raises ClosedError after `close`, not during it: a listener may ask for it."""
        self._check_open(while_closing=True)
        return self._assignment

    # What is read

    def subscribe(
        self,
        *topics: str,
        pattern: str | re.Pattern[str] | SubscriptionPattern | None = None,
        listener: RebalanceListener | None = None,
    ) -> None:
        """Read these topics instead, or those whose names fit a regular expression, from the next poll on.

        `pattern` must fit a whole name.  Topics that come later are seen after `metadata_max_age_ms`, deleted ones
        dropped then; the broker's own never fit.  A SubscriptionPattern (KIP-848) is the broker's matter.  `listener`
        is told what a group gives and takes.  Raises MisuseError for topics and a pattern together and after `assign`,
        ValueError for what is no regular expression.
        """
        self._check_open()
        self._assignment.subscribe(topics, chosen(topics, pattern), listener)

    def assign(self, partitions: Iterable[TopicPartition]) -> None:
        """Read exactly these partitions; no group shares them out.  Raises MisuseError after `subscribe`."""
        self._check_open()
        self._assignment.assign(partitions)

    async def unsubscribe(self) -> None:
        """Read nothing any more, and leave the group; `subscribe` and `assign` may be called then.

        With auto_commit it commits before, and the listener is told.  Raises nothing if the group cannot be reached.
        """
        self._check_open()
        self._assignment.stop()
        try:
            await self._leaving.leave(self._cluster.deadline("unsubscribe()"))
        finally:
            self._assignment.forget()

    def subscription(self) -> list[str]:
        """Topics that are subscribed to, sorted; those that fitted a pattern last, none of a SubscriptionPattern."""
        self._check_open(while_closing=True)
        return sorted(self._subscription.topics)

    async def topics(self) -> list[str]:
        """Names of the topics that may be read, sorted, without the broker's own; a pattern is matched with these."""
        return await topics_as_of_now(self._cluster)

    async def partitions_for_topic(self, topic: str) -> list[int]:
        """The numbers of a topic's partitions, which is not made by that.  Raises BrokerError if it is not there."""
        return await partitions_as_of_now(self._cluster, topic)

    def assignment(self) -> list[TopicPartition]:
        """The partitions that are being read, sorted; behind `assign`, before the next poll, those that it named."""
        return self._share.assigned()

    def group_metadata(self) -> ConsumerGroupMetadata:
        """This member and its group, for `send_offsets_to_transaction`.  Raises MisuseError without a group_id."""
        self._check_open(while_closing=True)
        if self._group is None:
            raise MisuseError("this consumer has no group_id: give it one")
        return self._group.metadata()

    def as_of_now(self, member: ConsumerGroupMetadata) -> ConsumerGroupMetadata:
        """That member with its newest epoch, as long as its place is not lost (KIP-848); else as it was."""
        return (self._group.as_of_now(member) if self._group is not None else None) or member

    @property
    def keeps_positions(self) -> bool:
        """Whether partitions are read on through a rebalance, from where they were."""
        return self._group is not None and self._group.is_cooperative

    def check_transactional(self) -> None:
        """Raises MisuseError unless it has a group_id, auto_commit=False and read_committed in offset order."""
        self.group_metadata()
        if self._commits.is_automatic or self._isolation is not Isolation.READ_COMMITTED:
            raise MisuseError("not for transactions: set auto_commit=False, read_committed and offset order")

    # Reading

    async def poll(self, timeout_ms: float = 1000, max_records: int = 500) -> list[ConsumerRecord]:
        """Records that are here, or come within `timeout_ms` milliseconds; none if none do.

        Those of the last call count as done, and may be committed.  Raises NoOffsetError where a position is missing or
        gone and `auto_offset_reset` is "error", MisuseError if there is nothing to read.
        """
        return await self._reading.records(timeout_ms, max_records)

    async def poll_batch(self, timeout_ms: float = 1000) -> PartitionBatch | None:
        """All records fetched of one partition, or that come within `timeout_ms` milliseconds; None if none do.

        It has at most `max_partition_fetch_bytes`, or one batch of a producer.  Otherwise as `poll`.
        """
        return await self._reading.next(timeout_ms, self._fetcher.take_batch, None)

    async def batches(self) -> AsyncIterator[PartitionBatch]:
        """Records a partition at a time, for ever: as Arrow columns without a Python object for each, or as records.

            async for batch in consumer.batches():
                table = batch.to_arrow()

        A batch counts as done when the next one is asked for.  It may be mixed with `poll` and iteration.
        """
        while True:
            batch = await self.poll_batch()
            if batch is not None:
                yield batch

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> ConsumerRecord:
        record = self._reading.one()
        if record is not None:
            return record
        while not (taken := await self.poll(max_records=1)):
            pass
        return taken[0]

    # Positions

    async def commit(self, offsets: Mapping[TopicPartition, int | OffsetAndMetadata] | None = None) -> None:
        """Commit offsets for the group: these, or those after all records handed out so far.

        An offset is the next one to read; in commit order a number does not say what was delivered, and only what
        `next_offsets` gave is taken, or an OffsetAndMetadata without metadata to begin there.  Raises CommitFailedError
        if the group was rebalanced meanwhile, FencedInstanceIdError if another consumer has our group_instance_id,
        MisuseError without a group_id.
        """
        self._check_open(while_closing=True)
        await self._commits.commit(offsets)

    def commit_async(
        self,
        offsets: Mapping[TopicPartition, int | OffsetAndMetadata] | None = None,
        callback: CommitCallback | None = None,
    ) -> asyncio.Future[Committed]:
        """As `commit`, without waiting; the future, which need not be awaited, gives the offsets that were committed.

        Commits, those of `commit` too, are made in the order of the calls: none overtakes a later one, and when
        `commit` returns those before it have ended.  `callback(offsets, error)` is called in the event loop, by a
        blocking consumer in its next call; `error`: None, or what `commit` had raised.  `close`, and a rebalance before
        it takes partitions, wait for all.
        """
        self._check_open(while_closing=True)
        return self._commits.commit_async(offsets, callback)

    def next_offsets(self) -> dict[TopicPartition, OffsetAndMetadata]:
        """The offset to commit of each partition that is being read, after all records handed out so far."""
        self._check_open(while_closing=True)
        return self._commits.next_offsets()

    async def committed(self, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, OffsetAndMetadata | None]:
        """The group's committed offsets, None where it has none.  Raises MisuseError without a group_id."""
        return await self._commits.committed(places("partitions", partitions))

    def position(self, at: TopicPartition) -> int:
        """Offset of the next record of a partition that is being read, or for which `seek` said where to begin; in
        commit order where the oldest open transaction begins.  Raises MisuseError for any other partition.
        """
        return self._share.position(place(at))

    def seek(self, at: TopicPartition, offset: int | OffsetAndMetadata) -> None:
        """Go on with this offset, or begin with it when the partition is assigned and not read yet.

        In commit order a number is where to begin: of a transaction that began before, only the rest is delivered.
        What `next_offsets` or `committed` gave goes back to exactly there.  Raises MisuseError for a partition that is
        not assigned, PositionMetadataError for metadata that is none.
        """
        position = self._places.checked_one(place(at), offset)
        self._share.seek(place(at), position)

    async def seek_to_beginning(self, partitions: Iterable[TopicPartition] | None = None) -> None:
        """Go on with the first record that is still there; None: in all that are assigned.  Raises as `seek`."""
        await self._places.seek(self._share.these_or_all(partitions), EARLIEST, self.seek)

    async def seek_to_end(self, partitions: Iterable[TopicPartition] | None = None) -> None:
        """Go on behind the last record there is, as `end_offsets` tells.  Otherwise as `seek_to_beginning`."""
        await self._places.seek(self._share.these_or_all(partitions), LATEST, self.seek)

    async def lag(self, partitions: Iterable[TopicPartition] | None = None) -> dict[TopicPartition, int]:
        """The number of offsets between the position and `end_offsets`, of these partitions or all that are read.

        Offsets of control records and of aborted ones count.  Partitions that nobody leads now are left out.  Raises
        MisuseError for one that is not being read.
        """
        self._check_open(while_closing=True)
        asked = list(self._fetcher.followed) if partitions is None else places("partitions", partitions)
        return await self._places.lag({at: self.position(at) for at in asked})

    def seek_to_committed(self, otherwise: Mapping[TopicPartition, int] | None = None) -> None:
        """Go on at the group's committed offsets, from the next poll on, as after a rebalance.

        `otherwise`: the offsets of partitions of which the group has none, instead of `auto_offset_reset`.
        """
        share = self._share
        share.begin_at_committed({} if otherwise is None else offsets_at("otherwise", otherwise))

    def pause(self, partitions: Iterable[TopicPartition]) -> None:
        """Hand out nothing of these partitions until they are resumed, or shared out anew by a rebalance.

        In `on_partitions_assigned` and behind `assign` too.  Raises MisuseError for one that is not assigned.
        """
        for at in places("partitions", partitions):
            self._share.pause(at)

    def resume(self, partitions: Iterable[TopicPartition]) -> None:
        """Hand out records of these partitions again.  Raises MisuseError for one that is not assigned."""
        for at in places("partitions", partitions):
            self._share.resume(at)

    def paused(self) -> list[TopicPartition]:
        """The partitions of which nothing is handed out until they are resumed, sorted.  In any thread."""
        return self._share.paused()

    def open_transactions(self) -> list[OpenTransaction]:
        """Transactions whose end was not read yet, and the bytes held of each.  Raises MisuseError in offset order."""
        self._check_open(while_closing=True)
        return self._fetcher.open_transactions()

    async def beginning_offsets(
        self, partitions: Iterable[TopicPartition], timeout_ms: float | None = None
    ) -> dict[TopicPartition, int]:
        """The first offsets that are still there; `timeout_ms` as for `end_offsets`."""
        return dict(await self._places.ends(places("partitions", partitions), EARLIEST, timeout_ms=timeout_ms))

    async def end_offsets(
        self, partitions: Iterable[TopicPartition], timeout_ms: float | None = None
    ) -> dict[TopicPartition, int]:
        """The ends of reading now: the high watermark, in offset order with read_committed the last stable offset.

        A partition that nobody leads is waited for, `timeout_ms` (None: `max_block_ms`); then OffsetsMissingError names
        it, and has the offsets of the others.
        """
        return dict(await self._places.ends(places("partitions", partitions), LATEST, timeout_ms=timeout_ms))

    async def offsets_for_times(
        self, times: Mapping[TopicPartition, int]
    ) -> dict[TopicPartition, tuple[int, int] | None]:
        """(offset, timestamp) of the first record that is not older than a time, None if there is none.

        Times and timestamps are in milliseconds since 1970.  Raises BrokerError, as for a partition that is not there.
        """
        return await self._places.for_times(times)
