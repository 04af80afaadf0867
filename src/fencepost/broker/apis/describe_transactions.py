"""DescribeTransactions (65): state of transactional ids (facts §1.10)."""

from __future__ import annotations

from fencepost.broker.authorizer import Operation, Resource
from fencepost.broker.broker import Broker
from fencepost.broker.caller import Caller
from fencepost.broker.registry import Held, serves
from fencepost.coordinator.transaction.listing import Description
from fencepost.protocol.errors import ErrorCode
from fencepost.protocol.messages import DescribeTransactionsRequest, DescribeTransactionsResponse
from fencepost.protocol.messages.describe_transactions import TopicData, TransactionState


@serves(DescribeTransactionsRequest)
def describe_transactions(request: DescribeTransactionsRequest, caller: Caller, broker: Broker) -> Held:
    lsn, states = 0, []
    for name in request.transactional_ids:
        if caller.may(Operation.DESCRIBE, Resource.TRANSACTIONAL_ID, name):
            found = broker.transactions.describe(name)
        else:
            found = Description(name, ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED)
        lsn = max(lsn, found.lsn)
        states.append(_told(found, caller))
    return Held(DescribeTransactionsResponse(transaction_states=states), lsn)


def _told(found: Description, caller: Caller) -> TransactionState:
    by_topic: dict[str, list[int]] = {}
    for at in found.partitions:
        if caller.may(Operation.DESCRIBE, Resource.TOPIC, at.topic):
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
