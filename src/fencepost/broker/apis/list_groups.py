"""ListGroups (16): the groups that this node coordinates.

v3    flexible
v4    by state
v5    by type
"""

from __future__ import annotations

from collections.abc import Sequence

from fencepost.broker.authorizer import Operation, Resource
from fencepost.broker.network.pacing import in_steps
from fencepost.broker.network.registry import Reply, independent, serves
from fencepost.broker.network.request_context import RequestContext
from fencepost.broker.node import Node
from fencepost.protocol.errors import ErrorCode
from fencepost.protocol.messages import ListGroupsRequest, ListGroupsResponse
from fencepost.protocol.messages.list_groups import ListedGroup
from fencepost.protocol.steps import FIRST_STEP, ITEM, LETTERS, Pace, Steps

_TYPE = "classic"


@serves(ListGroupsRequest)
@in_steps
def list_groups(request: ListGroupsRequest, context: RequestContext, node: Node) -> Steps[Reply]:
    if node.groups.is_loading:
        return independent(ListGroupsResponse(error_code=ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, groups=[]))
    pace = Pace(FIRST_STEP)
    states = yield from _lower(request.states_filter, pace)
    types = yield from _lower(request.types_filter, pace)
    known = yield from node.groups.groups_in_steps(pace)
    listed: list[ListedGroup] = []
    for group in known if not types or _TYPE in types else ():
        if (not states or group.state.value.lower() in states) and context.may(
            Operation.DESCRIBE, Resource.GROUP, group.group_id
        ):
            listed.append(
                ListedGroup(
                    group_id=group.group_id,
                    protocol_type=group.protocol_type or "",
                    group_state=group.state.value,
                    group_type=_TYPE,
                )
            )
        if pace.is_used_up(ITEM):
            yield from pace.rest()
    return Reply(ListGroupsResponse(error_code=ErrorCode.NONE, groups=listed), node.storage.lsn)


def _lower(names: Sequence[str], pace: Pace) -> Steps[frozenset[str]]:
    """The names that are asked for in small letters, since their case does not count."""
    found: list[str] = []
    for name in names:
        found.append(name.lower())
        if pace.is_used_up(1 + len(name) // LETTERS):
            yield from pace.rest()
    return frozenset(found)
