"""CreatePartitions (37): add partitions to topics.

v2    flexible
v3    may be throttled
"""

from fencepost.protocol.message import request, response, struct
from fencepost.protocol.types import boolean, error_text, int16, int32, string


@struct
class CreatePartitionsAssignment:
    broker_ids: list[int32]


@struct
class CreatePartitionsTopic:
    name: string
    count: int32
    assignments: list[CreatePartitionsAssignment] | None = None


@request(api=37, versions="0-3", flexible="2+")
class CreatePartitionsRequest:
    """Kafka's CreatePartitionsRequest."""

    topics: list[CreatePartitionsTopic]
    timeout_ms: int32
    validate_only: boolean


@struct
class CreatePartitionsTopicResult:
    name: string
    error_code: int16
    error_message: error_text | None = None


@response(api=37, versions="0-3", flexible="2+")
class CreatePartitionsResponse:
    """Kafka's CreatePartitionsResponse."""

    throttle_time_ms: int32 = 0
    results: list[CreatePartitionsTopicResult]
