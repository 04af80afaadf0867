"""DescribeTopicPartitions (75): partitions of topics, a page at a time (KIP-966)."""

from __future__ import annotations

from fencepost.broker.authorizer import Operation, Resource
from fencepost.broker.metadata.topic_rules import NO_LEADER, topic_name_error
from fencepost.broker.network.pacing import in_steps
from fencepost.broker.network.registry import Reply, independent, serves
from fencepost.broker.network.request_context import NOT_ASKED, RequestContext
from fencepost.broker.node import Node
from fencepost.log.offline import OfflinePartition
from fencepost.log.partition import Partition
from fencepost.protocol.errors import ErrorCode
from fencepost.protocol.messages import DescribeTopicPartitionsRequest, DescribeTopicPartitionsResponse
from fencepost.protocol.messages.describe_topic_partitions import (
    Cursor,
    DescribeTopicPartitionsResponsePartition,
    DescribeTopicPartitionsResponseTopic,
)
from fencepost.protocol.steps import FIRST_STEP, ITEM, OPERATIONS, Pace, Steps, each, in_order
from fencepost.protocol.types import ZERO_UUID


@serves(DescribeTopicPartitionsRequest)
@in_steps
def describe_topic_partitions(
    request: DescribeTopicPartitionsRequest, context: RequestContext, node: Node
) -> Steps[Reply]:
    cursor, pace = request.cursor, Pace(FIRST_STEP)
    names = yield from in_order({topic.name for topic in request.topics} or node.topics.by_name, pace)
    if cursor is None and "" in names:
        # As Apache Kafka answers it.
        refused = yield from each(
            request.topics, lambda topic: _refused(topic.name, ErrorCode.UNKNOWN_SERVER_ERROR), pace
        )
        return independent(DescribeTopicPartitionsResponse(topics=refused))
    if cursor is not None:
        names = [name for name in names if name >= cursor.topic_name]
        # Of all topics the one that it names may have been deleted since.
        if cursor.partition_index < 0 or (request.topics and names[:1] != [cursor.topic_name]):
            refused = yield from each(
                request.topics, lambda topic: _refused(topic.name, ErrorCode.INVALID_REQUEST), pace
            )
            return independent(DescribeTopicPartitionsResponse(topics=refused))
    left = min(max(request.response_partition_limit, 1), node.settings.number("max.request.partition.size.limit"))
    topics: list[DescribeTopicPartitionsResponseTopic] = []
    following = None
    for name in names:
        first = cursor.partition_index if cursor is not None and name == cursor.topic_name else 0
        if left == 0:
            following = Cursor(topic_name=name, partition_index=first)
            break
        described = _describe(name, first, left, context, node)
        yield from pace.spend(ITEM + len(described.partitions) + OPERATIONS)
        topics.append(described)
        left -= len(described.partitions)
        topic = node.topics.by_name.get(name)
        if topic is not None and described.partitions and first + len(described.partitions) < len(topic.partitions):
            following = Cursor(topic_name=name, partition_index=first + len(described.partitions))
            break
    return independent(DescribeTopicPartitionsResponse(topics=topics, next_cursor=following))


def _describe(
    name: str, first: int, count: int, context: RequestContext, node: Node
) -> DescribeTopicPartitionsResponseTopic:
    topic = node.topics.by_name.get(name)
    if not context.may(Operation.DESCRIBE, Resource.TOPIC, name):
        return _refused(name, ErrorCode.TOPIC_AUTHORIZATION_FAILED)
    if topic is None:
        error = topic_name_error(name) or ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        return _refused(name, error, context.authorized_operations(Resource.TOPIC, name))
    leader = node.node_id
    return DescribeTopicPartitionsResponseTopic(
        error_code=ErrorCode.NONE,
        name=name,
        topic_id=topic.topic_id,
        is_internal=topic.is_internal,
        partitions=[_partition(partition, leader) for partition in topic.partitions[first : first + count]],
        topic_authorized_operations=context.authorized_operations(Resource.TOPIC, name),
    )


def _partition(partition: Partition | OfflinePartition, leader: int) -> DescribeTopicPartitionsResponsePartition:
    offline = isinstance(partition, OfflinePartition)
    return DescribeTopicPartitionsResponsePartition(
        error_code=ErrorCode.LEADER_NOT_AVAILABLE if offline else ErrorCode.NONE,
        partition_index=partition.index,
        leader_id=NO_LEADER if offline else leader,
        leader_epoch=partition.leader_epoch,
        replica_nodes=[leader],
        isr_nodes=[leader],
        eligible_leader_replicas=[],
        last_known_elr=[],
        offline_replicas=[leader] if offline else [],
    )


def _refused(name: str, error: ErrorCode, operations: int = NOT_ASKED) -> DescribeTopicPartitionsResponseTopic:
    return DescribeTopicPartitionsResponseTopic(
        error_code=error, name=name, topic_id=ZERO_UUID, partitions=[], topic_authorized_operations=operations
    )
