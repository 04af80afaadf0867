"""FindCoordinator (10): the node that coordinates a group or a transactional id; this one.

The first question for a kind of coordinator makes its internal topic.

v1    key type
v3    flexible
v4    several keys
v6    share groups, which are not supported
"""

from __future__ import annotations

from functools import partial

from fencepost.broker.authorizer import Operation, Resource
from fencepost.broker.network.pacing import HandlerSteps, awaited, in_steps
from fencepost.broker.network.registry import Reply, independent, serves
from fencepost.broker.network.request_context import RequestContext
from fencepost.broker.node import Node
from fencepost.protocol.errors import ErrorCode
from fencepost.protocol.messages import FindCoordinatorRequest, FindCoordinatorResponse
from fencepost.protocol.messages.find_coordinator import GROUP, TRANSACTION, Coordinator
from fencepost.protocol.steps import Pace, Steps, cost_of_id
from fencepost.protocol.types import CONSUMER_OFFSETS, TRANSACTION_STATE

_TOPICS = {GROUP: CONSUMER_OFFSETS, TRANSACTION: TRANSACTION_STATE}
_RESOURCES = {GROUP: Resource.GROUP, TRANSACTION: Resource.TRANSACTIONAL_ID}
_REFUSED = {
    GROUP: ErrorCode.GROUP_AUTHORIZATION_FAILED,
    TRANSACTION: ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
}


@serves(FindCoordinatorRequest, in_turn=True)
@in_steps
def find_coordinator(request: FindCoordinatorRequest, context: RequestContext, node: Node) -> HandlerSteps[Reply]:
    topic, pace = _TOPICS.get(request.key_type), Pace()
    if topic is not None and topic not in node.topics.by_name:
        for key in request.coordinator_keys if context.version >= 4 else [request.key]:
            yield from pace.spend(1)
            if _may(key, request.key_type, context):
                yield from awaited(node.ensure_coordinator(topic))
                break
    return (yield from _answer(request, context, node, pace))


def _may(key: str, key_type: int, context: RequestContext) -> bool:
    return context.may(Operation.DESCRIBE, _RESOURCES[key_type], key)


def _answer(request: FindCoordinatorRequest, context: RequestContext, node: Node, pace: Pace) -> Steps[Reply]:
    find = partial(_find, request.key_type, context, node)
    if context.version >= 4:
        found = []
        for key in request.coordinator_keys:
            found.append(find(key))
            yield from pace.spend(cost_of_id(key))
        return independent(FindCoordinatorResponse(coordinators=found))
    one = find(request.key)
    return independent(
        FindCoordinatorResponse(
            error_code=one.error_code,
            error_message=one.error_message,
            node_id=one.node_id,
            host=one.host,
            port=one.port,
        )
    )


def _find(key_type: int, context: RequestContext, node: Node, key: str) -> Coordinator:
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
