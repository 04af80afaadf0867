"""JoinGroup (11): become a member of a classic group; answered when its generation begins.

v1    rebalance time-out
v4    a new member is given its id first (KIP-394)
v5    static members
v6    flexible
v7    the protocol type is answered
v8    a reason
v9    the leader may skip the assignment
"""

from __future__ import annotations

from fencepost.broker.authorizer import Operation, Resource
from fencepost.broker.network.registry import Reply, serves
from fencepost.broker.network.request_context import RequestContext
from fencepost.broker.node import Node
from fencepost.coordinator.group import refuse_join
from fencepost.protocol.errors import ErrorCode
from fencepost.protocol.messages import JoinGroupRequest
from fencepost.protocol.types import NO_LSN


@serves(JoinGroupRequest)
async def join_group(request: JoinGroupRequest, context: RequestContext, node: Node) -> Reply:
    response, lsn = refuse_join(ErrorCode.GROUP_AUTHORIZATION_FAILED, request.member_id), NO_LSN
    if context.may(Operation.READ, Resource.GROUP, request.group_id):
        response, lsn = await node.groups.join_group(request, context.client_id or "", context.host, context.version)
    if context.version < 7 and response.protocol_name is None:  # null is of v7
        response.protocol_name = ""
    return Reply(response, lsn)
