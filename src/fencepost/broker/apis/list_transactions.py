"""ListTransactions (66): transactional ids that this node coordinates (facts §1.10).

v1    by duration
v2    by pattern
"""

from __future__ import annotations

from fencepost.broker.authorizer import Operation, Resource
from fencepost.broker.broker import Broker
from fencepost.broker.caller import Caller
from fencepost.broker.registry import Held, serves
from fencepost.coordinator.transaction.listing import Filters
from fencepost.protocol.messages import ListTransactionsRequest, ListTransactionsResponse
from fencepost.protocol.messages.list_transactions import TransactionState


@serves(ListTransactionsRequest)
def list_transactions(request: ListTransactionsRequest, caller: Caller, broker: Broker) -> Held:
    filters = Filters(
        request.state_filters,
        request.producer_id_filters,
        request.duration_filter,
        request.transactional_id_pattern or "",
    )
    listing = broker.transactions.list(filters)
    states = [
        TransactionState(
            transactional_id=found.transactional_id,
            producer_id=found.producer_id,
            transaction_state=found.state,
        )
        for found in listing.transactions
        if caller.may(Operation.DESCRIBE, Resource.TRANSACTIONAL_ID, found.transactional_id)
    ]
    response = ListTransactionsResponse(
        error_code=listing.error, unknown_state_filters=list(listing.unknown_states), transaction_states=states
    )
    return Held(response, listing.lsn)
