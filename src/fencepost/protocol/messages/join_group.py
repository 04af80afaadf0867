"""JoinGroup (11): become a member of a classic group; waits for the others.

v1    rebalance time-out
v4    a member id is given first (KIP-394)
v5    static members
v6    flexible
v7    the protocol type is answered
v8    a reason
v9    the leader may skip the assignment
"""

from fencepost.protocol.message import request, response, since, struct
from fencepost.protocol.types import binary, boolean, int16, int32, string


@struct
class JoinGroupRequestProtocol:
    name: string
    metadata: binary


@request(api=11, versions="0-9", flexible="6+")
class JoinGroupRequest:
    """Kafka's JoinGroupRequest."""

    group_id: string
    session_timeout_ms: int32
    rebalance_timeout_ms: int32 = since(1, default=-1)
    member_id: string
    group_instance_id: string | None = since(5, default=None)
    protocol_type: string
    protocols: list[JoinGroupRequestProtocol]
    reason: string | None = since(8, default=None)


@struct
class JoinGroupResponseMember:
    member_id: string
    group_instance_id: string | None = since(5, default=None)
    metadata: binary


@response(api=11, versions="0-9", flexible="6+")
class JoinGroupResponse:
    """Kafka's JoinGroupResponse."""

    throttle_time_ms: int32 = since(2, default=0)
    error_code: int16
    generation_id: int32 = -1
    protocol_type: string | None = since(7, default=None)
    protocol_name: string | None = None
    leader: string
    skip_assignment: boolean = since(9, default=False)
    member_id: string
    members: list[JoinGroupResponseMember]
