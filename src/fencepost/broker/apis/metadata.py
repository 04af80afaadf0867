"""Metadata (3): nodes of the cluster, topics and their leaders.

v1    controller, racks, internal topics; no topics asked for means none, null means all
v2    cluster id
v4    whether topics may be created
v7    leader epochs
v8    operations that the caller may do
v9    flexible
v10   topic ids
v12   topics may be asked for by id
v13   an error of the whole answer
"""

from __future__ import annotations

import uuid
from collections.abc import Iterator, Mapping, Sequence
from typing import Final

from fencepost.broker.authorizer import CLUSTER_NAME, Operation, Resource
from fencepost.broker.metadata.together import TOGETHER
from fencepost.broker.metadata.topic import NewTopic, Topic
from fencepost.broker.metadata.topic_rules import INTERNAL, MOST_AT_ONCE, NO_LEADER, TopicRefused, topic_name_error
from fencepost.broker.network.pacing import HandlerSteps, awaited, in_steps
from fencepost.broker.network.registry import Reply, independent, serves
from fencepost.broker.network.request_context import NOT_ASKED, RequestContext
from fencepost.broker.node import Node
from fencepost.log.offline import OfflinePartition
from fencepost.log.partition import Partition
from fencepost.protocol.errors import ErrorCode
from fencepost.protocol.messages import MetadataRequest, MetadataResponse
from fencepost.protocol.messages.metadata import (
    MetadataRequestTopic,
    MetadataResponseBroker,
    MetadataResponsePartition,
    MetadataResponseTopic,
)
from fencepost.protocol.steps import FIRST_STEP, ITEM, OPERATIONS, Pace, Steps, each
from fencepost.protocol.types import ZERO_UUID

KNOWN: Final = 10
"""Partitions that were described before and cost as much, with what is encoded at once, as one that was not."""


@serves(MetadataRequest, in_turn=True)
@in_steps
def metadata(request: MetadataRequest, context: RequestContext, node: Node) -> HandlerSteps[Reply]:
    asked, pace = request.topics, Pace(FIRST_STEP)
    error = _refusal(asked or (), context.version)
    if asked is not None and error is not None:
        refused = yield from each(asked, lambda topic: _refused(topic.name or "", error, topic.topic_id), pace)
        whole = error if context.version >= 13 else ErrorCode.NONE
        return independent(MetadataResponse(brokers=[], topics=refused, error_code=whole))
    errors: dict[str, ErrorCode | None] = {}
    missing = yield from _missing(request, context, node, pace)
    for first in range(0, len(missing), TOGETHER):
        names = missing[first : first + TOGETHER]
        yield from pace.spend(4 * ITEM * len(names))
        errors |= yield from awaited(_create(names, context, node))
    topics = []
    for found in _find(request, context, node, errors):  # others may make and delete topics meanwhile
        topic = (yield from _described(found, node, pace)) if isinstance(found, Topic) else found
        if (
            request.include_topic_authorized_operations
            and topic.name is not None
            and topic.error_code != ErrorCode.TOPIC_AUTHORIZATION_FAILED
        ):
            topic.topic_authorized_operations = context.authorized_operations(Resource.TOPIC, topic.name)
            pace.is_used_up(OPERATIONS)
        topics.append(topic)
        yield from pace.spend(ITEM)
    return _answer(topics, request, context, node)


Found = Topic | MetadataResponseTopic
"""A topic to be described, or what is told of one that is not."""


def _by_ids(request: MetadataRequest) -> bool:
    return any(topic.topic_id.int for topic in request.topics or ())


def _names(request: MetadataRequest) -> list[str]:
    return list(dict.fromkeys([topic.name for topic in request.topics or () if topic.name is not None]))


def _missing(request: MetadataRequest, context: RequestContext, node: Node, pace: Pace) -> Steps[list[str]]:
    """Names of the topics to be created automatically: asked for by name, not there yet, and not too many together."""
    if not request.allow_auto_topic_creation or not node.settings["auto.create.topics.enable"] or _by_ids(request):
        return []
    missing = []
    for name in _names(request):
        yield from pace.spend(1)
        if name not in node.topics.by_name and _may_describe(name, context):
            missing.append(name)
    # As in Apache Kafka, whose controller refuses them together, and nobody is told more than that they are unknown.
    return missing if len(missing) * node.settings.number("num.partitions") <= MOST_AT_ONCE else []


def _find(
    request: MetadataRequest, context: RequestContext, node: Node, errors: Mapping[str, ErrorCode | None]
) -> Iterator[Found]:
    """The topics that are asked for, one after the other.  `errors`: by name, of those that were to be made."""
    asked = request.topics
    if asked is None or (context.version == 0 and not asked):
        known = list(node.topics.by_name.values())
        return (topic for topic in known if _visible(topic, context))
    if _by_ids(request):
        return (_by_id(topic_id, context, node) for topic_id in dict.fromkeys([topic.topic_id for topic in asked]))
    return (_by_name(name, context, node, errors) for name in _names(request))


