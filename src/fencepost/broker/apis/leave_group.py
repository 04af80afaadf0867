"""LeaveGroup (13): leave a classic group.

v3    several members, by member id or by instance id
v4    flexible
v5    a reason
"""

from __future__ import annotations

from fencepost.broker.authorizer import Operation, Resource
from fencepost.broker.network.registry import Reply, independent, serves
from fencepost.broker.network.request_context import RequestContext
from fencepost.broker.node import Node
from fencepost.coordinator.group import MemberIdentity
from fencepost.protocol.errors import ErrorCode
from fencepost.protocol.messages import LeaveGroupRequest, LeaveGroupResponse
from fencepost.protocol.messages.leave_group import MemberResponse


@serves(LeaveGroupRequest)
def leave_group(request: LeaveGroupRequest, context: RequestContext, node: Node) -> Reply:
    if not context.may(Operation.READ, Resource.GROUP, request.group_id):
        return independent(LeaveGroupResponse(error_code=ErrorCode.GROUP_AUTHORIZATION_FAILED))
    groups = node.groups
    error = groups.check(request.group_id)
    if error:
        return independent(LeaveGroupResponse(error_code=error))
    if context.version < 3:
        (error,), lsn = groups.leave_group(request.group_id, [MemberIdentity(request.member_id, None)])
        return Reply(LeaveGroupResponse(error_code=error), lsn)
    errors, lsn = groups.leave_group(
        request.group_id, [MemberIdentity(member.member_id, member.group_instance_id) for member in request.members]
    )
    members = [
        MemberResponse(member_id=member.member_id, group_instance_id=member.group_instance_id, error_code=error)
        for member, error in zip(request.members, errors, strict=True)
    ]
    return Reply(LeaveGroupResponse(error_code=ErrorCode.NONE, members=members), lsn)
