"""ElectLeaders (43): elect leaders of partitions.

v1    kind of election
v2    flexible
"""

from fencepost.protocol.message import request, response, since, struct
from fencepost.protocol.types import int8, int16, int32, string


@struct
class TopicPartitions:
    topic: string
    partitions: list[int32]


@request(api=43, versions="0-2", flexible="2+")
class ElectLeadersRequest:
    """Kafka's ElectLeadersRequest."""

    election_type: int8 = since(1, default=0)
    topic_partitions: list[TopicPartitions] | None = None
    timeout_ms: int32 = 60000


@struct
class PartitionResult:
    partition_id: int32
    error_code: int16
    error_message: string | None = None


@struct
class ReplicaElectionResult:
    topic: string
    partition_result: list[PartitionResult]


@response(api=43, versions="0-2", flexible="2+")
class ElectLeadersResponse:
    """Kafka's ElectLeadersResponse."""

    throttle_time_ms: int32 = 0
    error_code: int16 = since(1, default=0)
    replica_election_results: list[ReplicaElectionResult]
