"""DescribeLogDirs (35): the log directories of a node, and how large the partitions in them are.

v1    the first version that Apache Kafka still serves
v2    flexible
v3    an error of the whole answer
v4    how much the volume of a directory holds
v5    cordoned directories
"""

from fencepost.protocol.message import request, response, since, struct
from fencepost.protocol.types import boolean, int16, int32, int64, string


@struct
class DescribableLogDirTopic:
    topic: string
    partitions: list[int32]


@request(api=35, versions="1-5", flexible="2+")
class DescribeLogDirsRequest:
    """Kafka's DescribeLogDirsRequest."""

    topics: list[DescribableLogDirTopic] | None


@struct
class DescribeLogDirsPartition:
    partition_index: int32
    partition_size: int64
    offset_lag: int64
    is_future_key: boolean


@struct
class DescribeLogDirsTopic:
    name: string
    partitions: list[DescribeLogDirsPartition]


@struct
class DescribeLogDirsResult:
    error_code: int16
    log_dir: string
    topics: list[DescribeLogDirsTopic]
    total_bytes: int64 = since(4, default=-1)
    usable_bytes: int64 = since(4, default=-1)
    is_cordoned: boolean = since(5, default=False)


@response(api=35, versions="1-5", flexible="2+")
class DescribeLogDirsResponse:
    """Kafka's DescribeLogDirsResponse."""

    throttle_time_ms: int32 = 0
    error_code: int16 = since(3, default=0)
    results: list[DescribeLogDirsResult]
