"""The producer: each record exactly once, with a transactional id in transactions."""

from __future__ import annotations

import asyncio
import weakref
from collections.abc import AsyncIterator, Iterable, Mapping, Sequence
from contextlib import asynccontextmanager
from functools import partial
from typing import Self, Unpack

from fencepost.client.acknowledgements import Unnumbered
from fencepost.client.batches import RecordMetadata
from fencepost.client.cluster import Cluster
from fencepost.client.deadline import Deadline, within
from fencepost.client.errors import ClientError, ClosedError, MisuseError
from fencepost.client.forgotten import tell_if_forgotten, unacknowledged_records
from fencepost.client.handing_over import ArrowStream, HandingOver, One, one_by_one
from fencepost.client.idempotence import Idempotence
from fencepost.client.interceptors import Interceptors, ProducerInterceptor, ProducerRecord
from fencepost.client.lanes import MOST_IN_FLIGHT
from fencepost.client.partitioner import Partitioner, Partitioning
from fencepost.client.placement import Placement
from fencepost.client.prepared import PreparedTxnState
from fencepost.client.producer_settings import check_settings, for_cluster, for_handing_over, for_sender
from fencepost.client.security import Security, SecurityOptions
from fencepost.client.sender import Sender
from fencepost.client.sending import Sending
from fencepost.client.statistics import ProducerStatistics, SendCounts
from fencepost.client.together import ManyMetadata
from fencepost.client.transactional_id import ConsumerGroupMetadata, OffsetAndMetadata, check_group, checked_positions
from fencepost.client.transactions import Transactions
from fencepost.protocol.records import Headers
from fencepost.protocol.types import TopicPartition
from fencepost.runtime import Runtime


