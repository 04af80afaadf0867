"""ListPartitionReassignments (46): partitions whose replicas are being moved (KIP-455).  There are never any.

A partition has one replica, which stays where it is.  Who names topics or partitions, even such as are not there, is
told the same, as by Apache Kafka where nothing moves.
"""

from __future__ import annotations

from fencepost.broker.authorizer import CLUSTER_NAME, Operation, Resource
from fencepost.broker.network.registry import Reply, independent, serves
from fencepost.broker.network.request_context import RequestContext
from fencepost.broker.node import Node
from fencepost.protocol.errors import ErrorCode
from fencepost.protocol.messages import ListPartitionReassignmentsRequest, ListPartitionReassignmentsResponse


@serves(ListPartitionReassignmentsRequest)
def list_partition_reassignments(
    request: ListPartitionReassignmentsRequest,  # noqa: ARG001
    context: RequestContext,
    node: Node,  # noqa: ARG001
) -> Reply:
    allowed = context.may(Operation.DESCRIBE, Resource.CLUSTER, CLUSTER_NAME)
    error = ErrorCode.NONE if allowed else ErrorCode.CLUSTER_AUTHORIZATION_FAILED
    return independent(ListPartitionReassignmentsResponse(error_code=error, topics=[]))
