"""ListPartitionReassignments (46): partitions whose replicas are being moved to other nodes (KIP-455)."""

from fencepost.protocol.message import request, response, struct
from fencepost.protocol.types import error_text, int16, int32, string


@struct
class ListPartitionReassignmentsTopics:
    name: string
    partition_indexes: list[int32]


@request(api=46, versions="0", flexible="0+")
class ListPartitionReassignmentsRequest:
    """Kafka's ListPartitionReassignmentsRequest.  Without topics every one is meant."""

    timeout_ms: int32 = 60_000
    topics: list[ListPartitionReassignmentsTopics] | None = None


@struct
class OngoingPartitionReassignment:
    partition_index: int32
    replicas: list[int32]
    adding_replicas: list[int32]
    removing_replicas: list[int32]


@struct
class OngoingTopicReassignment:
    name: string
    partitions: list[OngoingPartitionReassignment]


@response(api=46, versions="0", flexible="0+")
class ListPartitionReassignmentsResponse:
    """Kafka's ListPartitionReassignmentsResponse."""

    throttle_time_ms: int32 = 0
    error_code: int16
    error_message: error_text | None = None
    topics: list[OngoingTopicReassignment]
