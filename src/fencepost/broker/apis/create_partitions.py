"""CreatePartitions (37): add partitions to topics.

v2    flexible
v3    may be throttled
"""

from __future__ import annotations

from collections import Counter

from fencepost.broker.authorizer import Operation, Resource
from fencepost.broker.metadata.placement import check_more
from fencepost.broker.metadata.topic_rules import TopicRefused, check_growth
from fencepost.broker.network.registry import Reply, independent, serves
from fencepost.broker.network.request_context import RequestContext
from fencepost.broker.node import Node
from fencepost.protocol.errors import ErrorCode
from fencepost.protocol.messages import CreatePartitionsRequest, CreatePartitionsResponse
from fencepost.protocol.messages.create_partitions import CreatePartitionsTopic, CreatePartitionsTopicResult


@serves(CreatePartitionsRequest, in_turn=True)
async def create_partitions(request: CreatePartitionsRequest, context: RequestContext, node: Node) -> Reply:
    times = Counter([topic.name for topic in request.topics])
    results = []
    for name, topic in {topic.name: topic for topic in request.topics}.items():
        await node.slices.pause()
        if times[name] == 1:
            results.append(await _create(topic, request.validate_only, context, node))
        else:
            message = "the topic is named more than once"
            refused = CreatePartitionsTopicResult(
                name=name, error_code=ErrorCode.INVALID_REQUEST, error_message=message
            )
            results.append(refused)
    return independent(CreatePartitionsResponse(results=results))


async def _create(
    asked: CreatePartitionsTopic, validate_only: bool, context: RequestContext, node: Node
) -> CreatePartitionsTopicResult:
    topic = node.topics.by_name.get(asked.name)
    error, message = ErrorCode.NONE, None
    if not context.may(Operation.ALTER, Resource.TOPIC, asked.name):
        error = ErrorCode.TOPIC_AUTHORIZATION_FAILED
    elif topic is None:
        error = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    elif topic.is_internal:
        # Where an id lives is a hash modulo their number.
        error, message = ErrorCode.INVALID_REQUEST, f"the number of partitions of {topic.name} cannot change"
    else:
        try:
            check_growth(topic.name, topic.count, asked.count)
            assigned = None if asked.assignments is None else [found.broker_ids for found in asked.assignments]
            check_more(assigned, topic.count, asked.count, node.node_id)
            if not validate_only:
                await node.topics.add_partitions(topic, asked.count, node.slices)
        except TopicRefused as refused:
            error, message = refused.error, str(refused)
    return CreatePartitionsTopicResult(name=asked.name, error_code=error, error_message=message)
