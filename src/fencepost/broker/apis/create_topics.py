"""CreateTopics (19): create topics.

v5    flexible; the configuration is answered
v7    topic ids
"""

from __future__ import annotations

from fencepost.broker.authorizer import CLUSTER_NAME, Operation, Resource
from fencepost.broker.broker import Broker
from fencepost.broker.caller import Caller
from fencepost.broker.configuration import described_topic
from fencepost.broker.registry import serves
from fencepost.broker.topics import INTERNAL, TopicRefused
from fencepost.protocol.errors import ErrorCode
from fencepost.protocol.messages import CreateTopicsRequest, CreateTopicsResponse
from fencepost.protocol.messages.create_topics import CreatableTopic, CreatableTopicConfigs, CreatableTopicResult
from fencepost.protocol.types import ZERO_UUID


@serves(CreateTopicsRequest)
def create_topics(request: CreateTopicsRequest, caller: Caller, broker: Broker) -> CreateTopicsResponse:
    names = [topic.name for topic in request.topics]
    return CreateTopicsResponse(
        topics=[
            _refused(topic.name, ErrorCode.INVALID_REQUEST, "the topic is named more than once")
            if names.count(topic.name) > 1
            else _create(topic, request.validate_only, caller, broker)
            for topic in request.topics
        ]
    )


def _create(asked: CreatableTopic, validate_only: bool, caller: Caller, broker: Broker) -> CreatableTopicResult:
    if not (
        caller.may(Operation.CREATE, Resource.CLUSTER, CLUSTER_NAME)
        or caller.may(Operation.CREATE, Resource.TOPIC, asked.name)
    ):
        return _refused(asked.name, ErrorCode.TOPIC_AUTHORIZATION_FAILED, "Authorization failed.")
    if asked.name in INTERNAL and asked.name not in broker.topics.by_name:
        message = f"{asked.name} is the broker's own: it is made when it is needed"
        return _refused(asked.name, ErrorCode.INVALID_TOPIC_EXCEPTION, message)
    if asked.replication_factor not in (-1, 1) or any(len(found.broker_ids) != 1 for found in asked.assignments):
        message = "one node keeps one copy: the replication factor must be 1"
        return _refused(asked.name, ErrorCode.INVALID_REPLICATION_FACTOR, message)
    count = len(asked.assignments) or asked.num_partitions
    if count == -1:
        count = broker.settings.number("num.partitions")
    settings = {config.name: config.value for config in asked.configs if config.value is not None}
    topic_id = ZERO_UUID
    try:
        if validate_only:
            broker.topics.check_new(asked.name, count, settings)
        else:
            topic_id = broker.topics.create(asked.name, count, settings).topic_id
    except TopicRefused as refused:
        return _refused(asked.name, refused.error, str(refused))
    return CreatableTopicResult(
        name=asked.name,
        topic_id=topic_id,
        error_code=ErrorCode.NONE,
        num_partitions=count,
        replication_factor=1,
        configs=[
            CreatableTopicConfigs(name=entry.name, value=entry.value, config_source=entry.source)
            for entry in described_topic(settings, broker.settings)
        ],
    )


def _refused(name: str, error: ErrorCode, message: str) -> CreatableTopicResult:
    return CreatableTopicResult(name=name, error_code=error, error_message=message)
