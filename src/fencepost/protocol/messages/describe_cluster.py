"""DescribeCluster (60): cluster id and nodes.

v1    brokers or controllers
v2    fenced brokers
"""

from fencepost.protocol.message import request, response, since, struct
from fencepost.protocol.types import boolean, error_text, int8, int16, int32, string


@request(api=60, versions="0-2", flexible="0+")
class DescribeClusterRequest:
    """Kafka's DescribeClusterRequest."""

    include_cluster_authorized_operations: boolean
    endpoint_type: int8 = since(1, default=1)
    include_fenced_brokers: boolean = since(2, default=False)


@struct
class DescribeClusterBroker:
    broker_id: int32
    host: string
    port: int32
    rack: string | None = None
    is_fenced: boolean = since(2, default=False)


@response(api=60, versions="0-2", flexible="0+")
class DescribeClusterResponse:
    """Kafka's DescribeClusterResponse."""

    throttle_time_ms: int32 = 0
    error_code: int16
    error_message: error_text | None = None
    endpoint_type: int8 = since(1, default=1)
    cluster_id: string
    controller_id: int32 = -1
    brokers: list[DescribeClusterBroker]
    cluster_authorized_operations: int32 = -2147483648
