"""InitProducerId (22): get a producer id and epoch; with a transactional id, fence whoever had it.

v2    flexible
v3    the current producer id and epoch may be given (KIP-360)
v4    PRODUCER_FENCED may be answered
v5    TRANSACTION_ABORTABLE may be answered
v6    two-phase commit (KIP-939), only with transaction.two.phase.commit.enable
"""

from __future__ import annotations

from fencepost.broker.authorizer import CLUSTER_NAME, Operation, Resource
from fencepost.broker.network.registry import Reply, independent, serves
from fencepost.broker.network.request_context import RequestContext
from fencepost.broker.node import Node
from fencepost.protocol.errors import ErrorCode
from fencepost.protocol.messages import InitProducerIdRequest, InitProducerIdResponse
from fencepost.protocol.types import Epoch, Milliseconds, ProducerId


@serves(InitProducerIdRequest, gate=(6, "transaction.two.phase.commit.enable"))
def init_producer_id(request: InitProducerIdRequest, context: RequestContext, node: Node) -> Reply:
    refused = _unauthorized(request, context, node)
    if refused is not None:
        return independent(InitProducerIdResponse(error_code=refused, producer_id=-1, producer_epoch=-1))
    answer = node.transactions.init_producer_id(
        request.transactional_id,
        Milliseconds(request.transaction_timeout_ms),
        ProducerId(request.producer_id),
        Epoch(request.producer_epoch),
        request.enable2_pc,
        request.keep_prepared_txn,
    )
    error = answer.error
    if not error and request.transactional_id is not None:
        node.disconnections.claimed(request.transactional_id, context.peer, answer.producer_id)
    if error is ErrorCode.PRODUCER_FENCED and context.version < 4:
        error = ErrorCode.INVALID_PRODUCER_EPOCH
    response = InitProducerIdResponse(
        error_code=error,
        producer_id=answer.producer_id,
        producer_epoch=answer.producer_epoch,
        ongoing_txn_producer_id=answer.ongoing_producer_id,
        ongoing_txn_producer_epoch=answer.ongoing_producer_epoch,
    )
    return Reply(response, answer.lsn)


def _unauthorized(request: InitProducerIdRequest, context: RequestContext, node: Node) -> ErrorCode | None:
    """The error for a caller who may not do what it asks for (facts §2.2, 1-3); None if it may."""
    name = request.transactional_id
    if name is None:
        may_write = context.may(Operation.IDEMPOTENT_WRITE, Resource.CLUSTER, CLUSTER_NAME) or any(
            context.may(Operation.WRITE, Resource.TOPIC, topic) for topic in node.topics.by_name
        )
        return None if may_write else ErrorCode.CLUSTER_AUTHORIZATION_FAILED
    operations = [Operation.WRITE, *([Operation.TWO_PHASE_COMMIT] if request.enable2_pc else [])]
    if all(context.may(operation, Resource.TRANSACTIONAL_ID, name) for operation in operations):
        return None
    return ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED
