"""DescribeTransactions (65): state of transactional ids."""

from fencepost.protocol.message import request, response, struct
from fencepost.protocol.types import int16, int32, int64, string


@request(api=65, versions="0", flexible="0+")
class DescribeTransactionsRequest:
    """Kafka's DescribeTransactionsRequest."""

    transactional_ids: list[string]


@struct
class TopicData:
    topic: string
    partitions: list[int32]


@struct
class TransactionState:
    error_code: int16
    transactional_id: string
    transaction_state: string
    transaction_timeout_ms: int32
    transaction_start_time_ms: int64
    producer_id: int64
    producer_epoch: int16
    topics: list[TopicData]


@response(api=65, versions="0", flexible="0+")
class DescribeTransactionsResponse:
    """Kafka's DescribeTransactionsResponse."""

    throttle_time_ms: int32 = 0
    transaction_states: list[TransactionState]
