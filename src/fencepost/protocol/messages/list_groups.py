"""ListGroups (16): the groups that this node coordinates.

v3    flexible
v4    by state
v5    by type
"""

from fencepost.protocol.message import request, response, since, struct
from fencepost.protocol.types import int16, int32, string


@request(api=16, versions="0-5", flexible="3+")
class ListGroupsRequest:
    """Kafka's ListGroupsRequest."""

    states_filter: list[string] = since(4, default=[])
    types_filter: list[string] = since(5, default=[])


@struct
class ListedGroup:
    group_id: string
    protocol_type: string
    group_state: string = since(4, default="")
    group_type: string = since(5, default="")


@response(api=16, versions="0-5", flexible="3+")
class ListGroupsResponse:
    """Kafka's ListGroupsResponse."""

    throttle_time_ms: int32 = since(1, default=0)
    error_code: int16
    groups: list[ListedGroup]
