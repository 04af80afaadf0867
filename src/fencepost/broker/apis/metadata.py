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

from fencepost.broker.authorizer import CLUSTER_NAME, Operation, Resource
from fencepost.broker.broker import Broker
from fencepost.broker.caller import Caller
from fencepost.broker.registry import serves
from fencepost.broker.topics import INTERNAL, Topic, TopicRefused
from fencepost.protocol.errors import ErrorCode
from fencepost.protocol.messages import MetadataRequest, MetadataResponse
from fencepost.protocol.messages.metadata import (
    MetadataRequestTopic,
    MetadataResponseBroker,
    MetadataResponsePartition,
    MetadataResponseTopic,
)
from fencepost.protocol.types import ZERO_UUID


@serves(MetadataRequest)
def metadata(request: MetadataRequest, caller: Caller, broker: Broker) -> MetadataResponse:
    asked = request.topics
    if asked is None or (caller.version == 0 and not asked):
        topics = [_described(topic, broker) for topic in broker.topics.by_name.values() if _visible(topic, caller)]
    else:
        may_create = request.allow_auto_topic_creation and bool(broker.settings["auto.create.topics.enable"])
        topics = [_one(wanted, caller, broker, may_create) for wanted in asked]
    return MetadataResponse(
        brokers=[MetadataResponseBroker(node_id=broker.node_id, host=broker.host, port=broker.port)],
        cluster_id=broker.cluster_id,
        controller_id=broker.node_id,
        topics=topics,
    )


def _visible(topic: Topic, caller: Caller) -> bool:
    return caller.may(Operation.DESCRIBE, Resource.TOPIC, topic.name)


def _one(wanted: MetadataRequestTopic, caller: Caller, broker: Broker, may_create: bool) -> MetadataResponseTopic:
    topics = broker.topics
    if wanted.name is None:
        topic = topics.by_id.get(wanted.topic_id)
        if topic is None or not _visible(topic, caller):
            return _refused(None, ErrorCode.UNKNOWN_TOPIC_ID, wanted)
        return _described(topic, broker)
    if not caller.may(Operation.DESCRIBE, Resource.TOPIC, wanted.name):
        return _refused(wanted.name, ErrorCode.TOPIC_AUTHORIZATION_FAILED, wanted)
    topic = topics.by_name.get(wanted.name)
    if topic is None and may_create:
        if not (
            caller.may(Operation.CREATE, Resource.CLUSTER, CLUSTER_NAME)
            or caller.may(Operation.CREATE, Resource.TOPIC, wanted.name)
        ):
            return _refused(wanted.name, ErrorCode.TOPIC_AUTHORIZATION_FAILED, wanted)
        try:
            if wanted.name in INTERNAL:
                broker.ensure_coordinator(wanted.name)
                topic = topics.by_name.get(wanted.name)
            else:
                topic = topics.create(wanted.name, broker.settings.number("num.partitions"))
        except TopicRefused as refused:
            return _refused(wanted.name, refused.error, wanted)
    if topic is None:
        try:
            topics.check_new(wanted.name, 1, {})
        except TopicRefused as refused:
            return _refused(wanted.name, refused.error, wanted)
        return _refused(wanted.name, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, wanted)
    return _described(topic, broker)


def _refused(name: str | None, error: ErrorCode, wanted: MetadataRequestTopic) -> MetadataResponseTopic:
    topic_id = wanted.topic_id if name is None else ZERO_UUID
    return MetadataResponseTopic(error_code=error, name=name, topic_id=topic_id, partitions=[])


def _described(topic: Topic, broker: Broker) -> MetadataResponseTopic:
    node = broker.node_id
    return MetadataResponseTopic(
        error_code=ErrorCode.NONE,
        name=topic.name,
        topic_id=topic.topic_id,
        is_internal=topic.is_internal,
        partitions=[
            MetadataResponsePartition(
                error_code=ErrorCode.NONE,
                partition_index=partition.index,
                leader_id=node,
                leader_epoch=partition.leader_epoch,
                replica_nodes=[node],
                isr_nodes=[node],
            )
            for partition in topic.partitions
        ],
    )
