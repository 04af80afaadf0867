"""OffsetDelete (47): delete committed offsets of a group, those of topics that its members read excepted."""

from __future__ import annotations

from fencepost.broker.authorizer import Operation, Resource
from fencepost.broker.network.registry import Reply, independent, serves
from fencepost.broker.network.request_context import RequestContext
from fencepost.broker.node import Node
from fencepost.protocol.errors import ErrorCode
from fencepost.protocol.messages import OffsetDeleteRequest, OffsetDeleteResponse
from fencepost.protocol.messages.offset_delete import OffsetDeleteResponsePartition, OffsetDeleteResponseTopic
from fencepost.protocol.types import TopicPartition


@serves(OffsetDeleteRequest)
def offset_delete(request: OffsetDeleteRequest, context: RequestContext, node: Node) -> Reply:
    if not context.may(Operation.DELETE, Resource.GROUP, request.group_id):
        return independent(OffsetDeleteResponse(error_code=ErrorCode.GROUP_AUTHORIZATION_FAILED, topics=[]))
    asked = [TopicPartition(topic.name, part.partition_index) for topic in request.topics for part in topic.partitions]
    refused = {at: error for at in asked if (error := _unfit(at, context, node))}
    deleted, lsn = node.groups.delete_offsets(request.group_id, [at for at in asked if at not in refused])
    if isinstance(deleted, ErrorCode):
        return Reply(OffsetDeleteResponse(error_code=deleted, topics=[]), lsn)
    errors = {**deleted, **refused}
    topics = [
        OffsetDeleteResponseTopic(
            name=topic.name,
            partitions=[
                OffsetDeleteResponsePartition(
                    partition_index=part.partition_index,
                    error_code=errors[TopicPartition(topic.name, part.partition_index)],
                )
                for part in topic.partitions
            ],
        )
        for topic in request.topics
    ]
    return Reply(OffsetDeleteResponse(error_code=ErrorCode.NONE, topics=topics), lsn)


def _unfit(at: TopicPartition, context: RequestContext, node: Node) -> ErrorCode | None:
    if not context.may(Operation.READ, Resource.TOPIC, at.topic):
        return ErrorCode.TOPIC_AUTHORIZATION_FAILED
    return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION if not node.storage.exists(*at) else None
