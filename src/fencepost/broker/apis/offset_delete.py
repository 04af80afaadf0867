"""OffsetDelete (47): delete committed offsets of a group, those of topics that its members read excepted."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial

from fencepost.broker.authorizer import Operation, Resource
from fencepost.broker.network.pacing import in_steps
from fencepost.broker.network.registry import Reply, independent, serves
from fencepost.broker.network.request_context import RequestContext
from fencepost.broker.node import Node
from fencepost.protocol.errors import ErrorCode
from fencepost.protocol.messages import OffsetDeleteRequest, OffsetDeleteResponse
from fencepost.protocol.messages.offset_delete import (
    OffsetDeleteRequestPartition,
    OffsetDeleteResponsePartition,
    OffsetDeleteResponseTopic,
)
from fencepost.protocol.steps import ITEM, Pace, Steps, each
from fencepost.protocol.types import TopicPartition


@serves(OffsetDeleteRequest, in_turn=True)
@in_steps
def offset_delete(request: OffsetDeleteRequest, context: RequestContext, node: Node) -> Steps[Reply]:
    if not context.may(Operation.DELETE, Resource.GROUP, request.group_id):
        return independent(OffsetDeleteResponse(error_code=ErrorCode.GROUP_AUTHORIZATION_FAILED, topics=[]))
    pace = Pace()
    asked = []
    for topic in request.topics:
        for part in topic.partitions:
            yield from pace.spend(4)
            asked.append(TopicPartition(topic.name, part.partition_index))
    looked_up = yield from each(asked, partial(_unfit, context, node), pace)
    refused = {at: error for at, error in zip(asked, looked_up, strict=True) if error}
    deleted, lsn = node.groups.delete_offsets(request.group_id, [at for at in asked if at not in refused])
    if isinstance(deleted, ErrorCode):
        return Reply(OffsetDeleteResponse(error_code=deleted, topics=[]), lsn)
    errors = {**deleted, **refused}
    topics = []
    for topic in request.topics:
        yield from pace.spend(ITEM)
        parts = yield from each(topic.partitions, partial(_result, topic.name, errors), pace)
        topics.append(OffsetDeleteResponseTopic(name=topic.name, partitions=parts))
    return Reply(OffsetDeleteResponse(error_code=ErrorCode.NONE, topics=topics), lsn)


def _result(
    topic: str, errors: Mapping[TopicPartition, ErrorCode], asked: OffsetDeleteRequestPartition
) -> OffsetDeleteResponsePartition:
    index = asked.partition_index
    return OffsetDeleteResponsePartition(partition_index=index, error_code=errors[TopicPartition(topic, index)])


def _unfit(context: RequestContext, node: Node, at: TopicPartition) -> ErrorCode | None:
    if not context.may(Operation.READ, Resource.TOPIC, at.topic):
        return ErrorCode.TOPIC_AUTHORIZATION_FAILED
    return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION if not node.storage.exists(*at) else None
