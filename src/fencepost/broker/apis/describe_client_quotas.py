"""DescribeClientQuotas (48): which quotas are set for users, clients and addresses (KIP-546).  There are none.

v1    flexible
"""

from __future__ import annotations

from fencepost.broker import client_quotas
from fencepost.broker.authorizer import CLUSTER_NAME, Operation, Resource
from fencepost.broker.network.registry import Reply, independent, serves
from fencepost.broker.network.request_context import RequestContext
from fencepost.broker.node import Node
from fencepost.protocol.errors import ErrorCode
from fencepost.protocol.messages import DescribeClientQuotasRequest, DescribeClientQuotasResponse


@serves(DescribeClientQuotasRequest)
def describe_client_quotas(
    request: DescribeClientQuotasRequest,
    context: RequestContext,
    node: Node,  # noqa: ARG001
) -> Reply:
    if not context.may(Operation.DESCRIBE_CONFIGS, Resource.CLUSTER, CLUSTER_NAME):
        return _refused(ErrorCode.CLUSTER_AUTHORIZATION_FAILED, None)
    refusal = client_quotas.refusal(request.components)
    if refusal is not None:
        return _refused(*refusal)
    return independent(DescribeClientQuotasResponse(error_code=ErrorCode.NONE, error_message="", entries=[]))


def _refused(error: ErrorCode, message: str | None) -> Reply:
    return independent(DescribeClientQuotasResponse(error_code=error, error_message=message, entries=None))
