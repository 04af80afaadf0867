"""DescribeProducers (61): producers that a partition knows, and their open transactions."""

from fencepost.protocol.message import request, response, struct
from fencepost.protocol.types import error_text, int16, int32, int64, string


@struct
class TopicRequest:
    name: string
    partition_indexes: list[int32]


@request(api=61, versions="0", flexible="0+")
class DescribeProducersRequest:
    """Kafka's DescribeProducersRequest."""

    topics: list[TopicRequest]


@struct
class ProducerState:
    producer_id: int64
    producer_epoch: int32
    last_sequence: int32 = -1
    last_timestamp: int64 = -1
    coordinator_epoch: int32
    current_txn_start_offset: int64 = -1


@struct
class PartitionResponse:
    partition_index: int32
    error_code: int16
    error_message: error_text | None = None
    active_producers: list[ProducerState]


@struct
class TopicResponse:
    name: string
    partitions: list[PartitionResponse]


@response(api=61, versions="0", flexible="0+")
class DescribeProducersResponse:
    """Kafka's DescribeProducersResponse."""

    throttle_time_ms: int32 = 0
    topics: list[TopicResponse]
