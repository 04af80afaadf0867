"""Metadata (3): who is asked for how, what is refused, and the operations that a caller may do (KIP-430)."""

from __future__ import annotations

import uuid
from typing import Any

import pytest
from tests.broker.wire import Client, clients, find_coordinator, new_topic, on_the_loop

from fencepost.broker.apis.metadata import metadata
from fencepost.broker.authorizer import TOLD_OPERATIONS, Resource
from fencepost.broker.network.registry import Reply
from fencepost.broker.network.request_context import Peer, RequestContext
from fencepost.protocol.codec import begin_response, decode_response
from fencepost.protocol.decoding import STEP
from fencepost.protocol.errors import ErrorCode
from fencepost.protocol.messages import (
    CreatePartitionsRequest,
    CreateTopicsRequest,
    DeleteTopicsRequest,
    DescribeClusterRequest,
    DescribeGroupsRequest,
    MetadataRequest,
    MetadataResponse,
)
from fencepost.protocol.messages.create_partitions import CreatePartitionsTopic
from fencepost.protocol.messages.create_topics import CreatableTopic
from fencepost.protocol.messages.delete_topics import DeleteTopicState
from fencepost.protocol.messages.metadata import MetadataRequestTopic
from fencepost.protocol.steps import finish
from fencepost.protocol.types import ZERO_UUID

client = clients()
UNKNOWN = uuid.UUID(int=7)
MORE_THAN_A_STEP = STEP + 100


def ask(client: Client, *asked: tuple[str | None, uuid.UUID], version: int = 12, **more: Any) -> Any:
    topics = [MetadataRequestTopic(name=name, topic_id=topic_id) for name, topic_id in asked]
    return client.ask(MetadataRequest(topics=topics, **more), version)


def told(answer: Any) -> list[tuple[str | None, int]]:
    return [(topic.name, topic.error_code) for topic in answer.topics]


def id_of(client: Client, name: str) -> uuid.UUID:
    found: uuid.UUID = ask(client, (name, ZERO_UUID)).topics[0].topic_id
    return found


def test_a_topic_that_is_asked_for_twice_is_told_once(client: Client) -> None:
    name = new_topic(client)
    assert told(ask(client, (name, ZERO_UUID), (name, ZERO_UUID))) == [(name, 0)]
    by_id = (None, id_of(client, name))
    assert told(ask(client, by_id, by_id)) == [(name, 0)]


def test_where_one_id_is_given_names_do_not_count(client: Client) -> None:
    one, other = new_topic(client), new_topic(client)
    assert told(ask(client, (other, id_of(client, one)))) == [(one, 0)]
    assert told(ask(client, (one, UNKNOWN))) == [(None, ErrorCode.UNKNOWN_TOPIC_ID)]


@pytest.mark.parametrize("version", [10, 11])
@pytest.mark.parametrize("asked", [("t", UNKNOWN), (None, UNKNOWN), (None, ZERO_UUID)])
def test_before_version_12_topics_have_names_only(
    client: Client, version: int, asked: tuple[str | None, uuid.UUID]
) -> None:
    name = new_topic(client)
    answer = ask(client, (name, ZERO_UUID), asked, version=version)
    assert (answer.brokers, answer.controller_id, answer.cluster_id) == ([], -1, None)
    assert told(answer) == [(name, ErrorCode.INVALID_REQUEST), (asked[0] or "", ErrorCode.INVALID_REQUEST)]


@pytest.mark.parametrize("version", [12, 13])
def test_a_topic_without_name_and_id_is_refused_with_all_others(client: Client, version: int) -> None:
    name = new_topic(client)
    answer = ask(client, (name, ZERO_UUID), (None, ZERO_UUID), version=version)
    assert told(answer) == [(name, ErrorCode.UNKNOWN_SERVER_ERROR), ("", ErrorCode.UNKNOWN_SERVER_ERROR)]
    assert answer.error_code == (ErrorCode.UNKNOWN_SERVER_ERROR if version == 13 else ErrorCode.NONE)


def test_a_name_that_nobody_may_have_is_not_made(client: Client) -> None:
    assert told(ask(client, ("a b", ZERO_UUID), version=4)) == [("a b", ErrorCode.INVALID_TOPIC_EXCEPTION)]
    assert told(ask(client, ("made.here", ZERO_UUID), version=4)) == [("made.here", 0)]
    colliding = ask(client, ("made_here", ZERO_UUID), version=4)
    assert told(colliding) == [("made_here", ErrorCode.INVALID_TOPIC_EXCEPTION)]


def bits(kind: Resource) -> int:
    return sum(1 << operation.value for operation in TOLD_OPERATIONS[kind])


