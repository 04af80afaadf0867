"""A topic takes the same right whether it is named by its id or by its name, and the id tells nobody more."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Final

import pytest
from tests.broker.test_authorizer import NO_TOPIC, TOPIC, Scene, scene
from tests.broker.wire import batch, new_topic

from fencepost.broker.authorizer import Operation
from fencepost.protocol.errors import ErrorCode
from fencepost.protocol.messages import (
    DeleteTopicsRequest,
    FetchRequest,
    MetadataRequest,
    OffsetCommitRequest,
    OffsetFetchRequest,
    ProduceRequest,
    delete_topics,
    fetch,
    metadata,
    offset_commit,
    offset_fetch,
    produce,
)
from fencepost.protocol.types import ZERO_UUID

__all__ = ["scene"]

Names = Sequence[str]


def ids_of(scene: Scene, names: Names) -> list[Any]:
    return [scene.client.broker.node.topics.by_name[name].topic_id for name in names]


def write_by_id(scene: Scene, names: Names) -> list[int]:
    data = [produce.PartitionProduceData(index=0, records=batch("v"))]
    wanted = [produce.TopicProduceData(topic_id=topic_id, partition_data=data) for topic_id in ids_of(scene, names)]
    answer = scene.client.ask(ProduceRequest(acks=-1, timeout_ms=1000, topic_data=wanted), 13)
    return [topic.partition_responses[0].error_code for topic in answer.responses]


def read_by_id(scene: Scene, names: Names) -> list[int]:
    asked = [fetch.FetchPartition(partition=0, fetch_offset=0, partition_max_bytes=100)]
    ids = ids_of(scene, names)
    wanted = [fetch.FetchTopic(topic_id=topic_id, partitions=asked) for topic_id in ids]
    answer = scene.client.ask(FetchRequest(max_wait_ms=0, min_bytes=0, topics=wanted), 13)
    told = {topic.topic_id: topic.partitions[0].error_code for topic in answer.responses}
    return [told[topic_id] for topic_id in ids]


def show_by_id(scene: Scene, names: Names) -> list[int]:
    wanted = [metadata.MetadataRequestTopic(name=None, topic_id=topic_id) for topic_id in ids_of(scene, names)]
    return [topic.error_code for topic in scene.client.ask(MetadataRequest(topics=wanted), 12).topics]


def delete_by_id(scene: Scene, names: Names) -> list[int]:
    wanted = [delete_topics.DeleteTopicState(name=None, topic_id=topic_id) for topic_id in ids_of(scene, names)]
    answer = scene.client.ask(DeleteTopicsRequest(topics=wanted, timeout_ms=1000))
    return [topic.error_code for topic in answer.responses]


def commit_by_id(scene: Scene, names: Names) -> list[int]:
    asked = [offset_commit.OffsetCommitRequestPartition(partition_index=0, committed_offset=1)]
    wanted = [
        offset_commit.OffsetCommitRequestTopic(topic_id=topic_id, partitions=asked) for topic_id in ids_of(scene, names)
    ]
    answer = scene.client.ask(OffsetCommitRequest(group_id="g", member_id="", topics=wanted), 10)
    return [topic.partitions[0].error_code for topic in answer.topics]


def committed_by_id(scene: Scene, names: Names) -> list[int]:
    wanted = [
        offset_fetch.OffsetFetchRequestTopics(topic_id=topic_id, partition_indexes=[0])
        for topic_id in ids_of(scene, names)
    ]
    asked = offset_fetch.OffsetFetchRequestGroup(group_id="g", topics=wanted)
    answer = scene.client.ask(OffsetFetchRequest(groups=[asked]), 10)
    return [topic.partitions[0].error_code for topic in answer.groups[0].topics]


BY_ID: Final[dict[str, tuple[Operation, Callable[[Scene, Names], list[int]], ErrorCode]]] = {
    "Produce": (Operation.WRITE, write_by_id, NO_TOPIC),
    "Fetch": (Operation.READ, read_by_id, NO_TOPIC),
    "Metadata": (Operation.DESCRIBE, show_by_id, ErrorCode.UNKNOWN_TOPIC_ID),
    "DeleteTopics": (Operation.DELETE, delete_by_id, NO_TOPIC),
    "OffsetCommit": (Operation.READ, commit_by_id, NO_TOPIC),
    "OffsetFetch": (Operation.DESCRIBE, committed_by_id, NO_TOPIC),
}


@pytest.mark.parametrize("place", [0, 1])
@pytest.mark.parametrize("api", BY_ID)
def test_who_names_a_topic_by_its_id_needs_the_same_right(scene: Scene, api: str, place: int) -> None:
    operation, ask, error = BY_ID[api]
    names = [new_topic(scene.client) for _ in range(2)]
    scene.deny(TOPIC, operation)
    scene.denies.only = names[place]
    assert ask(scene, names) == [error if n == place else ErrorCode.NONE for n in range(2)]


@pytest.mark.parametrize("by_id", [True, False])
@pytest.mark.parametrize("may_describe", [True, False])
def test_who_may_not_see_a_topic_hears_neither_the_name_of_an_id_nor_the_id_of_a_name(
    scene: Scene, may_describe: bool, by_id: bool
) -> None:
    """As in Apache Kafka; only DeleteTopics is answered with both."""
    (topic_id,) = ids_of(scene, [scene.topic])
    scene.deny(TOPIC, Operation.DELETE, *([] if may_describe else [Operation.DESCRIBE]))
    named = (None, topic_id) if by_id else (scene.topic, ZERO_UUID)
    wanted = [delete_topics.DeleteTopicState(name=named[0], topic_id=named[1])]
    (refused,) = scene.client.ask(DeleteTopicsRequest(topics=wanted, timeout_ms=1000)).responses
    assert refused.error_code == NO_TOPIC
    assert (refused.name, refused.topic_id) == ((scene.topic, topic_id) if may_describe else named)
