"""DeleteRecords (21): move the start of partitions forward.

v2    flexible
"""

from fencepost.protocol.message import request, response, struct
from fencepost.protocol.types import int16, int32, int64, string


@struct
class DeleteRecordsPartition:
    partition_index: int32
    offset: int64


@struct
class DeleteRecordsTopic:
    name: string
    partitions: list[DeleteRecordsPartition]


@request(api=21, versions="0-2", flexible="2+")
class DeleteRecordsRequest:
    """Kafka's DeleteRecordsRequest."""

    topics: list[DeleteRecordsTopic]
    timeout_ms: int32


@struct
class DeleteRecordsPartitionResult:
    partition_index: int32
    low_watermark: int64
    error_code: int16


@struct
class DeleteRecordsTopicResult:
    name: string
    partitions: list[DeleteRecordsPartitionResult]


@response(api=21, versions="0-2", flexible="2+")
class DeleteRecordsResponse:
    """Kafka's DeleteRecordsResponse."""

    throttle_time_ms: int32 = 0
    topics: list[DeleteRecordsTopicResult]
