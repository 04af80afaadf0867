"""Administrative requests that are only to be checked, that make no sense, or that are the broker's own business."""

from __future__ import annotations

from typing import Any, Final

import pytest
from tests.broker.group_talk import find_group
from tests.broker.wire import Client, batch, clients, list_offset, new_topic, produce

from fencepost.protocol.errors import ErrorCode
from fencepost.protocol.messages import (
    CreatePartitionsRequest,
    CreateTopicsRequest,
    DeleteRecordsRequest,
    DeleteTopicsRequest,
    ListPartitionReassignmentsRequest,
    MetadataRequest,
)
from fencepost.protocol.messages.create_partitions import CreatePartitionsTopic
from fencepost.protocol.messages.create_topics import CreatableTopic, CreatableTopicConfig
from fencepost.protocol.messages.delete_records import DeleteRecordsPartition, DeleteRecordsTopic
from fencepost.protocol.messages.delete_topics import DeleteTopicState
from fencepost.protocol.messages.list_partition_reassignments import ListPartitionReassignmentsTopics
from fencepost.protocol.messages.metadata import MetadataRequestTopic

client = clients()

OFFSETS: Final = "__consumer_offsets"


def partitions(client: Client, name: str) -> int:
    """How many a topic has; 0: it is not there."""
    asked = MetadataRequest(topics=[MetadataRequestTopic(name=name)], allow_auto_topic_creation=False)
    return len(client.ask(asked).topics[0].partitions)


def topic(name: str, **settings: str) -> CreatableTopic:
    configs = [CreatableTopicConfig(name=key.replace("_", "."), value=value) for key, value in settings.items()]
    return CreatableTopic(name=name, num_partitions=2, replication_factor=-1, assignments=[], configs=configs)


@pytest.mark.parametrize("settings", [{}, {"retention_ms": "1000"}], ids=["plain", "with settings"])
def test_a_topic_that_is_only_checked_is_not_made(client: Client, settings: dict[str, str]) -> None:
    name = new_topic(client) + "-checked"
    (told,) = client.ask(CreateTopicsRequest(topics=[topic(name, **settings)], validate_only=True)).topics
    assert (told.error_code, told.num_partitions, partitions(client, name)) == (0, 2, 0)
    (made,) = client.ask(CreateTopicsRequest(topics=[topic(name, **settings)])).topics
    assert (made.error_code, partitions(client, name)) == (0, 2)


def test_partitions_that_are_only_checked_are_not_made(client: Client) -> None:
    name = new_topic(client)
    for validate_only, count in ((True, 1), (False, 3)):
        wanted = CreatePartitionsTopic(name=name, count=3)
        request = CreatePartitionsRequest(topics=[wanted], timeout_ms=1000, validate_only=validate_only)
        assert client.ask(request).results[0].error_code == ErrorCode.NONE
        assert partitions(client, name) == count


@pytest.mark.parametrize("times", [2, 3])
def test_of_a_topic_that_is_named_more_than_once_none_is_made(client: Client, times: int) -> None:
    name = new_topic(client) + "-twice"
    (told,) = client.ask(CreateTopicsRequest(topics=[topic(name)] * times)).topics
    assert (told.error_code, partitions(client, name)) == (ErrorCode.INVALID_REQUEST, 0)


def test_the_brokers_own_topics_stay_as_they_are(client: Client) -> None:
    find_group(client)
    before = partitions(client, OFFSETS)
    delete = DeleteTopicsRequest(topics=[DeleteTopicState(name=OFFSETS)], timeout_ms=1000)
    assert client.ask(delete).responses[0].error_code == ErrorCode.INVALID_TOPIC_EXCEPTION
    wanted = CreatePartitionsTopic(name=OFFSETS, count=before + 1)
    grow = CreatePartitionsRequest(topics=[wanted], timeout_ms=1000, validate_only=False)
    assert client.ask(grow).results[0].error_code == ErrorCode.INVALID_REQUEST
    assert partitions(client, OFFSETS) == before > 0


def delete_records(client: Client, name: str, offset: int) -> Any:
    wanted = DeleteRecordsTopic(name=name, partitions=[DeleteRecordsPartition(partition_index=0, offset=offset)])
    return client.ask(DeleteRecordsRequest(topics=[wanted], timeout_ms=1000)).topics[0].partitions[0]


def test_where_a_log_begins_is_told_whatever_was_asked_for(client: Client) -> None:
    name = new_topic(client)
    for value in ("a", "b", "c"):
        assert produce(client, name, batch(value)).error_code == ErrorCode.NONE
    told = [delete_records(client, name, 1)]
    assert list_offset(client, name, -2).offset == 1
    told += [delete_records(client, name, offset) for offset in (0, -1, 2)]
    assert [(each.error_code, each.low_watermark) for each in told] == [(0, 1), (0, 1), (0, 3), (0, 3)]
    assert delete_records(client, name, 4).error_code == ErrorCode.OFFSET_OUT_OF_RANGE


@pytest.mark.parametrize(
    ("policy", "error"),
    [("compact", ErrorCode.POLICY_VIOLATION), ("delete", ErrorCode.NONE), ("compact,delete", ErrorCode.NONE)],
)
def test_records_of_what_is_only_compacted_are_not_deleted(client: Client, policy: str, error: ErrorCode) -> None:
    name = new_topic(client, cleanup_policy=policy)
    assert produce(client, name, batch("v")).error_code == ErrorCode.NONE
    assert delete_records(client, name, 1).error_code == error


@pytest.mark.parametrize(
    "asked", [None, [], [[0]], [[0, 9], []]], ids=["all", "none", "one", "some that are not there"]
)
def test_no_partition_is_ever_being_moved(client: Client, asked: list[list[int]] | None) -> None:
    names = (new_topic(client), "never-made")
    topics = None
    if asked is not None:
        topics = [
            ListPartitionReassignmentsTopics(name=name, partition_indexes=indexes)
            for name, indexes in zip(names, asked, strict=False)
        ]
    answer = client.ask(ListPartitionReassignmentsRequest(topics=topics))
    assert (answer.error_code, answer.error_message, answer.topics) == (ErrorCode.NONE, None, [])
