"""ConsumerGroupHeartbeat (68): join a group of the new protocol, stay in it, be given partitions, leave (KIP-848).

v1    a regular expression for topics; the member makes its id itself (KIP-1082)
"""

from fencepost.protocol.message import request, response, since, struct
from fencepost.protocol.types import error_text, int16, int32, string, uuid


@struct
class TopicPartitions:
    topic_id: uuid
    partitions: list[int32]


@request(api=68, versions="0-1", flexible="0+")
class ConsumerGroupHeartbeatRequest:
    """Kafka's ConsumerGroupHeartbeatRequest.  Null, and -1 as a time-out: what was said last still holds."""

    group_id: string
    member_id: string
    member_epoch: int32
    instance_id: string | None = None
    rack_id: string | None = None
    rebalance_timeout_ms: int32 = -1
    subscribed_topic_names: list[string] | None = None
    subscribed_topic_regex: string | None = since(1, default=None)
    server_assignor: string | None = None
    topic_partitions: list[TopicPartitions] | None = None


@struct
class Assignment:
    topic_partitions: list[TopicPartitions]


@response(api=68, versions="0-1", flexible="0+")
class ConsumerGroupHeartbeatResponse:
    """Kafka's ConsumerGroupHeartbeatResponse.  Null as an assignment: what was given last still holds."""

    throttle_time_ms: int32 = 0
    error_code: int16
    error_message: error_text | None = None
    member_id: string | None = None
    member_epoch: int32 = 0
    heartbeat_interval_ms: int32 = 0
    assignment: Assignment | None = None
