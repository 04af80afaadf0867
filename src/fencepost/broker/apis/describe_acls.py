"""DescribeAcls (29): which access lists there are.  There are none (`fencepost.broker.access_lists`).

v2    flexible
"""

from __future__ import annotations

from fencepost.broker.access_lists import refusal
from fencepost.broker.authorizer import Operation
from fencepost.broker.network.registry import Reply, independent, serves
from fencepost.broker.network.request_context import RequestContext
from fencepost.broker.node import Node
from fencepost.protocol.messages import DescribeAclsRequest, DescribeAclsResponse


@serves(DescribeAclsRequest)
def describe_acls(
    request: DescribeAclsRequest,  # noqa: ARG001
    context: RequestContext,
    node: Node,  # noqa: ARG001
) -> Reply:
    error, message = refusal(context, Operation.DESCRIBE)
    return independent(DescribeAclsResponse(error_code=error, error_message=message, resources=[]))
