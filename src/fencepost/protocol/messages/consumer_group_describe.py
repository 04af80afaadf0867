"""ConsumerGroupDescribe (69): groups of the new protocol and their members (KIP-848).

v1    which protocol a member speaks (KIP-1099)
"""

from fencepost.protocol.message import request, response, since, struct
from fencepost.protocol.types import boolean, error_text, int8, int16, int32, string, uuid


@request(api=69, versions="0-1", flexible="0+")
class ConsumerGroupDescribeRequest:
    """Kafka's ConsumerGroupDescribeRequest."""

    group_ids: list[string]
    include_authorized_operations: boolean = False


@struct
class TopicPartitions:
    topic_id: uuid
    topic_name: string
    partitions: list[int32]


@struct
class Assignment:
    topic_partitions: list[TopicPartitions]


@struct
class Member:
    member_id: string
    instance_id: string | None = None
    rack_id: string | None = None
    member_epoch: int32
    client_id: string
    client_host: string
    subscribed_topic_names: list[string]
    subscribed_topic_regex: string | None = None
    assignment: Assignment
    target_assignment: Assignment
    member_type: int8 = since(1, default=-1)


@struct
class DescribedGroup:
    error_code: int16
    error_message: error_text | None = None
    group_id: string
    group_state: string
    group_epoch: int32
    assignment_epoch: int32
    assignor_name: string
    members: list[Member]
    authorized_operations: int32 = -2147483648


@response(api=69, versions="0-1", flexible="0+")
class ConsumerGroupDescribeResponse:
    """Kafka's ConsumerGroupDescribeResponse."""

    throttle_time_ms: int32 = 0
    groups: list[DescribedGroup]
