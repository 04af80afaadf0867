"""Topics and their partitions: described, made, grown, deleted."""

from __future__ import annotations

import uuid
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from fencepost.client.admin.asking import (
    FINAL_OF_CONTROLLERS,
    ItemResult,
    Question,
    ask,
    metadata,
    refusal,
)
from fencepost.client.admin.routes import Controller
from fencepost.client.cluster import Cluster, Deadline
from fencepost.client.errors import BrokerError, PartlyRefusedError
from fencepost.protocol.errors import ErrorCode
from fencepost.protocol.messages import CreatePartitionsRequest, CreateTopicsRequest, DeleteTopicsRequest
from fencepost.protocol.messages.create_partitions import CreatePartitionsTopic
from fencepost.protocol.messages.create_topics import CreatableReplicaAssignment, CreatableTopic, CreatableTopicConfig
from fencepost.protocol.messages.delete_topics import DeleteTopicState
from fencepost.protocol.types import TopicPartition


class PartitionDescription(NamedTuple):
    """A partition of a topic.  `leader` is None while nobody leads it; the others are ids of brokers."""

    partition: int
    leader: int | None
    leader_epoch: int
    replicas: list[int]
    in_sync_replicas: list[int]
    offline_replicas: list[int]


class TopicDescription(NamedTuple):
    """A topic, as the broker that was asked knows it.  `is_internal`: it is one of the broker's own."""

    name: str
    topic_id: uuid.UUID
    is_internal: bool
    partitions: list[PartitionDescription]


class NewTopic(NamedTuple):
    """A topic to make.  -1 leaves a number to the broker.

    `replicas`: instead of the two numbers, the ids of the brokers that hold each partition, its leader first.
    """

    name: str
    partitions: int = -1
    replication_factor: int = -1
    config: Mapping[str, str] = {}
    replicas: Mapping[int, Sequence[int]] = {}


async def describe_topics(
    cluster: Cluster, names: Sequence[str] | None, deadline: Deadline
) -> dict[str, TopicDescription]:
    """Describe these topics, or all if `names` is None.  Raises BrokerError, PartlyRefusedError."""
    cluster.check_open()
    if names is not None and not names:
        return {}
    while True:
        answer = await metadata(cluster, names, deadline)
        found: dict[str, TopicDescription] = {}
        refused: dict[str, BrokerError] = {}
        because = ""
        for topic in answer.topics:
            error, name = ErrorCode(topic.error_code), topic.name or ""
            if not error:
                found[name] = _description(topic)
            elif error.retriable and error is not ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
                because = f"{error.name} for topic {name!r}"
            else:
                refused[name] = BrokerError(topic.error_code, f"topic {name!r} cannot be described")
        if because:
            await deadline.pause(because)
        elif refused:
            raise refusal(refused, found)
        else:
            return dict(sorted(found.items()))


def _description(topic: Any) -> TopicDescription:
    partitions = [
        PartitionDescription(
            part.partition_index,
            None if part.leader_id < 0 else part.leader_id,
            part.leader_epoch,
            list(part.replica_nodes),
            list(part.isr_nodes),
            list(part.offline_replicas),
        )
        for part in topic.partitions
    ]
    return TopicDescription(topic.name, topic.topic_id, topic.is_internal, sorted(partitions))


