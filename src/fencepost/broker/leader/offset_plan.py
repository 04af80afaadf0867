"""The plan of one TxnOffsetCommit: the group's offsets partition is verified, or added, then written (facts §7.2).

Between two of these steps others may be served, so whatever was found is looked at again before it is written.
"""

from __future__ import annotations

from typing import Final

from fencepost.broker.authorizer import Operation, Resource
from fencepost.broker.leader.verification import Mode, Verified, verify
from fencepost.broker.network.pacing import HandlerSteps, awaited
from fencepost.broker.network.request_context import RequestContext
from fencepost.broker.node import Node
from fencepost.coordinator.group import CommitFor, Committed, CommittedOffset
from fencepost.log.partition import Refused
from fencepost.log.producer_state import VerificationGuard
from fencepost.protocol.errors import ErrorCode
from fencepost.protocol.messages import TxnOffsetCommitRequest
from fencepost.protocol.messages.txn_offset_commit import TxnOffsetCommitRequestTopic
from fencepost.protocol.steps import ITEM, Pace, Steps
from fencepost.protocol.types import (
    CONSUMER_OFFSETS,
    NO_LSN,
    LeaderEpoch,
    Lsn,
    Offset,
    ProducerIdAndEpoch,
    TopicPartition,
)

TOPIC_IDS_SINCE: Final = 6
IMPLICIT_ADD_SINCE: Final = 5

Place = tuple[int, int]
"""A partition's place in the request: the number of its topic, and its index."""


class OffsetPlan:
    """One TxnOffsetCommit on its way: its offsets, and the error of each."""

    __slots__ = ("_context", "_node", "_offsets", "_places", "_producer", "_request", "errors")

    def __init__(self, request: TxnOffsetCommitRequest, context: RequestContext, node: Node) -> None:
        self._request = request
        self._context = context
        self._node = node
        self._producer = ProducerIdAndEpoch.of(request.producer_id, request.producer_epoch)
        self._offsets: dict[TopicPartition, CommittedOffset] = {}
        self._places: dict[Place, TopicPartition] = {}
        """The partitions whose offsets are to be committed, by their places in the request."""
        self.errors: dict[Place, ErrorCode] = {}
        """The error of each offset that is not committed; of every one once they are."""

    def look_up(self, refused: ErrorCode | None, pace: Pace) -> Steps[None]:
        """Find out which offsets can be committed: none if the whole request is `refused`."""
        now = self._node.clock.now()
        for number, topic in enumerate(self._request.topics):
            yield from pace.spend(ITEM)
            name, unknown = self._name(topic)
            for asked in topic.partitions:
                yield from pace.spend(ITEM)
                place = number, asked.partition_index
                if refused is not None:
                    self.errors[place] = refused
                elif name and not self._context.may(Operation.READ, Resource.TOPIC, name):
                    self.errors[place] = ErrorCode.TOPIC_AUTHORIZATION_FAILED
                elif not self._node.storage.exists(name, asked.partition_index):
                    self.errors[place] = unknown
                else:
                    self._places[place] = at = TopicPartition(name, asked.partition_index)
                    self._offsets[at] = CommittedOffset(
                        Offset(asked.committed_offset),
                        LeaderEpoch(asked.committed_leader_epoch),
                        asked.committed_metadata or "",
                        now,
                    )
        if pace.pauses:
            self._drop_deleted()

    def _name(self, topic: TxnOffsetCommitRequestTopic) -> tuple[str, ErrorCode]:
        """The topic's name, empty where no topic has this id; and the error for a partition that is not there."""
        if self._context.version < TOPIC_IDS_SINCE:
            return topic.name, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        known = self._node.topics.by_id.get(topic.topic_id)
        if known is None:
            return "", ErrorCode.UNKNOWN_TOPIC_ID
        return known.name, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION

    def _drop_deleted(self) -> None:
        """Leave out topics that were deleted since: their offsets would be those of the next ones of their names."""
        for place, at in list(self._places.items()):
            name, unknown = self._name(self._request.topics[place[0]])
            if name != at.topic or not self._node.storage.exists(*at):
                self.errors[place] = unknown
                del self._places[place]
                self._offsets.pop(at, None)

    def commit(self) -> HandlerSteps[Lsn]:
        """Commit the offsets that can be; the lsn that the answer depends on."""
        if not self._offsets:
            return NO_LSN
        committed = yield from self._commit()
        for place, at in self._places.items():
            self.errors[place] = committed.errors[at]
        return committed.lsn

    def timed_out(self) -> bool:
        """Whether something is refused because the transaction was open for too long."""
        return any(self.errors.values()) and self._node.transactions.timed_out(
            self._request.transactional_id, *self._producer
        )

    def _commit(self) -> HandlerSteps[Committed]:
        """Verify, or add, the partition of the group's offsets, and write them: steps 6 to 10 of facts §7.2."""
        request, node, version = self._request, self._node, self._context.version
        if CONSUMER_OFFSETS not in node.topics.by_name:  # it could not be made
            return self._refused(ErrorCode.COORDINATOR_NOT_AVAILABLE)
        error = node.groups.check(request.group_id)
        at = TopicPartition(CONSUMER_OFFSETS, node.groups.partition_for(request.group_id))
        partition = node.storage.partition(*at)
        if error or partition is None:
            return self._refused(error or ErrorCode.COORDINATOR_NOT_AVAILABLE)
        found = partition.start_verification(*self._producer, -1, version >= IMPLICIT_ADD_SINCE, node.clock.now())
        if isinstance(found, Refused):
            return self._refused(self._of_log(found.error), node.storage.lsn)
        if found is None:
            return self._write(None)
        verified = verify(node, Mode.of_offset_commit(version), request.transactional_id, *self._producer, [at])
        if not isinstance(verified, Verified):
            verified = yield from awaited(verified)
            self._drop_deleted()
            if node.storage.partition(*at) is not partition:
                return self._refused(ErrorCode.COORDINATOR_NOT_AVAILABLE)
        error = verified.offsets_error(at)
        if error:
            return self._refused(error, max(verified.lsn, node.storage.lsn))
        committed = self._write(found)
        return committed._replace(lsn=max(verified.lsn, committed.lsn))

    def _refused(self, error: ErrorCode, lsn: Lsn = NO_LSN) -> Committed:
        return Committed(dict.fromkeys(self._offsets, error), lsn)

    def _of_log(self, error: ErrorCode) -> ErrorCode:
        """The error of offsets that the log refuses; from v5 on that of a transaction timed out or loading instead."""
        name, transactions = self._request.transactional_id, self._node.transactions
        if self._context.version >= IMPLICIT_ADD_SINCE:
            if transactions.timed_out(name, *self._producer):
                return ErrorCode.TRANSACTION_ABORTABLE
            if transactions.is_loading(name):
                return ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
        return error

    def _write(self, guard: VerificationGuard | None) -> Committed:
        request = self._request
        who = CommitFor(request.group_id, request.member_id, request.group_instance_id, request.generation_id)
        return self._node.groups.commit_transactional_offsets(who, self._offsets, self._producer, guard)
