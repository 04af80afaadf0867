"""DeleteAcls (31): remove access lists.  There are none, as each filter is answered (`fencepost.broker.access_lists`).

v2    flexible
"""

from __future__ import annotations

from fencepost.broker.access_lists import refusal
from fencepost.broker.authorizer import Operation
from fencepost.broker.network.registry import Reply, independent, serves
from fencepost.broker.network.request_context import RequestContext
from fencepost.broker.node import Node
from fencepost.protocol.messages import DeleteAclsRequest, DeleteAclsResponse
from fencepost.protocol.messages.delete_acls import DeleteAclsFilterResult


@serves(DeleteAclsRequest, in_turn=True)
def delete_acls(request: DeleteAclsRequest, context: RequestContext, node: Node) -> Reply:  # noqa: ARG001
    error, message = refusal(context, Operation.ALTER)
    refused = DeleteAclsFilterResult(error_code=error, error_message=message, matching_acls=[])
    return independent(DeleteAclsResponse(filter_results=[refused] * len(request.filters)))
