"""The transactions of one producer: which call is allowed when, and what a failure leads to.

A commit waits until every record that was sent before it is acknowledged.  An old producer id or epoch may mean that
the broker timed the transaction out, or that another producer took over; InitProducerId with the pair tells which
(KIP-360, KIP-588), and recovers from the first.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from typing import Final

from fencepost.client.batches import Batch
from fencepost.client.cluster import Cluster
from fencepost.client.completion_pause import LEADER_BACKOFF, CompletionPause
from fencepost.client.deadline import FIRST_BACKOFF
from fencepost.client.errors import (
    BrokerError,
    ClientError,
    MisuseError,
    TransactionAbortableError,
    TransactionAbortedError,
    TransactionTimedOutError,
    UnsupportedByBrokerError,
    is_unsupported,
)
from fencepost.client.lasting import Lasting
from fencepost.client.one_call import OneCall
from fencepost.client.outcomes import Outcome
from fencepost.client.prepared import PreparedTxnState
from fencepost.client.sender import Sender
from fencepost.client.settings import check_sendable
from fencepost.client.transaction_errors import forgotten_error, timed_out_error, unconfirmed
from fencepost.client.transaction_state import CALLS, State, check_call, completion, follow
from fencepost.client.transactional_id import (
    BEFORE_TV2,
    MAY_PASS,
    SINCE_TV2,
    ConsumerGroupMetadata,
    OffsetAndMetadata,
    StaleProducerEpochError,
    TransactionalId,
)
from fencepost.protocol.errors import ErrorCode
from fencepost.protocol.types import NO_PRODUCER, ProducerIdAndEpoch, TopicPartition

#: Newest Produce that names topics; the ones after it need topic ids.
NEWEST_PRODUCE: Final = 12
_OLD_PAIR: Final = (ErrorCode.INVALID_PRODUCER_EPOCH, ErrorCode.PRODUCER_FENCED, ErrorCode.INVALID_PRODUCER_ID_MAPPING)


class Transactions:
    """A producer's transactions, and the requests that move them: the `rules.Rules` of its sender."""

    def __init__(self, cluster: Cluster, transactional_id: str, timeout_ms: int, two_phase: bool = False) -> None:
        check_sendable(transaction_timeout_ms=timeout_ms)
        self.transactional_id: str | None = transactional_id
        self.sender: Sender | None = None
        self.take_in: Callable[[], None] = lambda: None  # as of `Sending.take_from`
        self._cluster = cluster
        self._id = TransactionalId(cluster, transactional_id, two_phase=two_phase)
        self._timeout_ms = timeout_ms
        self._state = State.UNINITIALIZED
        self._producer_id_and_epoch = NO_PRODUCER
        self._following: ProducerIdAndEpoch | None = None
        """The producer id and epoch to go on with, after the current ones proved old; None: they did not."""
        self._error: ClientError | None = None
        self._tv2 = False
        self._started = False
        """Whether the broker may know of the open transaction."""
        self._needs_new_epoch = False
        """Whether a batch is lost whose sequence numbers the broker may have seen (transaction.version 0 and 1)."""
        self._registered: dict[TopicPartition, bool] = {}
        """Partitions of the open transaction, and whether the coordinator has them (transaction.version 0 and 1)."""
        self._registration: asyncio.Task[None] | None = None
        self._finding = Lasting(self._find_out)
        self._pause = CompletionPause()
        self._call = OneCall()
        self._prepared = PreparedTxnState()
        """The transaction that is prepared, or that was prepared and committed last."""

    @property
    def is_initialized(self) -> bool:
        """Whether the transactional id was taken over."""
        return self._state not in (State.UNINITIALIZED, State.INITIALIZING)

    @property
    def is_open(self) -> bool:
        """Whether a transaction is to be aborted: open, or failed, or its abort was not confirmed.

        Not one that is prepared: what becomes of that is decided elsewhere.
        """
        return self._state in (State.IN_TRANSACTION, State.ABORTABLE_ERROR, State.ABORTING)

    # What the sender asks (rules.Rules)

    @property
    def producer_id_and_epoch(self) -> ProducerIdAndEpoch | None:
        return None if self._producer_id_and_epoch is NO_PRODUCER else self._producer_id_and_epoch

    @property
    def takes_records(self) -> bool:
        """Whether a record can be sent now: a transaction is open, and has not failed."""
        return self._error is None and self._state in CALLS["send"]

    def versions(self) -> tuple[int, int]:
        return (SINCE_TV2["Produce"], NEWEST_PRODUCE) if self._tv2 else (3, BEFORE_TV2["Produce"])

    def admits(self, at: TopicPartition) -> bool:
        if self._tv2:
            return True
        if at not in self._registered:
            self._registered[at] = False
            if self._registration is None or self._registration.done():
                self._registration = asyncio.get_running_loop().create_task(self._register())
        return self._registered[at]

    def answered(self, took: float) -> None:
        self._pause.answered(took, LEADER_BACKOFF)

    def failed(self, batch: Batch, outcome: Outcome, error: ClientError, is_spent: bool) -> ClientError:  # noqa: ARG002
        if batch.abandoned:
            return error
        self._needs_new_epoch = True
        old = isinstance(error, BrokerError) and error.code in _OLD_PAIR
        is_forgotten = isinstance(error, BrokerError) and error.code is ErrorCode.INVALID_PRODUCER_ID_MAPPING
        stale = StaleProducerEpochError(str(error), is_forgotten=is_forgotten)
        self.fail(stale if old else error, fatal=outcome is Outcome.FATAL)
        if outcome is Outcome.FATAL:
            return error
        told = TransactionAbortableError(f"{error}. The transaction cannot be committed: abort it, then go on")
        told.__cause__ = error
        return told

    async def abort_because_of(self, error: BaseException) -> None:
        """Abort a transaction that is open; if that fails `error`, which the caller raises, gets a note."""
        if self._state is State.PREPARED:
            error.add_note(f"The transaction {self._prepared} stays prepared: complete_transaction() ends it.")
        if not self.is_open:
            return
        try:
            await self.abort()
        except ClientError as failure:
            error.add_note(
                f"The transaction could not be aborted ({failure}): the broker aborts it when its time is up."
            )

    # Calls

    async def init(self, keep_prepared: bool = False) -> None:
        """Take the id over; `keep_prepared`: with its open transaction.  Raises as `Producer.init_transactions`."""
        check_call("init_transactions", self._state)
        if keep_prepared and not self._id.two_phase:
            raise MisuseError(
                "keep_prepared=True is for two-phase commit: set transaction_two_phase_commit_enable=True"
            )
        with self._call.alone("init_transactions"):
            self._become(State.INITIALIZING)
            try:
                if keep_prepared:
                    self._producer_id_and_epoch, self._prepared = await self._id.init_keeping(self._timeout_ms)
                else:
                    self._producer_id_and_epoch = await self._id.init(self._timeout_ms)
                    self._prepared = PreparedTxnState()
            except (*MAY_PASS, UnsupportedByBrokerError, asyncio.CancelledError):
                self._become(State.UNINITIALIZED)
                raise
            except ClientError as error:
                self._die(error)
                raise
            self._tv2 = self._cluster.transaction_version >= 2
            self._started = self._prepared.has_records
            self._become(State.PREPARED if self._started else State.READY)

    async def begin(self) -> None:
        """Open a transaction.  Raises MisuseError if none may begin now, and the error of the one before."""
        await self.raise_error()
        check_call("begin_transaction", self._state)
        newer = self._cluster.transaction_version >= 2
        with self._call.alone("begin_transaction"):
            if not self._tv2 and (newer or self._id.unsettled):
                # Before the first implicit add the leaders must see a fresh epoch (facts §9.3).  In the old protocol it
                # keeps out a request of the last transaction that is late: it would act on this one (KAFKA-17754).
                if self._id.unsettled:
                    await self._id.end_what_came_late(self._producer_id_and_epoch)
                self._producer_id_and_epoch = await self._next_producer_id_and_epoch()
            pause = self._pause.begin(asyncio.get_running_loop().time())
            if pause:
                await asyncio.sleep(pause)
        self._tv2 = newer
        self._started = self._needs_new_epoch = False
        self._prepared = PreparedTxnState()
        self._registered.clear()
        self._become(State.IN_TRANSACTION)

    async def check_send(self) -> None:
        """Raises MisuseError outside a transaction, and the error of this one if it has failed."""
        if self._error is not None:
            await self.raise_error()
        check_call("send", self._state)

    def note_send(self) -> None:
        """Note that a record is sent in the transaction, so that there is something to end."""
        self._started = True

    async def send_offsets(
        self, offsets: Mapping[TopicPartition, OffsetAndMetadata], group: ConsumerGroupMetadata
    ) -> None:
        """Commit offsets of a group in the transaction.  Raises as `Producer.send_offsets_to_transaction`."""
        await self.raise_error()
        check_call("send_offsets_to_transaction", self._state)
        with self._call.alone("send_offsets_to_transaction"):
            self._started = True
            try:
                if not self._tv2:
                    await self._id.add_offsets(self._producer_id_and_epoch, group.group_id)
                await self._id.commit_offsets(self._producer_id_and_epoch, group, offsets, self._tv2)
            except ClientError as error:
                of_group = getattr(error, "code", None) == ErrorCode.GROUP_AUTHORIZATION_FAILED  # as its lookup says
                self.fail(error, fatal=not (of_group or isinstance(error, (TransactionAbortableError, *MAY_PASS))))
                await self.raise_error()
            except asyncio.CancelledError:
                interrupted = "send_offsets_to_transaction() was interrupted, and the positions may be in it or not"
                self.fail(TransactionAbortableError(f"{interrupted}: abort the transaction, then go on"), fatal=False)
                raise

    async def prepare(self) -> PreparedTxnState:
        """Wait for all acknowledgements; then only an end is allowed.  Raises as `Producer.prepare_transaction`."""
        await self.raise_error()
        check_call("prepare_transaction", self._state)
        if not self._tv2:
            # Before it a pair has many transactions: who completes this one elsewhere might end a later one.
            raise UnsupportedByBrokerError("prepare_transaction() needs transaction.version 2: raise the feature")
        with self._call.alone("prepare_transaction"):
            if self._state is State.IN_TRANSACTION:
                self._become(State.PREPARED)
                self._prepared = PreparedTxnState(*self._producer_id_and_epoch) if self._started else PreparedTxnState()
            assert self.sender is not None, "a transaction has a sender"
            await self.sender.flush()
            await self.raise_error()
            return self._prepared

    async def complete(self, prepared: PreparedTxnState) -> bool:
        """Commit a prepared transaction; whether it is known to be committed.  As `Producer.complete_transaction`."""
        await self.raise_error()
        following = completion(self._state, is_this_one=prepared == self._prepared)
        if following is State.COMMITTING:
            await self.commit()
            return True
        if following is State.ABORTING:
            await self.abort()
        elif self._state is State.UNINITIALIZED and prepared.has_records:
            with self._call.alone("complete_transaction"):
                return await self._id.complete(prepared)
        return prepared in (self._prepared, PreparedTxnState())

    async def commit(self) -> None:
        """Commit, after every record is acknowledged.  Raises as `Producer.commit_transaction`."""
        await self.raise_error()
        check_call("commit_transaction", self._state)
        with self._call.alone("commit_transaction"):
            if self._state is not State.COMMITTING:
                self._become(State.COMMITTING)
            assert self.sender is not None, "a transaction has a sender"
            await self.sender.flush()
            await self.raise_error()
            if self._started:
                await self._end(commit=True)
            self._become(State.READY)

    async def abort(self) -> None:
        """Abort the transaction, failed or not.  Raises as `Producer.abort_transaction`."""
        if self._state is State.FATAL_ERROR:
            await self.raise_error()
        check_call("abort_transaction", self._state)
        with self._call.alone("abort_transaction"):
            if self._state is not State.ABORTING:
                self._become(State.ABORTING)
            assert self.sender is not None, "a transaction has a sender"
            self._drop_unsent("its transaction was aborted")
            if self._registration is not None and not self._registration.done():
                # Its request may be on the wire; the abort must come after it.
                await self._registration
            await self.sender.flush()
            if self._started:
                await self._end(commit=False)
            self._error, self._prepared = None, PreparedTxnState()
            self._become(State.READY)

    async def settle(self) -> None:
        """Wait for the call under way, then abort a transaction that is open and not prepared.  Raises as `abort`."""
        if self._state is not State.INITIALIZING:
            await self._call.ended()
        if self.is_open:
            await self.abort()

    async def raise_error(self) -> None:
        """Raises the error of the transaction, if it has one; an old epoch is looked into first."""
        if (error := self._error) is None:
            return
        if isinstance(error, StaleProducerEpochError) and self._following is None:
            await self._finding.done_within(None)
            self._cluster.check_open()
        raise self._error or error  # it was aborted meanwhile

    async def _find_out(self) -> None:
        """Find out, once for all callers, if an old epoch was timed out, forgotten or fenced, and set the error."""
        stale = self._error
        try:
            self._following = await self._next_producer_id_and_epoch()
        except ClientError:
            return  # it is the error now, or is to be found out by the abort
        if isinstance(stale, StaleProducerEpochError) and self._error is stale:
            self._error = (forgotten_error if stale.is_forgotten else timed_out_error)(self._id.name)

    # Requests

    async def _register(self) -> None:
        """Send AddPartitionsToTxn before partitions are written to; for transaction.version 0 and 1."""
        while self._state in (State.IN_TRANSACTION, State.COMMITTING):
            waiting = [at for at, known in self._registered.items() if not known]
            if not waiting:
                return
            asked_at = asyncio.get_running_loop().time()
            try:
                await self._id.add_partitions(self._producer_id_and_epoch, waiting)
            except ClientError as error:
                self.fail(error, fatal=not isinstance(error, (TransactionAbortableError, *MAY_PASS)))
                return
            self._pause.answered(asyncio.get_running_loop().time() - asked_at, FIRST_BACKOFF)
            self._registered |= dict.fromkeys(waiting, True)
            assert self.sender is not None, "a transaction has a sender"
            self.sender.wake()

    async def _end(self, commit: bool) -> None:
        """Send EndTxn, and have a producer id and epoch for the next transaction.  Raises as `commit` or `abort`."""
        if self._finding.is_under_way:
            await self._finding.done_within(None)  # what it finds out is of this transaction
        if not commit and (self._following is not None or isinstance(self._error, StaleProducerEpochError)):
            self._producer_id_and_epoch = self._following or await self._next_producer_id_and_epoch()
            self._following = None
            return
        asked_at = asyncio.get_running_loop().time()
        try:
            self._producer_id_and_epoch = await self._id.end(self._producer_id_and_epoch, commit, self._tv2)
        except MAY_PASS as error:
            raise unconfirmed(error, "commit_transaction" if commit else "abort_transaction") from error
        except (TransactionAbortableError, UnsupportedByBrokerError, BrokerError) as error:
            if isinstance(error, BrokerError) and not is_unsupported(error):
                self._die(error)
                raise
            if commit:
                self.fail(error, fatal=False)
                await self.raise_error()
            # The coordinator knows nothing of it (any more): a new epoch ends whatever there is.
            self._producer_id_and_epoch = await self._next_producer_id_and_epoch()
        except ClientError as error:
            self._die(error)
            raise
        else:
            now = asyncio.get_running_loop().time()
            self._pause.ended(now, now - asked_at)
            if not self._tv2 and self._needs_new_epoch:
                self._producer_id_and_epoch = await self._next_producer_id_and_epoch()

    async def _next_producer_id_and_epoch(self) -> ProducerIdAndEpoch:
        """The next epoch of the current producer id.  Raises ProducerFencedError if another producer has taken over."""
        try:
            return await self._id.init(self._timeout_ms, self._producer_id_and_epoch)
        except MAY_PASS:
            raise
        except ClientError as error:
            self._die(error)
            raise

    # States

    def _become(self, state: State) -> None:
        self._state = follow(self._state, state)
        self.take_in()

    def fail(self, error: ClientError, *, fatal: bool) -> None:
        """Note that nothing of the open transaction can be committed; `fatal`: nor anything of a later one."""
        if is_unsupported(error):
            # transaction.version was changed under the open transaction: abort, then go on in the other protocol.
            self._cluster.ask_features_again()
        elif fatal:
            self._die(error)
            return
        if self._state not in (State.IN_TRANSACTION, State.PREPARED, State.COMMITTING):
            return
        if isinstance(error, TransactionTimedOutError):
            self._error = StaleProducerEpochError(str(error))
        elif isinstance(error, TransactionAbortableError):
            self._error = error
        else:
            self._error = TransactionAbortableError(f"the transaction has failed: {error}. Abort it, then go on")
        self._become(State.ABORTABLE_ERROR)
        self._drop_unsent("its transaction has failed")

    def _die(self, error: ClientError) -> None:
        if self._state is not State.FATAL_ERROR:
            self._error = error
            self._become(State.FATAL_ERROR)
            self._drop_unsent("the producer has failed")

    def _drop_unsent(self, why: str) -> None:
        unsent = TransactionAbortedError(f"the record was not sent: {why}")
        unanswered = TransactionAbortedError("the transaction was aborted: send the record in the next one")
        if self.sender is not None and self.sender.abandon(unsent, unanswered):
            self._needs_new_epoch = True

    def close(self) -> None:
        """Cancel the tasks that find out about an old epoch, and register partitions."""
        self._finding.cancel()
        if self._registration is not None:
            self._registration.cancel()
