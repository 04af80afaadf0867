"""DescribeGroups (15): state and members of classic groups; one named twice is told of once.

v3    operations that the caller may do
v4    static members
v5    flexible
v6    an error message; a group that is not there is an error
"""

from __future__ import annotations

from fencepost.broker.authorizer import Operation, Resource
from fencepost.broker.network.pacing import in_steps
from fencepost.broker.network.registry import Reply, serves
from fencepost.broker.network.request_context import RequestContext
from fencepost.broker.node import Node
from fencepost.coordinator.group.classic.group import ClassicGroup, ClassicGroupState
from fencepost.protocol.errors import ErrorCode
from fencepost.protocol.messages import DescribeGroupsRequest, DescribeGroupsResponse
from fencepost.protocol.messages.describe_groups import DescribedGroup, DescribedGroupMember
from fencepost.protocol.steps import FIRST_STEP, OPERATIONS, Pace, Steps, cost_of_id


@serves(DescribeGroupsRequest)
@in_steps
def describe_groups(request: DescribeGroupsRequest, context: RequestContext, node: Node) -> Steps[Reply]:
    pace, groups = Pace(FIRST_STEP), []
    for group_id in dict.fromkeys(request.groups):
        group = _describe(group_id, context, node)
        if request.include_authorized_operations and group.error_code == ErrorCode.NONE:
            group.authorized_operations = context.authorized_operations(Resource.GROUP, group.group_id)
        groups.append(group)
        operations = request.include_authorized_operations * OPERATIONS
        yield from pace.spend(cost_of_id(group_id) + len(group.members) + operations)
    return Reply(DescribeGroupsResponse(groups=groups), node.storage.lsn)


def _describe(group_id: str, context: RequestContext, node: Node) -> DescribedGroup:
    if not context.may(Operation.DESCRIBE, Resource.GROUP, group_id):
        return _without_members(group_id, ErrorCode.GROUP_AUTHORIZATION_FAILED, "")
    group = node.groups.known(group_id)
    if group is ErrorCode.GROUP_ID_NOT_FOUND:
        message = f"Group {group_id} not found."
        error = ErrorCode.GROUP_ID_NOT_FOUND if context.version >= 6 else ErrorCode.NONE
        return _without_members(group_id, error, ClassicGroupState.DEAD.value, message if error else None)
    if isinstance(group, ErrorCode):
        return _without_members(group_id, group, "")
    return _described(group)


def _without_members(group_id: str, error: ErrorCode, state: str, message: str | None = None) -> DescribedGroup:
    return DescribedGroup(
        error_code=error,
        error_message=message,
        group_id=group_id,
        group_state=state,
        protocol_type="",
        protocol_data="",
        members=[],
    )


def _described(group: ClassicGroup) -> DescribedGroup:
    stable = group.state is ClassicGroupState.STABLE
    return DescribedGroup(
        error_code=ErrorCode.NONE,
        group_id=group.group_id,
        group_state=group.state.value,
        protocol_type=group.protocol_type or "",
        protocol_data=(group.protocol_name or "") if stable else "",
        members=[
            DescribedGroupMember(
                member_id=member.member_id,
                group_instance_id=member.group_instance_id,
                client_id=member.client_id,
                client_host=member.client_host,
                member_metadata=member.metadata(group.protocol_name) if stable else b"",
                member_assignment=member.assignment,
            )
            for member in group.members.values()
        ],
    )
