"""TxnOffsetCommit (28): commit offsets of a group as part of a transaction (facts §7).

v0-1  COORDINATOR_LOAD_IN_PROGRESS is told as COORDINATOR_NOT_AVAILABLE
v2    leader epochs
v3    flexible; member and generation (KIP-447)
v4    TRANSACTION_ABORTABLE may be answered
v5    the offsets partition is added to the transaction here (KIP-890 part 2)
v6    topic ids; GROUP_ID_NOT_FOUND may be answered
"""

from __future__ import annotations

from functools import partial

from fencepost.broker.authorizer import Operation, Resource
from fencepost.broker.leader.offset_plan import OffsetPlan, Place
from fencepost.broker.network.pacing import HandlerSteps, awaited, in_steps
from fencepost.broker.network.registry import Reply, serves
from fencepost.broker.network.request_context import RequestContext
from fencepost.broker.node import Node
from fencepost.protocol.errors import ErrorCode
from fencepost.protocol.messages import TxnOffsetCommitRequest, TxnOffsetCommitResponse
from fencepost.protocol.messages.txn_offset_commit import (
    TxnOffsetCommitRequestPartition,
    TxnOffsetCommitResponsePartition,
    TxnOffsetCommitResponseTopic,
)
from fencepost.protocol.steps import ITEM, Pace, Steps, each
from fencepost.protocol.types import CONSUMER_OFFSETS

_LOAD_IN_PROGRESS_SINCE = 2
_GROUP_NOT_FOUND_SINCE = 6


@serves(TxnOffsetCommitRequest, in_turn=True)
@in_steps
def txn_offset_commit(request: TxnOffsetCommitRequest, context: RequestContext, node: Node) -> HandlerSteps[Reply]:
    pace, plan = Pace(), OffsetPlan(request, context, node)
    refused = _unauthorized(request, context)
    if refused is None and CONSUMER_OFFSETS not in node.topics.by_name:
        yield from awaited(node.ensure_coordinator(CONSUMER_OFFSETS))
    yield from plan.look_up(refused, pace)
    lsn = yield from plan.commit()
    response = yield from _response(request, plan.errors, context.version, pace)
    response.transaction_timed_out = plan.timed_out()
    return Reply(response, lsn)


def _unauthorized(request: TxnOffsetCommitRequest, context: RequestContext) -> ErrorCode | None:
    if not context.may(Operation.WRITE, Resource.TRANSACTIONAL_ID, request.transactional_id):
        return ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED
    if not context.may(Operation.READ, Resource.GROUP, request.group_id):
        return ErrorCode.GROUP_AUTHORIZATION_FAILED
    return None


def _response(
    request: TxnOffsetCommitRequest, errors: dict[Place, ErrorCode], version: int, pace: Pace
) -> Steps[TxnOffsetCommitResponse]:
    topics = []
    for number, topic in enumerate(request.topics):
        yield from pace.spend(ITEM)
        parts = yield from each(topic.partitions, partial(_result, errors, number, version), pace)
        topics.append(TxnOffsetCommitResponseTopic(name=topic.name, topic_id=topic.topic_id, partitions=parts))
    return TxnOffsetCommitResponse(topics=topics)


def _result(
    errors: dict[Place, ErrorCode], number: int, version: int, asked: TxnOffsetCommitRequestPartition
) -> TxnOffsetCommitResponsePartition:
    index = asked.partition_index
    error = _known_to(version, errors[number, index])
    return TxnOffsetCommitResponsePartition(partition_index=index, error_code=error)


def _known_to(version: int, error: ErrorCode) -> ErrorCode:
    if version < _LOAD_IN_PROGRESS_SINCE and error is ErrorCode.COORDINATOR_LOAD_IN_PROGRESS:
        return ErrorCode.COORDINATOR_NOT_AVAILABLE
    if version < _GROUP_NOT_FOUND_SINCE and error is ErrorCode.GROUP_ID_NOT_FOUND:
        return ErrorCode.ILLEGAL_GENERATION
    return error
