"""ListTransactions (66): transactional ids that this node coordinates (facts §1.10).

v1    by duration
v2    by pattern
"""

from __future__ import annotations

from fencepost.broker.authorizer import Operation, Resource
from fencepost.broker.network.pacing import in_steps
from fencepost.broker.network.registry import Reply, serves
from fencepost.broker.network.request_context import RequestContext
from fencepost.broker.node import Node
from fencepost.coordinator.transaction.listing import Filters
from fencepost.protocol.messages import ListTransactionsRequest, ListTransactionsResponse
from fencepost.protocol.messages.list_transactions import TransactionState
from fencepost.protocol.steps import FIRST_STEP, Pace, Steps
from fencepost.protocol.types import Milliseconds


@serves(ListTransactionsRequest)
@in_steps
def list_transactions(request: ListTransactionsRequest, context: RequestContext, node: Node) -> Steps[Reply]:
    pace = Pace(FIRST_STEP)
    filters = Filters(
        request.state_filters,
        request.producer_id_filters,
        Milliseconds(request.duration_filter),
        request.transactional_id_pattern or "",
    )
    listing = yield from node.transactions.list_in_steps(filters, pace)
    states: list[TransactionState] = []
    for number, found in enumerate(listing.transactions, 1):
        if context.may(Operation.DESCRIBE, Resource.TRANSACTIONAL_ID, found.transactional_id):
            states.append(
                TransactionState(
                    transactional_id=found.transactional_id,
                    producer_id=found.producer_id,
                    transaction_state=found.state,
                )
            )
        if number % 64 == 0:
            yield from pace.spend(64)
    response = ListTransactionsResponse(
        error_code=listing.error, unknown_state_filters=list(listing.unknown_states), transaction_states=states
    )
    return Reply(response, listing.lsn)
