"""ElectLeaders (43): have partitions led by their preferred replica, or by one that is behind (KIP-460)."""

from fencepost.protocol.message import request, response, since, struct
from fencepost.protocol.types import error_text, int8, int16, int32, string


@struct
class ElectLeadersTopicPartitions:
    topic: string
    partitions: list[int32]


@request(api=43, versions="0-2", flexible="2+")
class ElectLeadersRequest:
    """Kafka's ElectLeadersRequest.  Without topics every partition is meant."""

    election_type: int8 = since(1, default=0)
    """0: the preferred replica.  1: any that lives, where none is in sync."""
    topic_partitions: list[ElectLeadersTopicPartitions] | None
    timeout_ms: int32 = 60_000


@struct
class ElectLeadersPartitionResult:
    partition_id: int32
    error_code: int16
    error_message: error_text | None = None


@struct
class ReplicaElectionResult:
    topic: string
    partition_result: list[ElectLeadersPartitionResult]


@response(api=43, versions="0-2", flexible="2+")
class ElectLeadersResponse:
    """Kafka's ElectLeadersResponse."""

    throttle_time_ms: int32 = 0
    error_code: int16 = since(1, default=0)
    replica_election_results: list[ReplicaElectionResult]
