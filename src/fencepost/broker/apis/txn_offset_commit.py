"""TxnOffsetCommit (28): commit offsets of a group as part of a transaction (facts §7).

v0-1  COORDINATOR_LOAD_IN_PROGRESS is told as COORDINATOR_NOT_AVAILABLE
v2    leader epochs
v3    flexible; member and generation (KIP-447)
v4    TRANSACTION_ABORTABLE may be answered
v5    the offsets partition is added to the transaction here (KIP-890 part 2)
v6    topic ids; GROUP_ID_NOT_FOUND may be answered
"""

from __future__ import annotations

from collections.abc import Awaitable, Mapping

from fencepost.broker.authorizer import Operation, Resource
from fencepost.broker.leader.verification import Mode, Verified, verify
from fencepost.broker.metadata.topic_rules import CONSUMER_OFFSETS
from fencepost.broker.network.registry import Later, Reply, serves
from fencepost.broker.network.request_context import RequestContext
from fencepost.broker.node import Node
from fencepost.coordinator.group import CommitFor, Committed, CommittedOffset
from fencepost.log.partition import Refused
from fencepost.log.producer_state import VerificationGuard
from fencepost.protocol.errors import ErrorCode
from fencepost.protocol.messages import TxnOffsetCommitRequest, TxnOffsetCommitResponse
from fencepost.protocol.messages.txn_offset_commit import (
    TxnOffsetCommitRequestTopic,
    TxnOffsetCommitResponsePartition,
    TxnOffsetCommitResponseTopic,
)
from fencepost.protocol.types import Offset, ProducerIdAndEpoch, TopicPartition

_TOPIC_IDS_SINCE = 6
_GROUP_NOT_FOUND_SINCE = 6
_IMPLICIT_ADD_SINCE = 5
Places = dict[tuple[int, int], ErrorCode]
Offsets = Mapping[TopicPartition, CommittedOffset]


@serves(TxnOffsetCommitRequest, in_turn=True)
def txn_offset_commit(request: TxnOffsetCommitRequest, context: RequestContext, node: Node) -> Reply | Later:
    if CONSUMER_OFFSETS in node.topics.by_name or _unauthorized(request, context) is not None:
        return _commit_each(request, context, node)
    return _made_first(request, context, node)


async def _made_first(request: TxnOffsetCommitRequest, context: RequestContext, node: Node) -> Reply:
    await node.ensure_coordinator(CONSUMER_OFFSETS)
    reply = _commit_each(request, context, node)
    return reply if isinstance(reply, Reply) else await reply


def _commit_each(request: TxnOffsetCommitRequest, context: RequestContext, node: Node) -> Reply | Later:
    errors: Places = {}
    refused = _unauthorized(request, context)
    offsets: dict[TopicPartition, CommittedOffset] = {}
    places: dict[tuple[int, int], TopicPartition] = {}
    now = node.clock.now()
    for number, topic in enumerate(request.topics):
        name, unknown = _name(topic, context, node)
        for asked in topic.partitions:
            place = number, asked.partition_index
            if refused is not None:
                errors[place] = refused
            elif name and not context.may(Operation.READ, Resource.TOPIC, name):
                errors[place] = ErrorCode.TOPIC_AUTHORIZATION_FAILED
            elif not node.storage.exists(name, asked.partition_index):
                errors[place] = unknown
            else:
                at = TopicPartition(name, asked.partition_index)
                places[place] = at
                offsets[at] = CommittedOffset(
                    Offset(asked.committed_offset), asked.committed_leader_epoch, asked.committed_metadata or "", now
                )
    version = context.version
    committed = _commit(request, offsets, version, node) if offsets else Committed({}, 0)
    if isinstance(committed, Committed):
        return _answer(request, errors, places, committed, version, node)
    return _answer_later(request, errors, places, committed, version, node)


async def _answer_later(
    request: TxnOffsetCommitRequest,
    errors: Places,
    places: Mapping[tuple[int, int], TopicPartition],
    committed: Awaitable[Committed],
    version: int,
    node: Node,
) -> Reply:
    return _answer(request, errors, places, await committed, version, node)


def _answer(
    request: TxnOffsetCommitRequest,
    errors: Places,
    places: Mapping[tuple[int, int], TopicPartition],
    committed: Committed,
    version: int,
    node: Node,
) -> Reply:
    errors |= {place: _error_for(committed.errors[at], version) for place, at in places.items()}
    response = _response(request, errors)
    response.transaction_timed_out = any(errors.values()) and node.transactions.timed_out(
        request.transactional_id, *_producer(request)
    )
    return Reply(response, committed.lsn)


def _unauthorized(request: TxnOffsetCommitRequest, context: RequestContext) -> ErrorCode | None:
    if not context.may(Operation.WRITE, Resource.TRANSACTIONAL_ID, request.transactional_id):
        return ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED
    if not context.may(Operation.READ, Resource.GROUP, request.group_id):
        return ErrorCode.GROUP_AUTHORIZATION_FAILED
    return None


