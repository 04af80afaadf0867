"""TxnOffsetCommit (28): commit offsets of a group as part of a transaction (facts §7).

v0-1  COORDINATOR_LOAD_IN_PROGRESS is told as COORDINATOR_NOT_AVAILABLE
v2    leader epochs
v3    flexible; member and generation (KIP-447)
v4    TRANSACTION_ABORTABLE may be answered
v5    the offsets partition is added to the transaction here (KIP-890 part 2)
v6    topic ids; GROUP_ID_NOT_FOUND may be answered
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import NamedTuple

from fencepost.broker.authorizer import Operation, Resource
from fencepost.broker.leader.verification import Mode, Verified, verify
from fencepost.broker.metadata.topic_rules import CONSUMER_OFFSETS
from fencepost.broker.network.pacing import HandlerSteps, awaited, in_steps
from fencepost.broker.network.registry import Reply, serves
from fencepost.broker.network.request_context import RequestContext
from fencepost.broker.node import Node
from fencepost.coordinator.group import CommitFor, Committed, CommittedOffset
from fencepost.log.partition import Refused
from fencepost.log.producer_state import VerificationGuard
from fencepost.protocol.errors import ErrorCode
from fencepost.protocol.messages import TxnOffsetCommitRequest, TxnOffsetCommitResponse
from fencepost.protocol.messages.txn_offset_commit import (
    TxnOffsetCommitRequestPartition,
    TxnOffsetCommitRequestTopic,
    TxnOffsetCommitResponsePartition,
    TxnOffsetCommitResponseTopic,
)
from fencepost.protocol.steps import ITEM, Pace, Steps, each
from fencepost.protocol.types import Offset, ProducerIdAndEpoch, TopicPartition

_TOPIC_IDS_SINCE = 6
_GROUP_NOT_FOUND_SINCE = 6
_IMPLICIT_ADD_SINCE = 5
Places = dict[tuple[int, int], ErrorCode]
Offsets = Mapping[TopicPartition, CommittedOffset]


class _Asked(NamedTuple):
    """What is to be committed, where it stands in the request, and what is not."""

    offsets: dict[TopicPartition, CommittedOffset]
    places: dict[tuple[int, int], TopicPartition]
    errors: Places


@serves(TxnOffsetCommitRequest, in_turn=True)
@in_steps
def txn_offset_commit(request: TxnOffsetCommitRequest, context: RequestContext, node: Node) -> HandlerSteps[Reply]:
    pace = Pace()
    refused = _unauthorized(request, context)
    if refused is None and CONSUMER_OFFSETS not in node.topics.by_name:
        yield from awaited(node.ensure_coordinator(CONSUMER_OFFSETS))
    asked = _Asked({}, {}, {})
    now = node.clock.now()
    for number, topic in enumerate(request.topics):
        yield from pace.spend(ITEM)
        name, unknown = _name(topic, context, node)
        for each_asked in topic.partitions:
            yield from pace.spend(ITEM)
            place = number, each_asked.partition_index
            if refused is not None:
                asked.errors[place] = refused
            elif name and not context.may(Operation.READ, Resource.TOPIC, name):
                asked.errors[place] = ErrorCode.TOPIC_AUTHORIZATION_FAILED
            elif not node.storage.exists(name, each_asked.partition_index):
                asked.errors[place] = unknown
            else:
                asked.places[place] = at = TopicPartition(name, each_asked.partition_index)
                asked.offsets[at] = CommittedOffset(
                    Offset(each_asked.committed_offset),
                    each_asked.committed_leader_epoch,
                    each_asked.committed_metadata or "",
                    now,
                )
    if pace.pauses:
        _drop_deleted(asked, request, context, node)
    committed = Committed({}, 0)
    if asked.offsets:
        committed = yield from _commit(request, asked, context, node)
    for place, at in asked.places.items():
        yield from pace.spend(1)
        asked.errors[place] = _error_for(committed.errors[at], context.version)
    response = yield from _response(request, asked.errors, pace)
    response.transaction_timed_out = any(asked.errors.values()) and node.transactions.timed_out(
        request.transactional_id, *_producer(request)
    )
    return Reply(response, committed.lsn)


def _drop_deleted(asked: _Asked, request: TxnOffsetCommitRequest, context: RequestContext, node: Node) -> None:
    """A topic may have been deleted since: its positions would be those of the next one of its name."""
    for place, at in list(asked.places.items()):
        name, unknown = _name(request.topics[place[0]], context, node)
        if name != at.topic or not node.storage.exists(*at):
            asked.errors[place] = unknown
            del asked.places[place]
            asked.offsets.pop(at, None)


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
    request: TxnOffsetCommitRequest, asked: _Asked, context: RequestContext, node: Node
) -> HandlerSteps[Committed]:
    """Verify, or add, the offsets partition; then write (facts §7.2, 6-10)."""
    offsets, version = asked.offsets, context.version
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
    if not isinstance(verified, Verified):
        verified = yield from awaited(verified)
        _drop_deleted(asked, request, context, node)
        if node.storage.partition(*at) is not partition:
            return Committed(dict.fromkeys(offsets, ErrorCode.COORDINATOR_NOT_AVAILABLE), 0)
    error = verified.offsets_error(at)
    if error:
        return Committed(dict.fromkeys(offsets, error), max(verified.lsn, node.storage.lsn))
    committed = _write(request, offsets, node, found)
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


def _response(request: TxnOffsetCommitRequest, errors: Places, pace: Pace) -> Steps[TxnOffsetCommitResponse]:
    topics = []
    for number, topic in enumerate(request.topics):
        yield from pace.spend(ITEM)
        told = yield from each(topic.partitions, partial(_told, errors, number), pace)
        topics.append(TxnOffsetCommitResponseTopic(name=topic.name, topic_id=topic.topic_id, partitions=told))
    return TxnOffsetCommitResponse(topics=topics)


def _told(errors: Places, number: int, asked: TxnOffsetCommitRequestPartition) -> TxnOffsetCommitResponsePartition:
    index = asked.partition_index
    return TxnOffsetCommitResponsePartition(partition_index=index, error_code=errors[number, index])
