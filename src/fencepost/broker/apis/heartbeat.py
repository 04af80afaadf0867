"""Heartbeat (12): stay a member of a classic group.

v3    static members
v4    flexible
"""

from __future__ import annotations

from fencepost.broker.authorizer import Operation, Resource
from fencepost.broker.network.registry import Reply, independent, serves
from fencepost.broker.network.request_context import RequestContext
from fencepost.broker.node import Node
from fencepost.protocol.errors import ErrorCode
from fencepost.protocol.messages import HeartbeatRequest, HeartbeatResponse


@serves(HeartbeatRequest)
def heartbeat(request: HeartbeatRequest, context: RequestContext, node: Node) -> Reply:
    if not context.may(Operation.READ, Resource.GROUP, request.group_id):
        return independent(HeartbeatResponse(error_code=ErrorCode.GROUP_AUTHORIZATION_FAILED))
    error, lsn = node.groups.heartbeat(
        request.group_id, request.member_id, request.group_instance_id, request.generation_id
    )
    return Reply(HeartbeatResponse(error_code=error), lsn)
