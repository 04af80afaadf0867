"""Requests about one transactional id, each repeated until it is answered for good.

Knows nothing of records or states: `Producer` uses it, and so does whoever shares one transaction among processes.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from typing import Any, Final, NamedTuple

from fencepost.client.arguments import INT32, pairs, place, text, whole_number
from fencepost.client.cluster import Cluster, Deadline
from fencepost.client.errors import (
    AuthenticationError,
    BrokerError,
    ClientError,
    ClosedError,
    CommitInDoubtError,
    ConnectionLostError,
    MisuseError,
    TimedOutError,
    TransactionAbortableError,
    TransactionAbortedError,
    UnreachableError,
)
from fencepost.client.outcomes import Outcome, outcome_of
from fencepost.client.prepared import SINCE_TWO_PHASE, PreparedTxnState, two_phase_refusal
from fencepost.client.transaction_errors import fenced_error, in_doubt, not_open_error, timed_out_error, unconfirmed
from fencepost.protocol.errors import ErrorCode
from fencepost.protocol.messages import (
    AddOffsetsToTxnRequest,
    AddPartitionsToTxnRequest,
    EndTxnRequest,
    InitProducerIdRequest,
    InitProducerIdResponse,
    TxnOffsetCommitRequest,
)
from fencepost.protocol.messages.add_partitions_to_txn import AddPartitionsToTxnTopic
from fencepost.protocol.messages.find_coordinator import GROUP, TRANSACTION
from fencepost.protocol.messages.txn_offset_commit import TxnOffsetCommitRequestPartition, TxnOffsetCommitRequestTopic
from fencepost.protocol.types import NO_PRODUCER, ProducerIdAndEpoch, TopicPartition

#: Newest versions that a client may use while transaction.version is below 2 (facts §9.3).
BEFORE_TV2: Final = {"EndTxn": 4, "TxnOffsetCommit": 4, "Produce": 11}
#: Least versions that it must use from then on.
SINCE_TV2: Final = {"EndTxn": 5, "TxnOffsetCommit": 5, "Produce": 12}

#: The call may succeed when it is made again.
MAY_PASS: Final = (TimedOutError, AuthenticationError)

#: Newest versions that name topics; the ones after them need topic ids.
_NAMES_TOPICS_UNTIL: Final = {"TxnOffsetCommit": 5}


class StaleProducerEpochError(TransactionAbortableError):
    """The producer id and epoch are old ones: timed out or fenced, which InitProducerId tells."""

    def __init__(self, what: str, *, is_forgotten: bool = False) -> None:
        super().__init__(what)
        self.is_forgotten = is_forgotten
        """Whether the coordinator does not know the transactional id under this producer id any more."""


class OffsetAndMetadata(NamedTuple):
    """An offset to commit: that of the next record to read (0 or more), with a text and a leader epoch (-1: none)."""

    offset: int
    metadata: str = ""
    leader_epoch: int = -1


def with_metadata(position: int | OffsetAndMetadata) -> OffsetAndMetadata:
    """A position as an OffsetAndMetadata; a number has neither metadata nor a leader epoch."""
    return position if isinstance(position, OffsetAndMetadata) else OffsetAndMetadata(position)


def checked_position(what: str, given: int | OffsetAndMetadata) -> OffsetAndMetadata:
    """A caller's position as an OffsetAndMetadata.  `what`: its name in messages.  Raises TypeError, ValueError."""
    found = with_metadata(given)
    offset = whole_number(what, found.offset, -(2**63))
    if offset < 0:
        raise ValueError(f"{what}={offset}: an offset is 0 or more")
    metadata = text(f"metadata of {what}", found.metadata)
    return OffsetAndMetadata(offset, metadata, whole_number(f"leader_epoch of {what}", found.leader_epoch, -1, INT32))


def checked_positions(what: str, given: object) -> dict[TopicPartition, OffsetAndMetadata]:
    """A caller's positions by partition, as `checked_position` has each.  Raises TypeError, ValueError."""
    return {place(at): checked_position(f"{what}[{at}]", each) for at, each in pairs(what, given).items()}


class ConsumerGroupMetadata(NamedTuple):
    """The group that commits offsets, and its member that does.  Without a member: -1, "", None."""

    group_id: str
    generation_id: int = -1
    member_id: str = ""
    group_instance_id: str | None = None