class Producer:
    """Writes records, each exactly once; with a transactional id in transactions that are visible whole or never.

        async with Producer("127.0.0.1:9092", transactional_id="payments") as producer:
            await producer.init_transactions()
            async with producer.transaction():
                await producer.send("debits", b"-10", key=b"alice")

    Times are in milliseconds, sizes in bytes.  What cannot be done within `max_block_ms` raises TimedOutError, what the
    broker refuses BrokerError, a setting of a wrong type TypeError, one out of range ValueError.  On a cluster with
    transaction.version 2 it speaks the protocol of KIP-890, on others the one before.  A commit waits for every record
    that was sent before it, and fails if one of them did.

    Up to `max_in_flight_requests_per_connection` (1 to 5) batches of a partition, and requests to a node, are on their
    way at once.  Their order stays, whatever is sent again: when one fails, those on their way behind it fail too
    (KIP-360), unless it was refused for its own records.

    `partitioner` chooses the partition of a record that is sent without one: it is called with the topic, the key and
    the numbers of the topic's partitions, and returns one of these.

    `acks`: a record is acknowledged when every replica in sync has it ("all"), when its leader has it (1), or at once
    (0: its offset is -1, and no refusal is heard of).  Fewer than all need `enable_idempotence=False`: then
    records may be written twice where an answer is lost, and with acks 0 or 1 be lost as well.

    `interceptors` see every record before it is sent, and what became of it; `statistics()` tells what was done.

    Partitions that are added are written to after `metadata_max_age_ms`: from then on keys go by the new number.

    With `transaction_two_phase_commit_enable` transactions have no time-out, where the broker allows it (KIP-939).
    """

    def __init__(
        self,
        bootstrap_servers: str,
        *,
        transactional_id: str | None = None,
        transaction_timeout_ms: int = 60_000,
        transaction_two_phase_commit_enable: bool = False,
        linger_ms: float = 0,
        batch_bytes: int = 256 * 1024,
        max_request_size: int = 1024 * 1024,
        buffer_bytes: int = 32 * 1024 * 1024,
        compression: str = "none",
        acks: int | str = "all",
        enable_idempotence: bool = True,
        max_in_flight_requests_per_connection: int = MOST_IN_FLIGHT,
        delivery_timeout_ms: int = 120_000,
        request_timeout_ms: int = 30_000,
        max_block_ms: int = 60_000,
        metadata_max_age_ms: int = 300_000,
        partitioner: Partitioning | None = None,
        interceptors: Sequence[ProducerInterceptor] = (),
        client_id: str = "fencepost-producer",
        runtime: Runtime | None = None,
        **security: Unpack[SecurityOptions],
    ) -> None:
        check_settings(settings := locals())
        self._runtime = runtime
        self._cluster = Cluster(
            bootstrap_servers,
            runtime=runtime,
            security=Security.of_client(Producer, security),
            **for_cluster(settings),
        )
        self._buffer_bytes = buffer_bytes
        self._metadata_max_age_ms = metadata_max_age_ms
        self.transactional_id = transactional_id
        self.transaction_timeout_ms = transaction_timeout_ms
        self._transactions: Transactions | None = None
        if transactional_id is not None:
            self._transactions = Transactions(
                self._cluster, transactional_id, transaction_timeout_ms, transaction_two_phase_commit_enable
            )
        numbered = Idempotence(self._cluster) if enable_idempotence else Unnumbered()
        self._rules = self._transactions or numbered
        self._interceptors = Interceptors(interceptors)
        self._intercepts = bool(interceptors)
        self._counts = SendCounts()
        self._new_sender = partial(
            Sender,
            self._cluster,
            self._rules,
            on_acknowledged=self._interceptors.on_acknowledged,
            counts=self._counts,
            **for_sender(settings),
        )
        self._placement = Placement(self._cluster, Partitioner(self._cluster.runtime.random, batch_bytes, partitioner))
        self._sending = Sending(self._cluster, self._placement, self._rules, max_request_size)
        self._handing_over = partial(HandingOver, self._cluster, self._placement, **for_handing_over(settings))
        self._sender: Sender | None = None
        self._closed = self._closing = False
        self._forgotten: weakref.finalize[..., object] | None = None
        known_as = "" if transactional_id is None else f" (transactional_id={transactional_id!r})"
        self._named = f"producer {client_id!r}{known_as}"

    # Life

    async def start(self) -> Self:
        """Open the producer; nothing if it is open.  Connections are made when they are needed."""
        if self._sender is None and not self._closed:
            self._cluster.home.check()
            self._sender = self._sending.sender = self._rules.sender = self._new_sender()
            self._cluster.refresh_every(self._metadata_max_age_ms)
            self._forgotten = tell_if_forgotten(
                self, partial(unacknowledged_records, self._named, self._sender, self._sending), self._runtime
            )
        return self

    async def close(self, timeout_ms: float | None = None) -> None:
        """Send the records that wait; abort the transaction if one is open and not prepared; end the connections.

        A commit or an abort that is under way is waited for, also that of a `close` before this one.
        `timeout_ms`: after so many milliseconds what is still waiting fails with ClosedError; None: as long as its
        records have.  An abort that fails raises nothing: the broker aborts the transaction when its time is up.
        """
        self._closed |= not self._cluster.home.is_here  # all that is to be done is its parent's
        if self._closed:
            return
        self._cluster.home.check()
        deadline = self._deadline("close()", timeout_ms)
        self._closing = True
        self._sending.stop()
        try:
            await within(deadline, self.flush() if self._transactions is None else self._transactions.settle())
        except ClientError:
            pass  # the broker aborts it in time
        finally:
            await self.abandon()

    def _deadline(self, what: str, timeout_ms: float | None) -> Deadline | None:
        return None if timeout_ms is None else self._cluster.deadline(what, timeout_ms)

    async def abandon(self) -> None:
        """End the connections and nothing else, as if the process had died."""
        self._closed = True
        self._sending.stop()
        if self._forgotten is not None:
            self._forgotten.detach()
        self._rules.close()
        if self._sender is not None:
            self._sender.close()
        await self._cluster.close()
        await asyncio.sleep(0)  # answers that will not come are told

    async def __aenter__(self) -> Self:
        return await self.start()

    async def __aexit__(self, *exc: object) -> None:
        await self.close()

    # Sending

    async def send(
        self,
        topic: str,
        value: bytes | None,
        *,
        key: bytes | None = None,
        partition: int | None = None,
        timestamp: int | None = None,
        headers: Headers = (),
    ) -> asyncio.Future[RecordMetadata]:
        """Hand over a record; await the result for its metadata once it is acknowledged, or for its error.

        Without a partition the key's hash chooses it, as every Kafka client does; without a key either, any one that
        has a leader, and another one after about `batch_bytes`.
        `timestamp` is in milliseconds since 1970, now by default.  Waits while `buffer_bytes` are waiting to be sent,
        and raises TimedOutError where that takes too long.
        Raises MisuseError outside a transaction, TransactionError if the transaction has failed, BrokerError if there
        is no such partition, TypeError or ValueError for what is no record, RecordTooLargeError for one that a request
        of `max_request_size` cannot hold; a transaction goes on without that record then.  The result raises
        DeliveryError for a record that was not delivered within `delivery_timeout_ms`, and in a transaction, whatever
        went wrong, TransactionAbortableError where that can be aborted.
        """
        if self._intercepts:
            self._open_sender()
            record = self._interceptors.before(ProducerRecord(topic, value, key, partition, timestamp, headers))
            return await self._interceptors.around(record, self._sending.send(self._check_send, *record))
        future = self._sending.at_once(topic, value, key, partition, timestamp, headers)
        if future is None:
            future = await self._sending.send(self._check_send, topic, value, key, partition, timestamp, headers)
        return future

    async def send_many(
        self,
        topic: str,
        values: Iterable[bytes | None],
        *,
        keys: Iterable[bytes | None] | None = None,
        partition: int | None = None,
        timestamp: int | None = None,
    ) -> asyncio.Future[ManyMetadata]:
        """Hand over many records, which costs a fraction of sending them one by one; await the result as of `send`.

        `keys` has one for each value; `timestamp` is that of all, now by default.  Partitions are chosen as by `send`.
        Returns when all of them are in batches, and waits meanwhile while `buffer_bytes` are waiting to be sent.  The
        result raises what one of them failed of, when all are answered for good.
        Raises what `send` does.  Where one is refused that names its place, from 0 on: those before it are handed over,
        those from it on are not.  Whatever this raises, also when it is cancelled, has a note that says how many were.
        """
        return await self._together().all_of(topic, values, keys, partition, timestamp, self._one)

    async def send_arrow(
        self, topic: str, rows: ArrowStream, *, partition: int | None = None, timestamp: int | None = None
    ) -> asyncio.Future[ManyMetadata]:
        """Hand over the rows of a table as records, in their order, with the columns of `PartitionBatch.to_arrow`.

        `rows`: a pyarrow Table or RecordBatch, or a data frame with `__arrow_c_stream__`.  Columns: value and, where
        wanted, key (binary, or text, written as UTF-8), headers (lists of key and value), timestamp (with a time zone,
        or milliseconds since 1970; finer parts are cut off) and partition.  Null is none, now, or a partition chosen as
        by `send`.  offset and timestampType are passed over.  Needs pyarrow and numpy.
        Raises what `send_many` does, whose result it has, and before any row is handed over TypeError or ValueError for
        a column that a record does not have, or that is of another kind, and RecordTooLargeError.
        """
        return await self._together().rows_of(topic, rows, partition, timestamp, self._one)

    def _together(self) -> HandingOver:
        return self._handing_over(check=self._check_send, note_send=self._note_send)

    @property
    def _one(self) -> One | None:
        return one_by_one(self.send) if self._intercepts else None

    def _open_sender(self) -> Sender:
        self._cluster.home.check()
        if self._closed or self._closing:
            raise ClosedError(f"the producer is {'closed' if self._closed else 'being closed'}: make a new one")
        if self._sender is None:
            raise MisuseError("the producer is not open: use it inside `async with Producer(...) as producer:`")
        return self._sender

    async def _check_send(self) -> Sender:
        sender = self._open_sender()
        if self._transactions is not None:
            await self._transactions.check_send()
        elif isinstance(self._rules, Idempotence) and self._rules.error is not None:
            raise self._rules.error
        return sender

    def _note_send(self) -> None:
        if self._transactions is not None:
            self._transactions.note_send()

    async def send_and_wait(
        self,
        topic: str,
        value: bytes | None,
        *,
        key: bytes | None = None,
        partition: int | None = None,
        timestamp: int | None = None,
        headers: Headers = (),
    ) -> RecordMetadata:
        """As `send`, and wait for the acknowledgement.  Raises what `send` and its result do."""
        return await (await self.send(topic, value, key=key, partition=partition, timestamp=timestamp, headers=headers))

    async def flush(self, timeout_ms: float | None = None) -> None:
        """Wait until everything that was sent before is acknowledged or has failed; after `close` all of it has.

        Raises nothing for what has failed: the result of each `send` does, and in a transaction the commit.
        `timeout_ms`: raises TimedOutError after so many milliseconds; what is on its way goes on.
        """
        if self._sender is not None:
            self._cluster.home.check()
            deadline = self._deadline("flush()", timeout_ms)
            await within(deadline, self._sender.flush())

    async def partitions_for(self, topic: str) -> list[int]:
        """The numbers of a topic's partitions that `send` chooses from; it waits for the topic, and raises, as that."""
        self._open_sender()
        return list((await self._placement.view(topic)).leaders)

    def statistics(self) -> ProducerStatistics:
        """Counts of records and requests since this was made, as ProducerStatistics says; also after it is closed."""
        queued, used = self._sending.queued, self._sending.used
        if self._sending.sender is None and self._sender is not None:
            used = self._sender.buffer_used  # which ends: nothing more is handed over
        return self._counts.snapshot(self._buffer_bytes, used, queued)

    # Transactions

    def _transactional(self) -> Transactions:
        if self._transactions is None:
            raise MisuseError("this producer has no transactional_id: give it one to use transactions")
        self._open_sender()
        return self._transactions

    @property
    def is_initialized(self) -> bool:
        """Whether the transactional id was taken over, by `init_transactions`."""
        return self._transactions is not None and self._transactions.is_initialized

    async def init_transactions(self, keep_prepared: bool = False) -> None:
        """Take the transactional id over: whoever had it is fenced, and its open transaction aborted.

        Once, before the first transaction.  With `keep_prepared` that transaction stays, prepared, and is ended next,
        by `complete_transaction`; that is for two-phase commit, where the broker does it (Fencepost; Apache Kafka 4.3
        does not).  Raises MisuseError without a transactional_id or where it was called before, TimedOutError if it
        could not be done in time (call it again), UnsupportedByBrokerError, BrokerError if the broker refuses.
        """
        await self.start()
        await self._transactional().init(keep_prepared)

    async def begin_transaction(self) -> None:
        """Open a transaction; the broker hears of it with its first record.

        Raises MisuseError if one is open or `init_transactions` was not called, and what ended the producer if
        something did (ProducerFencedError).
        """
        await self._transactional().begin()

    async def commit_transaction(self) -> None:
        """Make the transaction visible, whole.  Waits for every record that was sent in it.

        Raises TransactionAbortableError if it cannot be committed (abort, then go on), ProducerFencedError if another
        producer has taken over, OutcomeUnknownError if no answer came in time (call it again to find out), and
        CommitInDoubtError if that cannot be found out: when it is closed meanwhile, before transaction.version 2, where
        the broker has forgotten the id by then (transactional.id.expiration.ms) or answers an error that does not tell.
        """
        await self._transactional().commit()

    async def abort_transaction(self) -> None:
        """Abort the transaction: readers of committed records do not see it.  Then the next one may begin.

        Raises ProducerFencedError if another producer has taken over, OutcomeUnknownError if no answer came in time
        (call it again), MisuseError if no transaction is open.
        """
        await self._transactional().abort()

    async def prepare_transaction(self) -> PreparedTxnState:
        """Prepare the transaction: wait for all acknowledgements, and leave its end to another system (KIP-939).

        Keep what is returned, as text, with what decides; from then on only `commit_transaction`, `abort_transaction`
        and `complete_transaction` may be called, and neither `close` nor the end of this process ends the transaction.
        Its time-out does, unless `transaction_two_phase_commit_enable`.  Raises TransactionAbortableError if it cannot
        be committed, UnsupportedByBrokerError before transaction.version 2, MisuseError outside a transaction.
        """
        return await self._transactional().prepare()

    async def complete_transaction(self, prepared: PreparedTxnState | str) -> bool:
        """Commit the transaction that was prepared, whichever process did; whether it is known to be committed.

        Called before `init_transactions`, in another process too.  False: it had ended before, and the id was used
        since; only its own process was told how.  With `init_transactions(keep_prepared=True)` before, or in the
        process that prepared one, another transaction than this one is aborted.  May be called again, with the same.
        Raises TransactionAbortedError if it was aborted, as by its time-out, OutcomeUnknownError if no answer came in
        time, ValueError for a text that is none.
        """
        await self.start()
        given = prepared if isinstance(prepared, PreparedTxnState) else PreparedTxnState.parse(prepared)
        return await self._transactional().complete(given)

    @asynccontextmanager
    async def transaction(self) -> AsyncIterator[Self]:
        """A transaction around a block: committed at its end, aborted if it raises.

        Where the commit fails with a TransactionAbortableError the transaction is aborted, and the error raised; one
        that is prepared stays so.  Raises what the block, `begin_transaction` and `commit_transaction` raise; where the
        abort after that fails, a note on it says so.
        """
        transactions = self._transactional()
        await transactions.begin()
        try:
            yield self
            await transactions.commit()
        except BaseException as error:
            await transactions.abort_because_of(error)
            raise

    async def send_offsets_to_transaction(
        self, offsets: Mapping[TopicPartition, int | OffsetAndMetadata], group: str | ConsumerGroupMetadata
    ) -> None:
        """Commit offsets of a group as part of the transaction.  An offset is the next one to read.

        Give `consumer.group_metadata()` rather than the group's name, so that a member that was replaced is refused.
        Raises MisuseError outside a transaction or for an empty group, TransactionAbortableError if the transaction
        cannot be committed any more.
        """
        transactions, member = self._transactional(), check_group(group)
        positions = checked_positions("offsets", offsets)
        if positions:
            await transactions.send_offsets(positions, member)
