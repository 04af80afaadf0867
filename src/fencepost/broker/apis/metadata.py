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
from fencepost.broker.metadata.topic_rules import INTERNAL, NO_LEADER, TopicRefused, topic_name_error
from fencepost.broker.metadata.topics import Topic
from fencepost.broker.network.registry import Later, Reply, independent, serves
from fencepost.broker.network.request_context import NOT_ASKED, RequestContext
from fencepost.broker.node import Node
from fencepost.log.offline import OfflinePartition
from fencepost.protocol.errors import ErrorCode
from fencepost.protocol.messages import MetadataRequest, MetadataResponse
from fencepost.protocol.messages.metadata import (
    MetadataRequestTopic,
    MetadataResponseBroker,
    MetadataResponsePartition,
    MetadataResponseTopic,
)
from fencepost.protocol.types import ZERO_UUID

_AT_ONCE: Final = 100
"""Topics that are told of in one step."""


@serves(MetadataRequest, in_turn=True)
def metadata(request: MetadataRequest, context: RequestContext, node: Node) -> Reply | Later:
    asked = request.topics
    error = _refusal(asked or (), context.version)
    if asked is not None and error is not None:
        return independent(
            MetadataResponse(
                brokers=[],
                topics=[_refused(topic.name or "", error, topic.topic_id) for topic in asked],
                error_code=error if context.version >= 13 else ErrorCode.NONE,
            )
        )
    missing = _missing(request, context, node)
    if missing:
        return _created_first(missing, request, context, node)
    found, count = _find(request, context, node, {})
    if count > _AT_ONCE:
        return _in_slices(found, request, context, node)
    return _answer(list(found), request, context, node)


Described = Iterator[MetadataResponseTopic]


def _by_ids(request: MetadataRequest) -> bool:
    return any(topic.topic_id != ZERO_UUID for topic in request.topics or ())


def _names(request: MetadataRequest) -> list[str]:
    return list(dict.fromkeys(topic.name for topic in request.topics or () if topic.name is not None))


def _missing(request: MetadataRequest, context: RequestContext, node: Node) -> list[str]:
    """The topics that are made because somebody asks for them."""
    if not request.allow_auto_topic_creation or not node.settings["auto.create.topics.enable"]:
        return []
    if _by_ids(request):
        return []
    return [name for name in _names(request) if name not in node.topics.by_name and _may_describe(name, context)]


def _find(
    request: MetadataRequest, context: RequestContext, node: Node, errors: Mapping[str, ErrorCode | None]
) -> tuple[Described, int]:
    """What is told of each topic, one after the other, and how many these are.  `errors`: of those that were made."""
    asked = request.topics
    if asked is None or (context.version == 0 and not asked):
        known = list(node.topics.by_name.values())
        return (_described(topic, node) for topic in known if _visible(topic, context)), len(known)
    if _by_ids(request):
        ids = dict.fromkeys(topic.topic_id for topic in asked)
        return (_by_id(topic_id, context, node) for topic_id in ids), len(ids)
    names = _names(request)
    return (_by_name(name, context, node, errors) for name in names), len(names)


async def _created_first(
    missing: Sequence[str], request: MetadataRequest, context: RequestContext, node: Node
) -> Reply:
    errors: dict[str, ErrorCode | None] = {}
    for name in missing:
        errors[name] = await _create(name, context, node)
        await node.slices.pause()
    found, _ = _find(request, context, node, errors)
    return await _in_slices(found, request, context, node)


async def _in_slices(found: Described, request: MetadataRequest, context: RequestContext, node: Node) -> Reply:
    """With turns for others, who may make and delete topics meanwhile."""
    topics = []
    for topic in found:
        topics.append(topic)
        await node.slices.pause()
    return _answer(topics, request, context, node)


def _answer(
    topics: list[MetadataResponseTopic], request: MetadataRequest, context: RequestContext, node: Node
) -> Reply:
    if request.include_topic_authorized_operations:
        for topic in topics:
            if topic.name is not None and topic.error_code != ErrorCode.TOPIC_AUTHORIZATION_FAILED:
                topic.topic_authorized_operations = context.authorized_operations(Resource.TOPIC, topic.name)
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
    """Topics have names; from v12 on they may have ids instead.  As Apache Kafka refuses what is neither."""
    if version < 12:
        wrong = any(topic.name is None or topic.topic_id != ZERO_UUID for topic in asked)
        return ErrorCode.INVALID_REQUEST if wrong else None
    nameless = any(topic.name is None and topic.topic_id == ZERO_UUID for topic in asked)
    return ErrorCode.UNKNOWN_SERVER_ERROR if nameless else None


def _visible(topic: Topic, context: RequestContext) -> bool:
    return _may_describe(topic.name, context)


def _may_describe(name: str, context: RequestContext) -> bool:
    return context.may(Operation.DESCRIBE, Resource.TOPIC, name)


def _by_id(topic_id: uuid.UUID, context: RequestContext, node: Node) -> MetadataResponseTopic:
    topic = node.topics.by_id.get(topic_id)
    if topic is None or not _visible(topic, context):
        return _refused(None, ErrorCode.UNKNOWN_TOPIC_ID, topic_id)
    return _described(topic, node)


def _by_name(
    name: str, context: RequestContext, node: Node, errors: Mapping[str, ErrorCode | None]
) -> MetadataResponseTopic:
    """`errors`: of those that could not be made."""
    if not _may_describe(name, context):
        return _refused(name, ErrorCode.TOPIC_AUTHORIZATION_FAILED)
    topic = node.topics.by_name.get(name)
    if topic is None:
        error = errors.get(name) or topic_name_error(name)
        return _refused(name, error or ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
    return _described(topic, node)


async def _create(name: str, context: RequestContext, node: Node) -> ErrorCode | None:
    """Make a topic that somebody asked for."""
    if not (
        context.may(Operation.CREATE, Resource.CLUSTER, CLUSTER_NAME)
        or context.may(Operation.CREATE, Resource.TOPIC, name)
    ):
        return ErrorCode.TOPIC_AUTHORIZATION_FAILED
    try:
        if name in INTERNAL:
            await node.ensure_coordinator(name)
        else:
            await node.topics.create(name, node.settings.number("num.partitions"), {}, node.slices)
    except TopicRefused as refused:
        if refused.error is not ErrorCode.TOPIC_ALREADY_EXISTS:
            return refused.error
        await node.topics.made(name)
    return None


def _refused(name: str | None, error: ErrorCode, topic_id: uuid.UUID = ZERO_UUID) -> MetadataResponseTopic:
    return MetadataResponseTopic(error_code=error, name=name, topic_id=topic_id, partitions=[])


def _described(topic: Topic, node: Node) -> MetadataResponseTopic:
    leader = node.node_id
    return MetadataResponseTopic(
        error_code=ErrorCode.NONE,
        name=topic.name,
        topic_id=topic.topic_id,
        is_internal=topic.is_internal,
        partitions=[
            MetadataResponsePartition(
                error_code=ErrorCode.LEADER_NOT_AVAILABLE,
                partition_index=partition.index,
                leader_id=NO_LEADER,
                leader_epoch=partition.leader_epoch,
                replica_nodes=[leader],
                isr_nodes=[leader],
                offline_replicas=[leader],
            )
            if isinstance(partition, OfflinePartition)
            else MetadataResponsePartition(
                error_code=ErrorCode.NONE,
                partition_index=partition.index,
                leader_id=leader,
                leader_epoch=partition.leader_epoch,
                replica_nodes=[leader],
                isr_nodes=[leader],
            )
            for partition in topic.partitions
        ],
    )
