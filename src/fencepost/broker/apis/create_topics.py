"""CreateTopics (19): create topics.

v5    flexible; the configuration is answered
v7    topic ids
"""

from __future__ import annotations

import uuid
from collections import Counter
from collections.abc import Sequence
from typing import Final

from fencepost.broker.authorizer import CLUSTER_NAME, Operation, Resource
from fencepost.broker.metadata.configuration import described_topic
from fencepost.broker.metadata.placement import new_count
from fencepost.broker.metadata.together import TOGETHER
from fencepost.broker.metadata.topic import NewTopic
from fencepost.broker.metadata.topic_rules import INTERNAL, MOST_AT_ONCE, TopicRefused, checked
from fencepost.broker.network.registry import Reply, independent, serves
from fencepost.broker.network.request_context import RequestContext
from fencepost.broker.node import Node
from fencepost.protocol.errors import ErrorCode
from fencepost.protocol.messages import CreateTopicsRequest, CreateTopicsResponse
from fencepost.protocol.messages.create_topics import CreatableTopic, CreatableTopicConfigs, CreatableTopicResult

TOO_MANY: Final = f"one request makes {MOST_AT_ONCE} partitions at most: ask for fewer topics at a time"


@serves(CreateTopicsRequest, in_turn=True)
async def create_topics(request: CreateTopicsRequest, context: RequestContext, node: Node) -> Reply:
    times = Counter([topic.name for topic in request.topics])
    found: dict[str, CreatableTopicResult] = {}
    wanted: list[NewTopic] = []
    too_many = len(request.topics) > 1 and _partitions(request, node) > MOST_AT_ONCE
    for name, topic in {topic.name: topic for topic in request.topics}.items():
        await node.slices.pause()
        if too_many:
            found[name] = _refused(name, ErrorCode.POLICY_VIOLATION, TOO_MANY)
        elif times[name] > 1:
            found[name] = _refused(name, ErrorCode.INVALID_REQUEST, "the topic is named more than once")
        else:
            checked_one = _checked(topic, request.validate_only, context, node)
            if isinstance(checked_one, NewTopic):
                wanted.append(checked_one)
            else:
                found[name] = checked_one
        if len(wanted) == TOGETHER:
            found |= await _create(wanted, context, node)
            wanted = []
    found |= await _create(wanted, context, node)
    return independent(CreateTopicsResponse(topics=[found[name] for name in times]))


def _partitions(request: CreateTopicsRequest, node: Node) -> int:
    """The number of partitions that a request asks for, in all its topics."""
    default, total = node.settings.number("num.partitions"), 0
    for topic in request.topics:
        given = default if topic.num_partitions == -1 else topic.num_partitions
        total += len(topic.assignments) or max(given, 0)
    return total


async def _create(wanted: Sequence[NewTopic], context: RequestContext, node: Node) -> dict[str, CreatableTopicResult]:
    answers = {}
    made = await node.topics.create_together(wanted, node.slices)
    for new in wanted:
        topic = made[new.name]
        await node.slices.pause()
        if isinstance(topic, TopicRefused):
            answers[new.name] = _refused(new.name, topic.error, str(topic))
        else:
            answers[new.name] = _made(new, topic.topic_id, context, node)
    return answers


def _checked(
    asked: CreatableTopic, validate_only: bool, context: RequestContext, node: Node
) -> NewTopic | CreatableTopicResult:
    """The topic that is to be made; or its result, where it is refused, or is only to be validated."""
    if not (
        context.may(Operation.CREATE, Resource.CLUSTER, CLUSTER_NAME)
        or context.may(Operation.CREATE, Resource.TOPIC, asked.name)
    ):
        return _refused(asked.name, ErrorCode.TOPIC_AUTHORIZATION_FAILED, "Authorization failed.")
    if asked.name in INTERNAL and asked.name not in node.topics.by_name:
        message = f"{asked.name} is the broker's own: it is made when it is needed"
        return _refused(asked.name, ErrorCode.INVALID_TOPIC_EXCEPTION, message)
    settings = {config.name: config.value for config in asked.configs}
    assigned = [(found.partition_index, found.broker_ids) for found in asked.assignments]
    default = node.settings.number("num.partitions")
    try:
        node.topics.check_name(asked.name)
        given = checked(settings)
        count = new_count(asked.num_partitions, asked.replication_factor, assigned, default, node.node_id)
        if not validate_only:
            return NewTopic(asked.name, count, given)
        node.topics.check_new(asked.name, count, given)
    except TopicRefused as refused:
        return _refused(asked.name, refused.error, str(refused))
    topic_id = node.topics.new_id()  # nobody's, as in Apache Kafka
    return _made(NewTopic(asked.name, count, given), topic_id, context, node)


def _made(new: NewTopic, topic_id: uuid.UUID, context: RequestContext, node: Node) -> CreatableTopicResult:
    name, count, given = new
    if not context.may(Operation.DESCRIBE_CONFIGS, Resource.TOPIC, name):
        hidden = ErrorCode.TOPIC_AUTHORIZATION_FAILED
        return CreatableTopicResult(
            name=name, topic_id=topic_id, error_code=ErrorCode.NONE, topic_config_error_code=hidden, configs=[]
        )
    return CreatableTopicResult(
        name=name,
        topic_id=topic_id,
        error_code=ErrorCode.NONE,
        num_partitions=count,
        replication_factor=1,
        configs=[
            CreatableTopicConfigs(name=entry.name, value=given.get(entry.name, entry.value), config_source=entry.source)
            for entry in described_topic(given, node.settings)
        ],
    )


def _refused(name: str, error: ErrorCode, message: str) -> CreatableTopicResult:
    return CreatableTopicResult(name=name, error_code=error, error_message=message, configs=[])
