"""ListGroups (16): the groups that this node coordinates.

v3    flexible
v4    by state
v5    by type
"""

from __future__ import annotations

from fencepost.broker.authorizer import Operation, Resource
from fencepost.broker.network.registry import Reply, independent, serves
from fencepost.broker.network.request_context import RequestContext
from fencepost.broker.node import Node
from fencepost.protocol.errors import ErrorCode
from fencepost.protocol.messages import ListGroupsRequest, ListGroupsResponse
from fencepost.protocol.messages.list_groups import ListedGroup

_TYPE = "classic"


@serves(ListGroupsRequest)
def list_groups(request: ListGroupsRequest, context: RequestContext, node: Node) -> Reply:
    if node.groups.is_loading:
        return independent(ListGroupsResponse(error_code=ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, groups=[]))
    states = [state.lower() for state in request.states_filter]
    types = [kind.lower() for kind in request.types_filter]
    groups = [
        ListedGroup(
            group_id=group.group_id,
            protocol_type=group.protocol_type or "",
            group_state=group.state.value,
            group_type=_TYPE,
        )
        for group in node.groups.groups()
        if (not states or group.state.value.lower() in states)
        and (not types or _TYPE in types)
        and context.may(Operation.DESCRIBE, Resource.GROUP, group.group_id)
    ]
    return Reply(ListGroupsResponse(error_code=ErrorCode.NONE, groups=groups), node.storage.lsn)