async def create_topics(
    cluster: Cluster,
    topics: Sequence[NewTopic],
    deadline: Deadline,
    *,
    exist_ok: bool = False,
    validate_only: bool = False,
) -> None:
    """Make topics.  Each has a leader for each partition then, as far as the broker that was asked knows.

    Raises ValueError if a topic is named twice, BrokerError, PartlyRefusedError.
    """
    by_name = {topic.name: topic for topic in topics}
    if len(by_name) < len(topics):
        raise ValueError("a topic is to be made twice: name each once")

    def request(names: Sequence[str]) -> CreateTopicsRequest:
        wanted = [_creatable(by_name[name]) for name in names]
        return CreateTopicsRequest(topics=wanted, timeout_ms=cluster.request_timeout_ms, validate_only=validate_only)

    def read(answer: Any, _: object) -> Iterator[ItemResult[str, None]]:
        for topic in answer.topics:
            there = exist_ok and topic.error_code == ErrorCode.TOPIC_ALREADY_EXISTS
            yield ItemResult(topic.name, 0 if there else topic.error_code, topic.error_message, None)

    question = Question(
        request=request,
        read=read,
        refused=lambda name: f"topic {name!r} was not created",
        final=FINAL_OF_CONTROLLERS,
        once=True,
    )
    made, refused = list(by_name), None
    try:
        await ask(cluster, by_name, Controller(cluster), question, deadline)
    except PartlyRefusedError as error:
        made, refused = [str(name) for name in error.done], error
    for name in () if validate_only else made:
        await _led(cluster, name, deadline)
    if refused is not None:
        raise refused


async def _led(cluster: Cluster, name: str, deadline: Deadline) -> None:
    """Wait until every partition of a topic has a leader."""
    cluster.forget_topic(name)
    for number in (await cluster.topic(name, deadline)).leaders:
        await cluster.leader(TopicPartition(name, number), deadline)


def _creatable(topic: NewTopic) -> CreatableTopic:
    replicas = [
        CreatableReplicaAssignment(partition_index=number, broker_ids=list(brokers))
        for number, brokers in topic.replicas.items()
    ]
    return CreatableTopic(
        name=topic.name,
        num_partitions=-1 if replicas else topic.partitions,
        replication_factor=-1 if replicas else topic.replication_factor,
        assignments=replicas,
        configs=[CreatableTopicConfig(name=key, value=value) for key, value in topic.config.items()],
    )


async def create_topic(
    cluster: Cluster, name: str, *, partitions: int, replication_factor: int, config: Mapping[str, str], exist_ok: bool
) -> None:
    """As `Admin.create_topic`, for who has a cluster already."""
    topic = NewTopic(name, partitions, replication_factor, config)
    await create_topics(cluster, [topic], cluster.deadline(f"creating topic {name!r}"), exist_ok=exist_ok)


async def delete_topics(cluster: Cluster, names: Iterable[str], deadline: Deadline) -> None:
    """Delete topics with all their records."""

    def request(asked: Sequence[str]) -> DeleteTopicsRequest:
        states = [DeleteTopicState(name=name) for name in asked]
        return DeleteTopicsRequest(topics=states, topic_names=list(asked), timeout_ms=cluster.request_timeout_ms)

    def read(answer: Any, _: object) -> Iterator[ItemResult[str, None]]:
        for topic in answer.responses:
            if topic.name is not None:
                cluster.forget_topic(topic.name)
                yield ItemResult(topic.name, topic.error_code, topic.error_message, None)

    question = Question(
        request=request,
        read=read,
        refused=lambda name: f"topic {name!r} was not deleted",
        final=FINAL_OF_CONTROLLERS,
        once=True,
    )
    await ask(cluster, names, Controller(cluster), question, deadline)


async def create_partitions(
    cluster: Cluster, counts: Mapping[str, int], deadline: Deadline, *, validate_only: bool = False
) -> None:
    """Grow topics to the number of partitions that `counts` has for each."""

    def request(names: Sequence[str]) -> CreatePartitionsRequest:
        wanted = [CreatePartitionsTopic(name=name, count=counts[name]) for name in names]
        return CreatePartitionsRequest(
            topics=wanted, timeout_ms=cluster.request_timeout_ms, validate_only=validate_only
        )

    def read(answer: Any, _: object) -> Iterator[ItemResult[str, None]]:
        for topic in answer.results:
            cluster.forget_topic(topic.name)
            yield ItemResult(topic.name, topic.error_code, topic.error_message, None)

    question = Question(
        request=request,
        read=read,
        refused=lambda name: f"no partitions were added to {name!r}",
        final=FINAL_OF_CONTROLLERS,
        once=True,
    )
    await ask(cluster, counts, Controller(cluster), question, deadline)
