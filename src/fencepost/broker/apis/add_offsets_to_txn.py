"""AddOffsetsToTxn (25): register the offsets of a group with a transaction.

v2    PRODUCER_FENCED may be answered
v3    flexible
v4    TRANSACTION_ABORTABLE may be answered
"""

from __future__ import annotations

from fencepost.broker.authorizer import Operation, Resource
from fencepost.broker.network.older_clients import Call, error_for
from fencepost.broker.network.registry import Later, Reply, independent, serves
from fencepost.broker.network.request_context import RequestContext
from fencepost.broker.node import Node
from fencepost.protocol.errors import ErrorCode
from fencepost.protocol.messages import AddOffsetsToTxnRequest, AddOffsetsToTxnResponse
from fencepost.protocol.types import CONSUMER_OFFSETS, Epoch, ProducerId, TopicPartition


@serves(AddOffsetsToTxnRequest, in_turn=True)
def add_offsets_to_txn(request: AddOffsetsToTxnRequest, context: RequestContext, node: Node) -> Reply | Later:
    if not context.may(Operation.WRITE, Resource.TRANSACTIONAL_ID, request.transactional_id):
        return independent(AddOffsetsToTxnResponse(error_code=ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED))
    if not context.may(Operation.READ, Resource.GROUP, request.group_id):
        return independent(AddOffsetsToTxnResponse(error_code=ErrorCode.GROUP_AUTHORIZATION_FAILED))
    if CONSUMER_OFFSETS in node.topics.by_name:
        return _add(request, context, node)
    return _made_first(request, context, node)


async def _made_first(request: AddOffsetsToTxnRequest, context: RequestContext, node: Node) -> Reply:
    if await node.ensure_coordinator(CONSUMER_OFFSETS):
        return _add(request, context, node)
    return independent(AddOffsetsToTxnResponse(error_code=ErrorCode.COORDINATOR_NOT_AVAILABLE))


def _add(request: AddOffsetsToTxnRequest, context: RequestContext, node: Node) -> Reply:
    offsets = TopicPartition(CONSUMER_OFFSETS, node.groups.partition_for(request.group_id))
    if node.storage.partition(*offsets) is None:  # it is offline: a transaction with it could not end
        return independent(AddOffsetsToTxnResponse(error_code=ErrorCode.COORDINATOR_NOT_AVAILABLE))
    added = node.transactions.add_partitions(
        request.transactional_id, ProducerId(request.producer_id), Epoch(request.producer_epoch), [offsets], 0
    )
    error = error_for(added.error, Call.ADD, added.timed_out, context)
    return Reply(AddOffsetsToTxnResponse(error_code=error, transaction_timed_out=added.timed_out), added.lsn)
