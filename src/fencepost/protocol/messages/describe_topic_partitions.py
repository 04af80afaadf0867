"""DescribeTopicPartitions (75): partitions of topics, a page at a time."""

from fencepost.protocol.message import request, response, struct
from fencepost.protocol.types import boolean, int16, int32, string, uuid


@struct
class TopicRequest:
    name: string


@struct
class Cursor:
    topic_name: string
    partition_index: int32


@request(api=75, versions="0", flexible="0+")
class DescribeTopicPartitionsRequest:
    """Kafka's DescribeTopicPartitionsRequest."""

    topics: list[TopicRequest]
    response_partition_limit: int32 = 2000
    cursor: Cursor | None = None


@struct
class DescribeTopicPartitionsResponsePartition:
    error_code: int16
    partition_index: int32
    leader_id: int32
    leader_epoch: int32 = -1
    replica_nodes: list[int32]
    isr_nodes: list[int32]
    eligible_leader_replicas: list[int32] | None = None
    last_known_elr: list[int32] | None = None
    offline_replicas: list[int32]


@struct
class DescribeTopicPartitionsResponseTopic:
    error_code: int16
    name: string | None = None
    topic_id: uuid
    is_internal: boolean = False
    partitions: list[DescribeTopicPartitionsResponsePartition]
    topic_authorized_operations: int32 = -2147483648


@response(api=75, versions="0", flexible="0+")
class DescribeTopicPartitionsResponse:
    """Kafka's DescribeTopicPartitionsResponse."""

    throttle_time_ms: int32 = 0
    topics: list[DescribeTopicPartitionsResponseTopic]
    next_cursor: Cursor | None = None
