"""LeaveGroup (13): leave a classic group.

v3    several members, by member id or by instance id
v4    flexible
v5    a reason
"""

from __future__ import annotations

from fencepost.broker.authorizer import Operation, Resource
from fencepost.broker.network.pacing import in_steps
from fencepost.broker.network.registry import Reply, independent, serves
from fencepost.broker.network.request_context import RequestContext
from fencepost.broker.node import Node
from fencepost.coordinator.group import MemberIdentity
from fencepost.protocol.errors import ErrorCode
from fencepost.protocol.messages import LeaveGroupRequest, LeaveGroupResponse
from fencepost.protocol.messages.leave_group import MemberIdentity as Leaving
from fencepost.protocol.messages.leave_group import MemberResponse
from fencepost.protocol.steps import Pace, Steps, each


@serves(LeaveGroupRequest, in_turn=True)
@in_steps
def leave_group(request: LeaveGroupRequest, context: RequestContext, node: Node) -> Steps[Reply]:
    pace = Pace()
    if not context.may(Operation.READ, Resource.GROUP, request.group_id):
        return independent(LeaveGroupResponse(error_code=ErrorCode.GROUP_AUTHORIZATION_FAILED))
    groups = node.groups
    error = groups.check(request.group_id)
    if error:
        return independent(LeaveGroupResponse(error_code=error))
    if context.version < 3:
        (error,), lsn = groups.leave_group(request.group_id, [MemberIdentity(request.member_id, None)])
        return Reply(LeaveGroupResponse(error_code=error), lsn)
    leaving = yield from each(request.members, _identity, pace)
    errors, lsn = groups.leave_group(request.group_id, leaving)
    members = yield from each(zip(leaving, errors, strict=True), _result, pace)
    return Reply(LeaveGroupResponse(error_code=ErrorCode.NONE, members=members), lsn)


def _identity(member: Leaving) -> MemberIdentity:
    return MemberIdentity(member.member_id, member.group_instance_id)


def _result(of: tuple[MemberIdentity, ErrorCode]) -> MemberResponse:
    (member_id, group_instance_id), error = of
    return MemberResponse(member_id=member_id, group_instance_id=group_instance_id, error_code=error)
