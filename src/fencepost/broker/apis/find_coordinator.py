"""FindCoordinator (10): the node that coordinates a group or a transactional id; this one.

The first question for a kind of coordinator makes its internal topic.

v1    key type
v3    flexible
v4    several keys
v6    share groups, which are not supported
"""

from __future__ import annotations

from fencepost.broker.authorizer import Operation, Resource
from fencepost.broker.metadata.topic_rules import CONSUMER_OFFSETS, TRANSACTION_STATE
from fencepost.broker.network.registry import Later, Reply, independent, serves
from fencepost.broker.network.request_context import RequestContext
from fencepost.broker.node import Node
from fencepost.protocol.errors import ErrorCode
from fencepost.protocol.messages import FindCoordinatorRequest, FindCoordinatorResponse
from fencepost.protocol.messages.find_coordinator import Coordinator

GROUP, TRANSACTION = 0, 1
_TOPICS = {GROUP: CONSUMER_OFFSETS, TRANSACTION: TRANSACTION_STATE}
_RESOURCES = {GROUP: Resource.GROUP, TRANSACTION: Resource.TRANSACTIONAL_ID}
_REFUSED = {
    GROUP: ErrorCode.GROUP_AUTHORIZATION_FAILED,
    TRANSACTION: ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
}


@serves(FindCoordinatorRequest, in_turn=True)
def find_coordinator(request: FindCoordinatorRequest, context: RequestContext, node: Node) -> Reply | Later:
    topic = _TOPICS.get(request.key_type)
    if topic is None or topic in node.topics.by_name:
        return _answer(request, context, node)
    keys = request.coordinator_keys if context.version >= 4 else [request.key]
    if not any(_may(key, request.key_type, context) for key in keys):
        return _answer(request, context, node)
    return _made_first(topic, request, context, node)


async def _made_first(topic: str, request: FindCoordinatorRequest, context: RequestContext, node: Node) -> Reply:
    await node.ensure_coordinator(topic)
    return _answer(request, context, node)


def _may(key: str, key_type: int, context: RequestContext) -> bool:
    return context.may(Operation.DESCRIBE, _RESOURCES[key_type], key)


def _answer(request: FindCoordinatorRequest, context: RequestContext, node: Node) -> Reply:
    if context.version >= 4:
        found = [_find(key, request.key_type, context, node) for key in request.coordinator_keys]
        return independent(FindCoordinatorResponse(coordinators=found))
    one = _find(request.key, request.key_type, context, node)
    return independent(
        FindCoordinatorResponse(
            error_code=one.error_code,
            error_message=one.error_message,
            node_id=one.node_id,
            host=one.host,
            port=one.port,
        )
    )


def _find(key: str, key_type: int, context: RequestContext, node: Node) -> Coordinator:
    if key_type not in _TOPICS:
        return _refused(key, ErrorCode.INVALID_REQUEST, f"there are no coordinators of type {key_type}")
    if not _may(key, key_type, context):
        return _refused(key, _REFUSED[key_type], None)
    topic = _TOPICS[key_type]
    if topic not in node.topics.by_name:
        return _refused(
            key, ErrorCode.COORDINATOR_NOT_AVAILABLE, f"{topic} cannot be made now; the broker's log says why"
        )
    of = node.groups if key_type == GROUP else node.transactions
    if node.storage.partition(topic, of.partition_for(key)) is None:
        message = f"{topic}-{of.partition_for(key)} is offline; the broker's log says why"
        return _refused(key, ErrorCode.COORDINATOR_NOT_AVAILABLE, message)
    return Coordinator(
        key=key,
        node_id=node.node_id,
        host=node.endpoint.host,
        port=node.endpoint.port,
        error_code=ErrorCode.NONE,
        error_message="" if context.version >= 4 else "NONE",  # as Apache Kafka has it
    )


def _refused(key: str, error: ErrorCode, message: str | None) -> Coordinator:
    return Coordinator(key=key, node_id=-1, host="", port=-1, error_code=error, error_message=message)
