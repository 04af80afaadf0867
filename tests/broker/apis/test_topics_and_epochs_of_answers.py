"""Answers name topics as their requests did, by name or by id; and whoever knows another leader epoch is told which."""

from __future__ import annotations

import uuid
from collections.abc import Callable
from typing import Any, Final

import pytest
from tests.broker.group_talk import find_group, txn_commit_request
from tests.broker.wire import Client, batch, clients, fetch, init, new_topic, on_the_loop

from fencepost.protocol.errors import ErrorCode
from fencepost.protocol.messages import (
    FetchRequest,
    ListOffsetsRequest,
    OffsetCommitRequest,
    OffsetFetchRequest,
    OffsetForLeaderEpochRequest,
    ProduceRequest,
)
from fencepost.protocol.messages.fetch import FetchPartition, FetchTopic
from fencepost.protocol.messages.list_offsets import ListOffsetsPartition, ListOffsetsTopic
from fencepost.protocol.messages.offset_commit import OffsetCommitRequestPartition, OffsetCommitRequestTopic
from fencepost.protocol.messages.offset_fetch import OffsetFetchRequestGroup, OffsetFetchRequestTopics
from fencepost.protocol.messages.offset_for_leader_epoch import OffsetForLeaderPartition, OffsetForLeaderTopic
from fencepost.protocol.messages.produce import PartitionProduceData, TopicProduceData
from fencepost.protocol.types import ZERO_UUID

client = clients()

Named = list[tuple[str, uuid.UUID]]
"""Name and id of each topic, of which a version has room for one."""
UNKNOWN: Final = "unknown", uuid.UUID(int=99)


def produced(client: Client, named: Named, version: int) -> Any:
    topics = [
        TopicProduceData(
            name=name, topic_id=topic_id, partition_data=[PartitionProduceData(index=0, records=batch("v"))]
        )
        for name, topic_id in named
    ]
    return client.ask(ProduceRequest(acks=-1, timeout_ms=1000, topic_data=topics), version).responses


def fetched(client: Client, named: Named, version: int) -> Any:
    wanted = [FetchPartition(partition=0, fetch_offset=0, partition_max_bytes=100)]
    topics = [FetchTopic(topic=name, topic_id=topic_id, partitions=wanted) for name, topic_id in named]
    return client.ask(FetchRequest(max_wait_ms=0, min_bytes=0, topics=topics), version).responses


def committed(client: Client, named: Named, version: int) -> Any:
    parts = [OffsetCommitRequestPartition(partition_index=0, committed_offset=1)]
    topics = [OffsetCommitRequestTopic(name=name, topic_id=topic_id, partitions=parts) for name, topic_id in named]
    return client.ask(OffsetCommitRequest(group_id="g", member_id="", topics=topics), version).topics


def committed_in_transaction(client: Client, named: Named, version: int) -> Any:
    request = txn_commit_request(client, "t", init(client, "t"), [name for name, _ in named], 1)
    for topic, (_, topic_id) in zip(request.topics, named, strict=True):
        topic.topic_id = topic_id
    return client.ask(request, version).topics


def told(client: Client, named: Named, version: int) -> Any:
    topics = [OffsetFetchRequestTopics(name=name, topic_id=of, partition_indexes=[0]) for name, of in named]
    asked = OffsetFetchRequestGroup(group_id="g", topics=topics)
    return client.ask(OffsetFetchRequest(groups=[asked]), version).groups[0].topics


#: API -> how it is asked, and the first version that names topics by their ids
BY_ID: Final[dict[str, tuple[Callable[[Client, Named, int], Any], int]]] = {
    "Produce": (produced, 13),
    "Fetch": (fetched, 13),
    "OffsetCommit": (committed, 10),
    "TxnOffsetCommit": (committed_in_transaction, 6),
    "OffsetFetch": (told, 10),
}


@pytest.mark.parametrize("is_known", [True, False])
@pytest.mark.parametrize("by_id", [True, False])
@pytest.mark.parametrize("api", BY_ID)
def test_topics_are_answered_as_they_were_named(client: Client, api: str, by_id: bool, is_known: bool) -> None:
    find_group(client)
    ask, since = BY_ID[api]
    names = [new_topic(client), new_topic(client)]
    named = [(name, client.broker.node.topics.by_name[name].topic_id) for name in names]
    if not is_known:
        named.append(UNKNOWN)
    answered = ask(client, named, since if by_id else since - 1)
    found = [(getattr(topic, "name", "") or getattr(topic, "topic", ""), topic.topic_id) for topic in answered]
    assert sorted(found) == sorted(("", of) if by_id else (name, ZERO_UUID) for name, of in named)


NOW: Final = 3


def fetch_error(client: Client, topic: str, known: int) -> Any:
    return fetch(client, topic, leader_epoch=known).error_code


def list_error(client: Client, topic: str, known: int) -> Any:
    wanted = ListOffsetsPartition(partition_index=0, current_leader_epoch=known, timestamp=-1)
    request = ListOffsetsRequest(replica_id=-1, topics=[ListOffsetsTopic(name=topic, partitions=[wanted])])
    return client.ask(request).topics[0].partitions[0].error_code


def epoch_error(client: Client, topic: str, known: int) -> Any:
    wanted = OffsetForLeaderPartition(partition=0, current_leader_epoch=known, leader_epoch=0)
    request = OffsetForLeaderEpochRequest(topics=[OffsetForLeaderTopic(topic=topic, partitions=[wanted])])
    return client.ask(request).topics[0].partitions[0].error_code


@pytest.mark.parametrize("ask", [fetch_error, list_error, epoch_error])
def test_a_leader_epoch_is_an_old_one_or_one_yet_to_come(client: Client, ask: Callable[..., Any]) -> None:
    topic = new_topic(client)
    partition = client.broker.node.storage.partition(topic, 0)
    assert partition is not None
    on_the_loop(client.broker, lambda: setattr(partition, "leader_epoch", NOW))
    for known in (-1, 0, NOW - 1, NOW, NOW + 1, 2**31 - 1):
        expected = ErrorCode.NONE
        if known >= 0 and known != NOW:
            expected = ErrorCode.FENCED_LEADER_EPOCH if known < NOW else ErrorCode.UNKNOWN_LEADER_EPOCH
        assert ask(client, topic, known) == expected
