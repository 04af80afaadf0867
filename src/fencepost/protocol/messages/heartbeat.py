"""Heartbeat (12): stay a member of a classic group.

v3    static members
v4    flexible
"""

from fencepost.protocol.message import request, response, since
from fencepost.protocol.types import int16, int32, string


@request(api=12, versions="0-4", flexible="4+")
class HeartbeatRequest:
    """Kafka's HeartbeatRequest."""

    group_id: string
    generation_id: int32
    member_id: string
    group_instance_id: string | None = since(3, default=None)


@response(api=12, versions="0-4", flexible="4+")
class HeartbeatResponse:
    """Kafka's HeartbeatResponse."""

    throttle_time_ms: int32 = since(1, default=0)
    error_code: int16