def check_group(group: str | ConsumerGroupMetadata) -> ConsumerGroupMetadata:
    """The group, with its member, that commits positions.

    Raises MisuseError for an empty group, TypeError and ValueError for what is none.
    """
    member = group if isinstance(group, ConsumerGroupMetadata) else ConsumerGroupMetadata(group)
    if not text("group", member.group_id):
        raise MisuseError("send_offsets_to_transaction() needs a group: its name is empty")
    whole_number("generation_id", member.generation_id, -1, INT32)
    text("member_id", member.member_id)
    text("group_instance_id", member.group_instance_id or "")
    return member


class TransactionalId:
    """Sends the requests of one transactional id: InitProducerId, the two adds, TxnOffsetCommit and EndTxn.

    `two_phase`: its transactions have no time-out (KIP-939).
    """

    def __init__(self, cluster: Cluster, name: str, *, two_phase: bool = False) -> None:
        self._cluster = cluster
        self.name = name
        self.two_phase = two_phase
        self.unsettled = False
        """Whether a request of this epoch is unanswered and given up: it may arrive in the next transaction."""
        self._end_unsettled = False
        """Whether an EndTxn of the open transaction was lost sight of, too."""

    async def init(
        self, timeout_ms: int, current: ProducerIdAndEpoch = NO_PRODUCER, deadline: Deadline | None = None
    ) -> ProducerIdAndEpoch:
        """Take the id over, or (with the current pair) get a new epoch for it; the new producer id and epoch.

        Raises ProducerFencedError if somebody else has it, BrokerError if the broker refuses.
        """
        answer = await self._claim(timeout_ms, current, deadline)
        return ProducerIdAndEpoch.of(answer.producer_id, answer.producer_epoch)

    async def init_keeping(self, timeout_ms: int) -> tuple[ProducerIdAndEpoch, PreparedTxnState]:
        """Take the id over, but leave its transaction open; the new producer id and epoch, which end it, and its state.

        Only with `two_phase`.  Raises UnsupportedByBrokerError where the broker does not do that, else as `init`.
        """
        answer = await self._claim(timeout_ms, keep=True)
        kept = PreparedTxnState(answer.ongoing_txn_producer_id, answer.ongoing_txn_producer_epoch)
        return ProducerIdAndEpoch.of(answer.producer_id, answer.producer_epoch), kept

    async def _claim(
        self,
        timeout_ms: int,
        current: ProducerIdAndEpoch = NO_PRODUCER,
        deadline: Deadline | None = None,
        *,
        keep: bool = False,
    ) -> InitProducerIdResponse:
        request = InitProducerIdRequest(
            transactional_id=self.name,
            transaction_timeout_ms=timeout_ms,
            producer_id=current.producer_id,
            producer_epoch=current.producer_epoch,
            enable2_pc=self.two_phase,
            keep_prepared_txn=keep,
        )
        plain = _Versions(5, 3 if current != NO_PRODUCER else 0)
        versions = _Versions(SINCE_TWO_PHASE, SINCE_TWO_PHASE) if self.two_phase else plain
        try:
            answer: InitProducerIdResponse = await self._ask(
                "InitProducerId", request, lambda found: found.error_code, deadline, versions=versions
            )
        except ClientError as error:
            if not self.two_phase:
                raise
            raise two_phase_refusal(error, keep=keep) from error
        self.unsettled = self._end_unsettled = False
        return answer

    async def add_partitions(
        self, who: ProducerIdAndEpoch, partitions: Sequence[TopicPartition], deadline: Deadline | None = None
    ) -> None:
        """Register partitions before they are written to; for transaction.version 0 and 1 only."""
        by_topic: dict[str, list[int]] = {}
        for at in partitions:
            by_topic.setdefault(at.topic, []).append(at.partition)
        request = AddPartitionsToTxnRequest(
            transactional_id=self.name,
            producer_id=who.producer_id,
            producer_epoch=who.producer_epoch,
            topics=[AddPartitionsToTxnTopic(name=name, partitions=numbers) for name, numbers in by_topic.items()],
        )
        await self._ask("AddPartitionsToTxn", request, _worst_partition, deadline, versions=_Versions(3))

    async def add_offsets(self, who: ProducerIdAndEpoch, group_id: str, deadline: Deadline | None = None) -> None:
        """Register the group before its offsets are committed; for transaction.version 0 and 1 only."""
        request = AddOffsetsToTxnRequest(
            transactional_id=self.name,
            producer_id=who.producer_id,
            producer_epoch=who.producer_epoch,
            group_id=group_id,
        )
        await self._ask("AddOffsetsToTxn", request, lambda found: found.error_code, deadline)

    async def commit_offsets(
        self,
        who: ProducerIdAndEpoch,
        group: ConsumerGroupMetadata,
        offsets: Mapping[TopicPartition, OffsetAndMetadata],
        tv2: bool,
        deadline: Deadline | None = None,
    ) -> None:
        """Commit offsets of a group as part of the transaction (TxnOffsetCommit)."""
        by_topic: dict[str, list[TxnOffsetCommitRequestPartition]] = {}
        for at, position in offsets.items():
            by_topic.setdefault(at.topic, []).append(
                TxnOffsetCommitRequestPartition(
                    partition_index=at.partition,
                    committed_offset=position.offset,
                    committed_leader_epoch=position.leader_epoch,
                    committed_metadata=position.metadata,
                )
            )
        request = TxnOffsetCommitRequest(
            transactional_id=self.name,
            group_id=group.group_id,
            producer_id=who.producer_id,
            producer_epoch=who.producer_epoch,
            generation_id=group.generation_id,
            member_id=group.member_id,
            group_instance_id=group.group_instance_id,
            topics=[TxnOffsetCommitRequestTopic(name=name, partitions=parts) for name, parts in by_topic.items()],
        )
        await self._ask(
            "TxnOffsetCommit",
            request,
            lambda found: _worst(part.error_code for topic in found.topics for part in topic.partitions),
            deadline,
            (GROUP, group.group_id),
            _Versions.of("TxnOffsetCommit", tv2),
        )

    async def end(
        self, who: ProducerIdAndEpoch, commit: bool, tv2: bool, deadline: Deadline | None = None
    ) -> ProducerIdAndEpoch:
        """End the transaction; the producer id and epoch for the next one.

        Raises CommitInDoubtError if the outcome cannot be known any more, ClosedError if EndTxn was never sent, and
        TransactionTimedOutError also where an abort is answered well, but by a version that cannot carry the pair to go
        on with.
        """
        request = EndTxnRequest(
            transactional_id=self.name, producer_id=who.producer_id, producer_epoch=who.producer_epoch, committed=commit
        )
        earlier, self.unsettled = self.unsettled, False
        try:
            answer = await self._ask(
                "EndTxn", request, lambda found: found.error_code, deadline, versions=_Versions.of("EndTxn", tv2)
            )
        except (TransactionAbortableError, StaleProducerEpochError, BrokerError) as error:
            is_forgotten = isinstance(error, StaleProducerEpochError) and error.is_forgotten
            if commit and (is_forgotten or not tv2) and (self.unsettled or self._end_unsettled):
                # The first one may have been carried out, and the id have expired since, or something late have come
                # between (KAFKA-17754).
                lost = f"the answer to the commit of {self.name!r} was lost"
                raise in_doubt(f"{lost}, and its repetition refused: {error}") from error
            if commit and isinstance(error, BrokerError) and error.code == ErrorCode.UNKNOWN_SERVER_ERROR:
                raise in_doubt(
                    f"what went wrong with the commit of {self.name!r} the broker does not tell: {error}"
                ) from error
            raise
        except ClosedError as error:
            if commit and (self.unsettled or self._end_unsettled):
                raise in_doubt(f"the producer was closed before the commit of {self.name!r} was answered") from error
            raise
        finally:
            self._end_unsettled = self._end_unsettled or self.unsettled
            self.unsettled = self.unsettled or earlier
        self._end_unsettled = False
        if answer.producer_id >= 0:
            return ProducerIdAndEpoch.of(answer.producer_id, answer.producer_epoch)
        if answer.transaction_timed_out:
            raise timed_out_error(self.name)
        return who

    async def complete(self, prepared: PreparedTxnState) -> bool:
        """Commit a transaction that another process prepared, by its own pair; whether it is known to be committed.

        False: the id was used since, so it had ended before, and only its own process was told how.
        Raises TransactionAbortedError where it was aborted, OutcomeUnknownError where no answer came in time.
        """
        try:
            await self.end(prepared.producer_id_and_epoch, commit=True, tv2=True)
        except StaleProducerEpochError:
            return False
        except CommitInDoubtError as error:
            if isinstance(error.__cause__, StaleProducerEpochError):
                return False
            raise
        except MAY_PASS as error:
            raise unconfirmed(error, "complete_transaction") from error
        except TransactionAbortableError as error:
            raise TransactionAbortedError(
                f"the prepared transaction {prepared} of {self.name!r} is not there any more: it was aborted, or "
                f"nothing was written in it ({error}). Send its records in a new one"
            ) from error
        return True

    async def end_what_came_late(self, who: ProducerIdAndEpoch) -> None:
        """Abort a transaction that a late request began after the last end; for transaction.version 0 and 1.

        If it is open when `init` asks for a new epoch, Apache Kafka aborts it under an epoch of its own, and answers
        PRODUCER_FENCED from then on.
        """
        try:
            await self.end(who, commit=False, tv2=False)
        except (TransactionAbortableError, BrokerError):
            pass  # nothing is open, or `init` is told what is the matter

    async def _ask(
        self,
        name: str,
        request: Any,
        error_of: Any,
        deadline: Deadline | None,
        coordinator: tuple[int, str] | None = None,
        versions: _Versions | None = None,
    ) -> Any:
        cluster = self._cluster
        deadline = deadline or cluster.deadline(f"{name} of transactional id {self.name!r}")
        kind, key = coordinator or (TRANSACTION, self.name)
        most, least = versions or _Versions()
        while True:
            node = await cluster.coordinator(kind, key, deadline)
            try:
                answer = await deadline.within(cluster.call(node, request, most=most, least=least))
            except (ConnectionLostError, UnreachableError) as lost:
                self.unsettled = True
                cluster.forget_coordinator(kind, key)
                await deadline.pause(lost)
                continue
            except (asyncio.CancelledError, TimedOutError):
                self.unsettled = True
                raise
            error = ErrorCode(error_of(answer))
            outcome = outcome_of(name, error)
            if outcome is Outcome.DONE:
                return answer
            if outcome is Outcome.FIND_COORDINATOR:
                cluster.forget_coordinator(kind, key)
            elif outcome is not Outcome.RETRY:
                timed_out = bool(getattr(answer, "transaction_timed_out", False))
                is_commit = isinstance(request, EndTxnRequest) and request.committed
                # After a lost answer the first one may have been carried out.
                is_only_commit = is_commit and not (self.unsettled or self._end_unsettled)
                raise self._error(name, error, outcome, timed_out=timed_out, is_only_commit=is_only_commit)
            await deadline.pause(error.name)

    def _error(
        self, name: str, error: ErrorCode, outcome: Outcome, *, timed_out: bool, is_only_commit: bool
    ) -> Exception:
        what = f"{name} of transactional id {self.name!r} was answered {error.name}"
        if timed_out:
            return timed_out_error(self.name)
        if name == "InitProducerId" and error in (ErrorCode.PRODUCER_FENCED, ErrorCode.INVALID_PRODUCER_EPOCH):
            return fenced_error(self.name)
        if outcome is Outcome.STALE:
            return StaleProducerEpochError(what, is_forgotten=error is ErrorCode.INVALID_PRODUCER_ID_MAPPING)
        if is_only_commit and error is ErrorCode.INVALID_TXN_STATE:
            return not_open_error(self.name, what)
        if outcome is Outcome.ABORTABLE:
            return TransactionAbortableError(f"{what}: abort the transaction, then go on")
        return BrokerError(error, what)


class _Versions(NamedTuple):
    """The newest (None: any) and the least version of a request that may be used."""

    most: int | None = None
    least: int = 0

    @classmethod
    def of(cls, name: str, tv2: bool) -> _Versions:
        return cls(_NAMES_TOPICS_UNTIL.get(name), SINCE_TV2[name]) if tv2 else cls(BEFORE_TV2[name])


def _worst(codes: Any) -> int:
    """The error code that decides about a whole answer: one that is not retriable comes first; 0: none."""
    worst = 0
    for code in codes:
        if code and (not worst or ErrorCode(worst).retriable):
            worst = code
    return worst


def _worst_partition(answer: Any) -> int:
    codes = [part.partition_error_code for topic in answer.results_by_topic for part in topic.results_by_partition]
    # OPERATION_NOT_ATTEMPTED only says that another partition has an error.
    return _worst(code for code in codes if code != ErrorCode.OPERATION_NOT_ATTEMPTED) or _worst(codes)