def _name(topic: TxnOffsetCommitRequestTopic, context: RequestContext, node: Node) -> tuple[str, ErrorCode]:
    """The topic's name, and what is said if there is no such topic."""
    if context.version < _TOPIC_IDS_SINCE:
        return topic.name, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    known = node.topics.by_id.get(topic.topic_id)
    return ("", ErrorCode.UNKNOWN_TOPIC_ID) if known is None else (known.name, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)


def _commit(
    request: TxnOffsetCommitRequest, offsets: Offsets, version: int, node: Node
) -> Committed | Awaitable[Committed]:
    """Verify, or add, the offsets partition; then write (facts §7.2, 6-10)."""
    if CONSUMER_OFFSETS not in node.topics.by_name:  # it could not be made
        return Committed(dict.fromkeys(offsets, ErrorCode.COORDINATOR_NOT_AVAILABLE), 0)
    error = node.groups.check(request.group_id)
    at = TopicPartition(CONSUMER_OFFSETS, node.groups.partition_for(request.group_id))
    partition = node.storage.partition(*at)
    if error or partition is None:
        return Committed(dict.fromkeys(offsets, error or ErrorCode.COORDINATOR_NOT_AVAILABLE), 0)
    name, (pid, epoch) = request.transactional_id, _producer(request)
    found = partition.start_verification(pid, epoch, -1, version >= _IMPLICIT_ADD_SINCE)
    if isinstance(found, Refused):
        error = found.error
        if version >= _IMPLICIT_ADD_SINCE:
            if node.transactions.timed_out(name, pid, epoch):
                error = ErrorCode.TRANSACTION_ABORTABLE
            elif node.transactions.is_loading(name):
                error = ErrorCode.COORDINATOR_LOAD_IN_PROGRESS  # it may have been a time-out
        return Committed(dict.fromkeys(offsets, error), node.storage.lsn)
    if found is None:
        return _write(request, offsets, node, None)
    verified = verify(node, Mode.of_offset_commit(version), name, pid, epoch, [at])
    if isinstance(verified, Verified):
        return _write_verified(request, offsets, node, found, at, verified)
    return _write_later(request, offsets, node, found, at, verified)


async def _write_later(
    request: TxnOffsetCommitRequest,
    offsets: Offsets,
    node: Node,
    guard: VerificationGuard,
    at: TopicPartition,
    verified: Awaitable[Verified],
) -> Committed:
    partition, answer = node.storage.partition(*at), await verified
    if node.storage.partition(*at) is not partition:
        return Committed(dict.fromkeys(offsets, ErrorCode.COORDINATOR_NOT_AVAILABLE), 0)
    return _write_verified(request, offsets, node, guard, at, answer)


def _write_verified(
    request: TxnOffsetCommitRequest,
    offsets: Offsets,
    node: Node,
    guard: VerificationGuard,
    at: TopicPartition,
    verified: Verified,
) -> Committed:
    error = verified.offsets_error(at)
    if error:
        return Committed(dict.fromkeys(offsets, error), max(verified.lsn, node.storage.lsn))
    committed = _write(request, offsets, node, guard)
    return committed._replace(lsn=max(verified.lsn, committed.lsn))


def _write(request: TxnOffsetCommitRequest, offsets: Offsets, node: Node, guard: VerificationGuard | None) -> Committed:
    who = CommitFor(request.group_id, request.member_id, request.group_instance_id, request.generation_id)
    return node.groups.commit_transactional_offsets(who, offsets, _producer(request), guard)


def _producer(request: TxnOffsetCommitRequest) -> ProducerIdAndEpoch:
    return ProducerIdAndEpoch.of(request.producer_id, request.producer_epoch)


def _error_for(error: ErrorCode, version: int) -> ErrorCode:
    if version < 2 and error is ErrorCode.COORDINATOR_LOAD_IN_PROGRESS:
        return ErrorCode.COORDINATOR_NOT_AVAILABLE
    if version < _GROUP_NOT_FOUND_SINCE and error is ErrorCode.GROUP_ID_NOT_FOUND:
        return ErrorCode.ILLEGAL_GENERATION
    return error


def _response(request: TxnOffsetCommitRequest, errors: Places) -> TxnOffsetCommitResponse:
    return TxnOffsetCommitResponse(
        topics=[
            TxnOffsetCommitResponseTopic(
                name=topic.name,
                topic_id=topic.topic_id,
                partitions=[
                    TxnOffsetCommitResponsePartition(
                        partition_index=asked.partition_index, error_code=errors[number, asked.partition_index]
                    )
                    for asked in topic.partitions
                ],
            )
            for number, topic in enumerate(request.topics)
        ]
    )
