"""ListOffsets (2): find offsets by time, or the ends of a partition.

v1    one offset per partition; -1: the end, -2: the first offset
v2    isolation level
v4    leader epochs
v6    flexible
v7    -3: the record with the largest timestamp
v8    -4: the first offset kept locally
v9    -5: the last offset kept remotely
v10   a time-out
v11   -6: the first offset not yet kept remotely
"""

from typing import Final

from fencepost.protocol.message import request, response, since, struct
from fencepost.protocol.types import int8, int16, int32, int64, string

# What stands in the place of a timestamp for an offset that has a name; the version that knows it is above.
LATEST: Final = -1
EARLIEST: Final = -2
MAX_TIMESTAMP: Final = -3
EARLIEST_LOCAL: Final = -4
LATEST_TIERED: Final = -5
EARLIEST_PENDING_UPLOAD: Final = -6


@struct
class ListOffsetsPartition:
    partition_index: int32
    current_leader_epoch: int32 = since(4, default=-1)
    timestamp: int64


@struct
class ListOffsetsTopic:
    name: string
    partitions: list[ListOffsetsPartition]


@request(api=2, versions="1-11", flexible="6+")
class ListOffsetsRequest:
    """Kafka's ListOffsetsRequest."""

    replica_id: int32
    isolation_level: int8 = since(2, default=0)
    topics: list[ListOffsetsTopic]
    timeout_ms: int32 = since(10, default=0)


@struct
class ListOffsetsPartitionResponse:
    partition_index: int32
    error_code: int16
    timestamp: int64 = -1
    offset: int64 = -1
    leader_epoch: int32 = since(4, default=-1)


@struct
class ListOffsetsTopicResponse:
    name: string
    partitions: list[ListOffsetsPartitionResponse]


@response(api=2, versions="1-11", flexible="6+")
class ListOffsetsResponse:
    """Kafka's ListOffsetsResponse."""

    throttle_time_ms: int32 = since(2, default=0)
    topics: list[ListOffsetsTopicResponse]
