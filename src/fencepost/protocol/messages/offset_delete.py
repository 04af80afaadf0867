"""OffsetDelete (47): delete committed offsets of a group."""

from fencepost.protocol.message import request, response, struct
from fencepost.protocol.types import int16, int32, string


@struct
class OffsetDeleteRequestPartition:
    partition_index: int32


@struct
class OffsetDeleteRequestTopic:
    name: string
    partitions: list[OffsetDeleteRequestPartition]


@request(api=47, versions="0")
class OffsetDeleteRequest:
    """Kafka's OffsetDeleteRequest."""

    group_id: string
    topics: list[OffsetDeleteRequestTopic]


@struct
class OffsetDeleteResponsePartition:
    partition_index: int32
    error_code: int16


@struct
class OffsetDeleteResponseTopic:
    name: string
    partitions: list[OffsetDeleteResponsePartition]


@response(api=47, versions="0")
class OffsetDeleteResponse:
    """Kafka's OffsetDeleteResponse."""

    error_code: int16
    throttle_time_ms: int32 = 0
    topics: list[OffsetDeleteResponseTopic]
