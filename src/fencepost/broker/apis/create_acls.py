"""CreateAcls (30): make access lists.  None is made, and each is answered so (`fencepost.broker.access_lists`).

v2    flexible
"""

from __future__ import annotations

from fencepost.broker.access_lists import refusal
from fencepost.broker.authorizer import Operation
from fencepost.broker.network.registry import Reply, independent, serves
from fencepost.broker.network.request_context import RequestContext
from fencepost.broker.node import Node
from fencepost.protocol.messages import CreateAclsRequest, CreateAclsResponse
from fencepost.protocol.messages.create_acls import AclCreationResult


@serves(CreateAclsRequest, in_turn=True)
def create_acls(request: CreateAclsRequest, context: RequestContext, node: Node) -> Reply:  # noqa: ARG001
    error, message = refusal(context, Operation.ALTER)
    refused = AclCreationResult(error_code=error, error_message=message)
    return independent(CreateAclsResponse(results=[refused] * len(request.creations)))
