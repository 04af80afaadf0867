"""DescribeTransactions (65): state of transactional ids (facts §1.10); one named twice is told of once."""

from __future__ import annotations

from fencepost.broker.authorizer import Operation, Resource
from fencepost.broker.network.pacing import in_steps
from fencepost.broker.network.registry import Reply, serves
from fencepost.broker.network.request_context import RequestContext
from fencepost.broker.node import Node
from fencepost.coordinator.transaction.listing import Description
from fencepost.protocol.errors import ErrorCode
from fencepost.protocol.messages import DescribeTransactionsRequest, DescribeTransactionsResponse
from fencepost.protocol.messages.describe_transactions import TopicData, TransactionState
from fencepost.protocol.steps import FIRST_STEP, ITEM, Pace, Steps, cost_of_id
from fencepost.protocol.types import NO_LSN


@serves(DescribeTransactionsRequest)
@in_steps
def describe_transactions(request: DescribeTransactionsRequest, context: RequestContext, node: Node) -> Steps[Reply]:
    pace, lsn, states = Pace(FIRST_STEP), NO_LSN, []
    for name in dict.fromkeys(request.transactional_ids):
        if context.may(Operation.DESCRIBE, Resource.TRANSACTIONAL_ID, name):
            found = node.transactions.describe(name)
        else:
            found = Description(name, ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED)
        lsn = max(lsn, found.lsn)
        states.append(_transaction_state(found, context))
        yield from pace.spend(ITEM + cost_of_id(name) + len(found.partitions))
    return Reply(DescribeTransactionsResponse(transaction_states=states), lsn)


def _transaction_state(found: Description, context: RequestContext) -> TransactionState:
    by_topic: dict[str, list[int]] = {}
    for at in found.partitions:
        if context.may(Operation.DESCRIBE, Resource.TOPIC, at.topic):
            by_topic.setdefault(at.topic, []).append(at.partition)
    return TransactionState(
        error_code=found.error,
        transactional_id=found.transactional_id,
        transaction_state=found.state,
        transaction_timeout_ms=found.timeout_ms,
        transaction_start_time_ms=found.start_timestamp,
        producer_id=found.producer_id,
        producer_epoch=found.producer_epoch,
        topics=[TopicData(topic=topic, partitions=partitions) for topic, partitions in by_topic.items()],
    )