def _answer(
    topics: list[MetadataResponseTopic], request: MetadataRequest, context: RequestContext, node: Node
) -> Reply:
    response = MetadataResponse(
        brokers=[MetadataResponseBroker(node_id=node.node_id, host=node.endpoint.host, port=node.endpoint.port)],
        cluster_id=node.cluster_id,
        controller_id=node.node_id,
        topics=topics,
        cluster_authorized_operations=(
            context.authorized_operations(Resource.CLUSTER, CLUSTER_NAME)
            if request.include_cluster_authorized_operations
            else NOT_ASKED
        ),
    )
    return independent(response)


def _refusal(asked: Sequence[MetadataRequestTopic], version: int) -> ErrorCode | None:
    """The error where a topic has neither name nor id, or before v12 not just a name; None: none has it."""
    if version < 12:
        wrong = any(topic.name is None or topic.topic_id.int for topic in asked)
        return ErrorCode.INVALID_REQUEST if wrong else None
    nameless = any(topic.name is None and not topic.topic_id.int for topic in asked)
    return ErrorCode.UNKNOWN_SERVER_ERROR if nameless else None


def _visible(topic: Topic, context: RequestContext) -> bool:
    return _may_describe(topic.name, context)


def _may_describe(name: str, context: RequestContext) -> bool:
    return context.may(Operation.DESCRIBE, Resource.TOPIC, name)


def _by_id(topic_id: uuid.UUID, context: RequestContext, node: Node) -> Found:
    topic = node.topics.by_id.get(topic_id)
    if topic is None or not _visible(topic, context):
        return _refused(None, ErrorCode.UNKNOWN_TOPIC_ID, topic_id)
    return topic


def _by_name(name: str, context: RequestContext, node: Node, errors: Mapping[str, ErrorCode | None]) -> Found:
    """The topic of this name, or the error of one that is not there.  `errors`: of those that could not be made."""
    if not _may_describe(name, context):
        return _refused(name, ErrorCode.TOPIC_AUTHORIZATION_FAILED)
    topic = node.topics.by_name.get(name)
    if topic is None:
        error = errors.get(name) or topic_name_error(name)
        return _refused(name, error or ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
    return topic


async def _create(names: Sequence[str], context: RequestContext, node: Node) -> dict[str, ErrorCode | None]:
    """Create topics with num.partitions partitions each; the error of each by its name, None where it is there now."""
    errors: dict[str, ErrorCode | None] = {}
    wanted, count = [], node.settings.number("num.partitions")
    for name in names:
        if not (
            context.may(Operation.CREATE, Resource.CLUSTER, CLUSTER_NAME)
            or context.may(Operation.CREATE, Resource.TOPIC, name)
        ):
            errors[name] = ErrorCode.TOPIC_AUTHORIZATION_FAILED
        elif name in INTERNAL:
            errors[name] = await _create_internal(name, node)
        else:
            wanted.append(NewTopic(name, count, {}))
    for name, found in (await node.topics.create_together(wanted, node.slices)).items():
        errors[name] = found.error if isinstance(found, TopicRefused) else None
        if errors[name] is ErrorCode.TOPIC_ALREADY_EXISTS:
            await node.topics.made(name)
            errors[name] = None
    return errors


async def _create_internal(name: str, node: Node) -> ErrorCode | None:
    try:
        await node.ensure_coordinator(name)
    except TopicRefused as refused:
        if refused.error is not ErrorCode.TOPIC_ALREADY_EXISTS:
            return refused.error
        await node.topics.made(name)
    return None


def _refused(name: str | None, error: ErrorCode, topic_id: uuid.UUID = ZERO_UUID) -> MetadataResponseTopic:
    return MetadataResponseTopic(error_code=error, name=name, topic_id=topic_id, partitions=[])


def _described(topic: Topic, node: Node, pace: Pace) -> Steps[MetadataResponseTopic]:
    known = topic.described
    yield from pace.spend(len(known) // KNOWN)
    while len(known) < len(topic.partitions):  # others may describe some meanwhile
        known.append(_partition(topic.partitions[len(known)], [node.node_id]))
        yield from pace.spend(1)
    return MetadataResponseTopic(
        error_code=ErrorCode.NONE,
        name=topic.name,
        topic_id=topic.topic_id,
        is_internal=topic.is_internal,
        partitions=known.copy(),  # the topic may grow while the answer is encoded
    )


def _partition(partition: Partition | OfflinePartition, nodes: list[int]) -> MetadataResponsePartition:
    """A partition in a Metadata response.  `nodes`: those with a replica; the first leads it, unless it is offline."""
    is_offline = isinstance(partition, OfflinePartition)
    return MetadataResponsePartition(
        error_code=ErrorCode.LEADER_NOT_AVAILABLE if is_offline else ErrorCode.NONE,
        partition_index=partition.index,
        leader_id=NO_LEADER if is_offline else nodes[0],
        leader_epoch=partition.leader_epoch,
        replica_nodes=nodes,
        isr_nodes=nodes,
        offline_replicas=nodes if is_offline else [],
    )
