"""SyncGroup (14): hand in (the leader) and receive the assignment of a classic group.

v3    static members
v4    flexible
v5    protocol type and name must be given, and are checked
"""

from __future__ import annotations

from fencepost.broker.authorizer import Operation, Resource
from fencepost.broker.network.registry import Reply, independent, serves
from fencepost.broker.network.request_context import RequestContext
from fencepost.broker.node import Node
from fencepost.coordinator.group import refuse_sync
from fencepost.protocol.errors import ErrorCode
from fencepost.protocol.messages import SyncGroupRequest

_PROTOCOL_SINCE = 5


@serves(SyncGroupRequest)
async def sync_group(request: SyncGroupRequest, context: RequestContext, node: Node) -> Reply:
    if context.version >= _PROTOCOL_SINCE and None in (request.protocol_type, request.protocol_name):
        return independent(refuse_sync(ErrorCode.INCONSISTENT_GROUP_PROTOCOL))
    if not context.may(Operation.READ, Resource.GROUP, request.group_id):
        return independent(refuse_sync(ErrorCode.GROUP_AUTHORIZATION_FAILED))
    return Reply(*await node.groups.sync_group(request))
