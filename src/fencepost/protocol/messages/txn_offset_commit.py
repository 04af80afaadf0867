"""TxnOffsetCommit (28): store committed offsets of a group as part of a transaction.

v2    leader epochs
v3    flexible; member and generation (KIP-447)
v4    TRANSACTION_ABORTABLE may be answered
v5    the partition is added to the transaction by the coordinator (KIP-890 part 2)
v6    topic ids
"""

from fencepost.protocol.message import request, response, since, struct, tagged, until
from fencepost.protocol.types import ZERO_UUID, boolean, int16, int32, int64, string, uuid


@struct
class TxnOffsetCommitRequestPartition:
    partition_index: int32
    committed_offset: int64
    committed_leader_epoch: int32 = since(2, default=-1)
    committed_metadata: string | None = None


@struct
class TxnOffsetCommitRequestTopic:
    name: string = until(5, default="")
    topic_id: uuid = since(6, default=ZERO_UUID)
    partitions: list[TxnOffsetCommitRequestPartition]


@request(api=28, versions="0-6", flexible="3+")
class TxnOffsetCommitRequest:
    """Kafka's TxnOffsetCommitRequest."""

    transactional_id: string
    group_id: string
    producer_id: int64
    producer_epoch: int16
    generation_id: int32 = since(3, default=-1)
    member_id: string = since(3, default="")
    group_instance_id: string | None = since(3, default=None)
    topics: list[TxnOffsetCommitRequestTopic]


@struct
class TxnOffsetCommitResponsePartition:
    partition_index: int32
    error_code: int16


@struct
class TxnOffsetCommitResponseTopic:
    name: string = until(5, default="")
    topic_id: uuid = since(6, default=ZERO_UUID)
    partitions: list[TxnOffsetCommitResponsePartition]


@response(api=28, versions="0-6", flexible="3+")
class TxnOffsetCommitResponse:
    """Kafka's TxnOffsetCommitResponse."""

    throttle_time_ms: int32 = 0
    topics: list[TxnOffsetCommitResponseTopic]
    transaction_timed_out: boolean = tagged(10_000, since=3, default=False)
    """Ours: the server timed the transaction of this producer id and epoch out (KIP-588)."""