def test_more_topics_than_one_request_may_make_are_not_made(client: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    """Apache Kafka's controller refuses them all; a million names would keep the node busy for hours."""
    monkeypatch.setattr("fencepost.broker.apis.metadata.MOST_AT_ONCE", 3)
    there = new_topic(client)
    names = [f"{there}-{number}" for number in range(4)]
    unknown = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    asked = [(name, ZERO_UUID) for name in (there, *names)]
    assert told(ask(client, *asked)) == [(there, 0), *((name, unknown) for name in names)]
    assert told(ask(client, *asked[:4])) == [(name, 0) for name, _ in asked[:4]]


def test_topics_are_created_together_or_not_at_all_where_they_are_too_many(
    client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("fencepost.broker.apis.create_topics.MOST_AT_ONCE", 5)
    name = new_topic(client)
    for counts, error in (([3, 3], 44), ([3, -1, 2], 44), ([-2, 3, 2], 37), ([3, 2], 0)):
        topics = [
            CreatableTopic(name=f"{name}-{n}", num_partitions=count, replication_factor=1, assignments=[], configs=[])
            for n, count in enumerate(counts)
        ]
        answer = client.ask(CreateTopicsRequest(topics=topics, timeout_ms=1000, validate_only=error == 37))
        assert answer.topics[0].error_code == error
        assert {topic.error_code for topic in answer.topics[1:]} <= {error, 0}


def test_operations_are_told_to_those_who_ask(client: Client) -> None:
    assert [bits(kind) for kind in (Resource.TOPIC, Resource.CLUSTER, Resource.GROUP)] == [3576, 8096, 3400]
    name = new_topic(client)
    assert ask(client, (name, ZERO_UUID)).topics[0].topic_authorized_operations == -(2**31)
    answer = ask(
        client,
        (name, ZERO_UUID),
        version=9,
        include_topic_authorized_operations=True,
        include_cluster_authorized_operations=True,
    )
    assert answer.topics[0].topic_authorized_operations == bits(Resource.TOPIC)
    assert answer.cluster_authorized_operations == bits(Resource.CLUSTER)
    for asked, operations in ((False, -(2**31)), (True, bits(Resource.CLUSTER))):
        cluster = client.ask(DescribeClusterRequest(include_cluster_authorized_operations=asked), 0)
        assert cluster.cluster_authorized_operations == operations


def test_operations_on_a_group_are_told_where_there_is_no_error(client: Client) -> None:
    for version, told in ((5, bits(Resource.GROUP)), (6, -(2**31))):
        request = DescribeGroupsRequest(groups=["nobody"], include_authorized_operations=True)
        find_coordinator(client, "nobody", 0)
        (group,) = client.ask(request, version).groups
        assert group.authorized_operations == told


def test_an_answer_is_of_the_topic_as_it_was_however_it_grows_while_that_is_encoded(client: Client) -> None:
    """The length of a list is written before its items are."""
    name, node = new_topic(client, partitions=MORE_THAN_A_STEP), client.broker.node
    request = MetadataRequest(topics=[MetadataRequestTopic(name=name)])
    context = RequestContext(Peer(node.authorizer, ""), 12, None)

    def begin() -> Any:
        reply = metadata(request, context, node)
        assert isinstance(reply, Reply)
        return begin_response(reply.response, 12, 1)

    begun = on_the_loop(client.broker, begin)
    assert not isinstance(begun, bytes)
    grown = CreatePartitionsTopic(name=name, count=MORE_THAN_A_STEP + 7, assignments=None)
    assert (
        client.ask(CreatePartitionsRequest(topics=[grown], timeout_ms=10_000, validate_only=False))
        .results[0]
        .error_code
        == 0
    )
    assert partitions_of(ask(client, (name, ZERO_UUID))) == list(range(MORE_THAN_A_STEP + 7))
    _, answer = decode_response(MetadataResponse, finish(begun)[4:], 12)
    assert partitions_of(answer) == list(range(MORE_THAN_A_STEP))


def test_a_topic_made_anew_is_told_as_it_is_now(client: Client) -> None:
    name = new_topic(client, partitions=3)
    assert partitions_of(ask(client, (name, ZERO_UUID))) == [0, 1, 2]
    client.ask(DeleteTopicsRequest(topics=[DeleteTopicState(name=name)], timeout_ms=10_000))
    wanted = CreatableTopic(name=name, num_partitions=2, replication_factor=-1, assignments=[], configs=[])
    assert client.ask(CreateTopicsRequest(topics=[wanted])).topics[0].error_code == 0
    assert partitions_of(ask(client, (name, ZERO_UUID))) == [0, 1]


def partitions_of(answer: Any) -> list[int]:
    (topic,) = answer.topics
    assert all((each.leader_id, each.replica_nodes, each.isr_nodes) == (0, [0], [0]) for each in topic.partitions)
    return [each.partition_index for each in topic.partitions]
