"""OffsetForLeaderEpoch (23): where a leader epoch ended.

v3    replica id
v4    flexible
"""

from fencepost.protocol.message import request, response, since, struct
from fencepost.protocol.types import int16, int32, int64, string


@struct
class OffsetForLeaderPartition:
    partition: int32
    current_leader_epoch: int32 = -1
    leader_epoch: int32


@struct
class OffsetForLeaderTopic:
    topic: string
    partitions: list[OffsetForLeaderPartition]


@request(api=23, versions="2-4", flexible="4+")
class OffsetForLeaderEpochRequest:
    """Kafka's OffsetForLeaderEpochRequest."""

    replica_id: int32 = since(3, default=-2)
    topics: list[OffsetForLeaderTopic]


@struct
class EpochEndOffset:
    error_code: int16
    partition: int32
    leader_epoch: int32 = -1
    end_offset: int64 = -1


@struct
class OffsetForLeaderTopicResult:
    topic: string
    partitions: list[EpochEndOffset]


@response(api=23, versions="2-4", flexible="4+")
class OffsetForLeaderEpochResponse:
    """Kafka's OffsetForLeaderEpochResponse."""

    throttle_time_ms: int32 = 0
    topics: list[OffsetForLeaderTopicResult]
