"""OffsetCommit (8): store committed offsets of a group.

v2    retention time
v5    retention time is gone
v6    leader epochs
v7    static members
v8    flexible
v9    member epochs (KIP-848)
v10   topic ids
"""

from fencepost.protocol.message import request, response, since, struct, until
from fencepost.protocol.types import ZERO_UUID, int16, int32, int64, string, uuid


@struct
class OffsetCommitRequestPartition:
    partition_index: int32
    committed_offset: int64
    committed_leader_epoch: int32 = since(6, default=-1)
    committed_metadata: string | None = None


@struct
class OffsetCommitRequestTopic:
    name: string = until(9, default="")
    topic_id: uuid = since(10, default=ZERO_UUID)
    partitions: list[OffsetCommitRequestPartition]


@request(api=8, versions="2-10", flexible="8+")
class OffsetCommitRequest:
    """Kafka's OffsetCommitRequest."""

    group_id: string
    generation_id_or_member_epoch: int32 = -1
    member_id: string
    group_instance_id: string | None = since(7, default=None)
    retention_time_ms: int64 = until(4, default=-1)
    topics: list[OffsetCommitRequestTopic]


@struct
class OffsetCommitResponsePartition:
    partition_index: int32
    error_code: int16


@struct
class OffsetCommitResponseTopic:
    name: string = until(9, default="")
    topic_id: uuid = since(10, default=ZERO_UUID)
    partitions: list[OffsetCommitResponsePartition]


@response(api=8, versions="2-10", flexible="8+")
class OffsetCommitResponse:
    """Kafka's OffsetCommitResponse."""

    throttle_time_ms: int32 = since(3, default=0)
    topics: list[OffsetCommitResponseTopic]
