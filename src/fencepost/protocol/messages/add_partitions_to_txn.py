"""AddPartitionsToTxn (24): register partitions with a transaction.

v0-3  from producers, one transaction
v2    PRODUCER_FENCED may be answered
v3    flexible
v4    from brokers, several transactions, verify_only (KIP-890 part 1)
v5    TRANSACTION_ABORTABLE may be answered
"""

from fencepost.protocol.message import request, response, since, struct, tagged, until
from fencepost.protocol.types import boolean, int16, int32, int64, string


@struct
class AddPartitionsToTxnTopic:
    name: string
    partitions: list[int32]


@struct
class AddPartitionsToTxnTransaction:
    transactional_id: string = since(4, default="")
    producer_id: int64 = since(4, default=0)
    producer_epoch: int16 = since(4, default=0)
    verify_only: boolean = since(4, default=False)
    topics: list[AddPartitionsToTxnTopic] = since(4, default=[])


@request(api=24, versions="0-5", flexible="3+")
class AddPartitionsToTxnRequest:
    """Kafka's AddPartitionsToTxnRequest."""

    transactions: list[AddPartitionsToTxnTransaction] = since(4, default=[])
    transactional_id: string = until(3, default="")
    producer_id: int64 = until(3, default=0)
    producer_epoch: int16 = until(3, default=0)
    topics: list[AddPartitionsToTxnTopic] = until(3, default=[])


@struct
class AddPartitionsToTxnPartitionResult:
    partition_index: int32
    partition_error_code: int16


@struct
class AddPartitionsToTxnTopicResult:
    name: string
    results_by_partition: list[AddPartitionsToTxnPartitionResult]


@struct
class AddPartitionsToTxnResult:
    transactional_id: string = since(4, default="")
    topic_results: list[AddPartitionsToTxnTopicResult] = since(4, default=[])


@response(api=24, versions="0-5", flexible="3+")
class AddPartitionsToTxnResponse:
    """Kafka's AddPartitionsToTxnResponse."""

    throttle_time_ms: int32 = 0
    error_code: int16 = since(4, default=0)
    results_by_transaction: list[AddPartitionsToTxnResult] = since(4, default=[])
    results_by_topic: list[AddPartitionsToTxnTopicResult] = until(3, default=[])
    transaction_timed_out: boolean = tagged(10_000, since=3, default=False)
    """Ours: the server timed the transaction of this producer id and epoch out (KIP-588)."""
