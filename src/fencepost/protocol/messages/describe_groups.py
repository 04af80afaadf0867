"""DescribeGroups (15): state and members of classic groups.

v3    operations that the caller may do
v4    static members
v5    flexible
v6    an error message
"""

from fencepost.protocol.message import request, response, since, struct
from fencepost.protocol.types import binary, boolean, error_text, int16, int32, string


@request(api=15, versions="0-6", flexible="5+")
class DescribeGroupsRequest:
    """Kafka's DescribeGroupsRequest."""

    groups: list[string]
    include_authorized_operations: boolean = since(3, default=False)


@struct
class DescribedGroupMember:
    member_id: string
    group_instance_id: string | None = since(4, default=None)
    client_id: string
    client_host: string
    member_metadata: binary
    member_assignment: binary


@struct
class DescribedGroup:
    error_code: int16
    error_message: error_text | None = since(6, default=None)
    group_id: string
    group_state: string
    protocol_type: string
    protocol_data: string
    members: list[DescribedGroupMember]
    authorized_operations: int32 = since(3, default=-2147483648)


@response(api=15, versions="0-6", flexible="5+")
class DescribeGroupsResponse:
    """Kafka's DescribeGroupsResponse."""

    throttle_time_ms: int32 = since(1, default=0)
    groups: list[DescribedGroup]
