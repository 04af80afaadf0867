"""SyncGroup (14): hand in (the leader) and receive the assignment of a classic group.

v3    static members
v4    flexible
v5    protocol type and name are checked
"""

from fencepost.protocol.message import request, response, since, struct
from fencepost.protocol.types import binary, int16, int32, string


@struct
class SyncGroupRequestAssignment:
    member_id: string
    assignment: binary


@request(api=14, versions="0-5", flexible="4+")
class SyncGroupRequest:
    """Kafka's SyncGroupRequest."""

    group_id: string
    generation_id: int32
    member_id: string
    group_instance_id: string | None = since(3, default=None)
    protocol_type: string | None = since(5, default=None)
    protocol_name: string | None = since(5, default=None)
    assignments: list[SyncGroupRequestAssignment]


@response(api=14, versions="0-5", flexible="4+")
class SyncGroupResponse:
    """Kafka's SyncGroupResponse."""

    throttle_time_ms: int32 = since(1, default=0)
    error_code: int16
    protocol_type: string | None = since(5, default=None)
    protocol_name: string | None = since(5, default=None)
    assignment: binary
