"""DeleteGroups (42): delete groups that have no members, and their committed offsets; one named twice is answered once.

v2    flexible
"""

from __future__ import annotations

from fencepost.broker.authorizer import Operation, Resource
from fencepost.broker.network.pacing import in_steps
from fencepost.broker.network.registry import Reply, serves
from fencepost.broker.network.request_context import RequestContext
from fencepost.broker.node import Node
from fencepost.protocol.errors import ErrorCode
from fencepost.protocol.messages import DeleteGroupsRequest, DeleteGroupsResponse
from fencepost.protocol.messages.delete_groups import DeletableGroupResult
from fencepost.protocol.steps import Pace, Steps, cost_of_id
from fencepost.protocol.types import NO_LSN


@serves(DeleteGroupsRequest, in_turn=True)
@in_steps
def delete_groups(request: DeleteGroupsRequest, context: RequestContext, node: Node) -> Steps[Reply]:
    pace, results, lsn = Pace(), [], NO_LSN
    for group_id in dict.fromkeys(request.groups_names):
        yield from pace.spend(cost_of_id(group_id))
        error, needed = ErrorCode.GROUP_AUTHORIZATION_FAILED, NO_LSN
        if context.may(Operation.DELETE, Resource.GROUP, group_id):
            error, needed = node.groups.delete_group(group_id, pace)
        lsn = max(lsn, needed)
        results.append(DeletableGroupResult(group_id=group_id, error_code=error))
    return Reply(DeleteGroupsResponse(results=results), lsn)
