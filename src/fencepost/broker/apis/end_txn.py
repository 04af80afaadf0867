"""EndTxn (26): commit or abort the ongoing transaction.

v2    PRODUCER_FENCED may be answered
v3    flexible
v4    TRANSACTION_ABORTABLE may be answered
v5    every end bumps the epoch; the answer carries it (KIP-890 part 2)
"""

from __future__ import annotations

from fencepost.broker.authorizer import Operation, Resource
from fencepost.broker.network.older_clients import Call, error_for
from fencepost.broker.network.registry import Reply, independent, serves
from fencepost.broker.network.request_context import RequestContext
from fencepost.broker.node import Node
from fencepost.protocol.errors import ErrorCode
from fencepost.protocol.messages import EndTxnRequest, EndTxnResponse
from fencepost.protocol.types import Epoch, ProducerId

_BUMPS_SINCE = 5


@serves(EndTxnRequest)
def end_txn(request: EndTxnRequest, context: RequestContext, node: Node) -> Reply:
    if not context.may(Operation.WRITE, Resource.TRANSACTIONAL_ID, request.transactional_id):
        return independent(EndTxnResponse(error_code=ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED))
    ended = node.transactions.end(
        request.transactional_id,
        ProducerId(request.producer_id),
        Epoch(request.producer_epoch),
        request.committed,
        context.version,
    )
    error = ended.error
    if context.version < _BUMPS_SINCE:
        error = error_for(error, Call.COMMIT if request.committed else Call.ABORT, ended.timed_out, context)
    return Reply(
        EndTxnResponse(
            error_code=error,
            producer_id=ended.producer_id,
            producer_epoch=ended.producer_epoch,
            transaction_timed_out=ended.timed_out,
        ),
        ended.lsn,
    )
