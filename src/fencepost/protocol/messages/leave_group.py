"""LeaveGroup (13): leave a classic group.

v3    several members
v4    flexible
v5    a reason
"""

from fencepost.protocol.message import request, response, since, struct, until
from fencepost.protocol.types import int16, int32, string


@struct
class MemberIdentity:
    member_id: string = since(3, default="")
    group_instance_id: string | None = since(3, default=None)
    reason: string | None = since(5, default=None)


@request(api=13, versions="0-5", flexible="4+")
class LeaveGroupRequest:
    """Kafka's LeaveGroupRequest."""

    group_id: string
    member_id: string = until(2, default="")
    members: list[MemberIdentity] = since(3, default=[])


@struct
class MemberResponse:
    member_id: string = since(3, default="")
    group_instance_id: string | None = since(3, default=None)
    error_code: int16 = since(3, default=0)


@response(api=13, versions="0-5", flexible="4+")
class LeaveGroupResponse:
    """Kafka's LeaveGroupResponse."""

    throttle_time_ms: int32 = since(1, default=0)
    error_code: int16
    members: list[MemberResponse] = since(3, default=[])
