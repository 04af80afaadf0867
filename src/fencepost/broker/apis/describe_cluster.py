"""DescribeCluster (60): cluster id and nodes.

v1    brokers or controllers
v2    fenced brokers
"""

from __future__ import annotations

from fencepost.broker.authorizer import CLUSTER_NAME, Resource
from fencepost.broker.network.registry import Reply, independent, serves
from fencepost.broker.network.request_context import NOT_ASKED, RequestContext
from fencepost.broker.node import Node
from fencepost.protocol.errors import ErrorCode
from fencepost.protocol.messages import DescribeClusterRequest, DescribeClusterResponse
from fencepost.protocol.messages.describe_cluster import DescribeClusterBroker

_BROKERS, _CONTROLLERS = 1, 2


@serves(DescribeClusterRequest)
def describe_cluster(request: DescribeClusterRequest, context: RequestContext, node: Node) -> Reply:
    if context.version >= 1 and request.endpoint_type != _BROKERS:
        known = request.endpoint_type == _CONTROLLERS
        return independent(
            DescribeClusterResponse(
                error_code=ErrorCode.MISMATCHED_ENDPOINT_TYPE if known else ErrorCode.UNSUPPORTED_ENDPOINT_TYPE,
                error_message="this address is a broker's: the endpoint type must be 1",
                endpoint_type=_BROKERS,
                cluster_id="",
                brokers=[],
            )
        )
    return independent(
        DescribeClusterResponse(
            error_code=ErrorCode.NONE,
            endpoint_type=_BROKERS,
            cluster_id=node.cluster_id,
            controller_id=node.node_id,
            brokers=[DescribeClusterBroker(broker_id=node.node_id, host=node.endpoint.host, port=node.endpoint.port)],
            cluster_authorized_operations=(
                context.authorized_operations(Resource.CLUSTER, CLUSTER_NAME)
                if request.include_cluster_authorized_operations
                else NOT_ASKED
            ),
        )
    )
