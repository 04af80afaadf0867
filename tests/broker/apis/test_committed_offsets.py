"""OffsetCommit (8), OffsetFetch (9) and OffsetDelete (47)."""

from __future__ import annotations

import uuid
from itertools import product
from typing import Any

import pytest
from tests.broker.group_talk import (
    Who,
    alone,
    commit,
    committed_offset,
    find_group,
    heartbeat,
    join_request,
    leave,
    txn_commit,
    txn_commit_request,
)
from tests.broker.wire import Client, clients, ended, init, new_topic, on_the_loop, serving, wait_until

from fencepost.broker.authorizer import Operation, Resource
from fencepost.coordinator.group import CommittedOffset
from fencepost.protocol.errors import ErrorCode
from fencepost.protocol.messages import (
    CreateTopicsRequest,
    DeleteGroupsRequest,
    DeleteTopicsRequest,
    OffsetCommitRequest,
    OffsetDeleteRequest,
    OffsetFetchRequest,
)
from fencepost.protocol.messages.create_topics import CreatableTopic
from fencepost.protocol.messages.delete_topics import DeleteTopicState
from fencepost.protocol.messages.offset_commit import OffsetCommitRequestPartition, OffsetCommitRequestTopic
from fencepost.protocol.messages.offset_delete import OffsetDeleteRequestPartition, OffsetDeleteRequestTopic
from fencepost.protocol.messages.offset_fetch import (
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopic,
    OffsetFetchRequestTopics,
)
from fencepost.protocol.types import TopicPartition

client = clients()
COMMITS, FETCHES = range(2, 11), range(1, 11)


def fetched(client: Client, topic: str | None, *partitions: int, version: int, stable: bool = False) -> Any:
    """[(partition, offset, metadata, error)] of one topic, or of all."""
    if version < 8:
        old = None if topic is None else [OffsetFetchRequestTopic(name=topic, partition_indexes=list(partitions))]
        answer = client.ask(OffsetFetchRequest(group_id="g", topics=old, require_stable=stable), version)
        topics = answer.topics
    else:
        known = client.broker.node.topics.by_name
        new = None
        if topic is not None:
            wanted = list(partitions)
            new = [OffsetFetchRequestTopics(name=topic, topic_id=known[topic].topic_id, partition_indexes=wanted)]
        asked = OffsetFetchRequestGroup(group_id="g", topics=new)
        answer = client.ask(OffsetFetchRequest(groups=[asked], require_stable=stable), version).groups[0]
        topics = answer.topics
    assert answer.error_code == ErrorCode.NONE
    return [
        (each.partition_index, each.committed_offset, each.metadata, each.error_code)
        for found in topics
        for each in found.partitions
    ]


@pytest.mark.parametrize("version", COMMITS)
def test_an_offset_is_stored(client: Client, version: int) -> None:
    find_group(client)
    topic = new_topic(client, 3)
    assert commit(client, topic, 7, 8, metadata="m", version=version) == [0, 0]
    assert commit(client, topic, 6, version=version) == [0], "back is a way, too"
    assert fetched(client, topic, 0, 1, 2, version=9) == [(0, 6, "", 0), (1, 8, "m", 0), (2, -1, "", 0)]


@pytest.mark.parametrize("version", FETCHES)
def test_an_offset_is_found(client: Client, version: int) -> None:
    find_group(client)
    topic = new_topic(client, 2)
    assert commit(client, topic, 7, metadata="m") == [0]
    assert fetched(client, topic, 1, 0, version=version) == [(1, -1, "", 0), (0, 7, "m", 0)]
    if version >= 2:
        assert fetched(client, None, version=version) == [(0, 7, "m", 0)]


@pytest.mark.parametrize("version", FETCHES)
def test_a_transaction_in_the_way_is_told_to_whoever_asks(client: Client, version: int) -> None:
    find_group(client)
    topic = new_topic(client, 2)
    pair = init(client, "t")
    assert commit(client, topic, 7) == [0]
    assert txn_commit(client, "t", pair, topic, 8, 9) == [0, 0]
    unstable = [(0, -1, "", ErrorCode.UNSTABLE_OFFSET_COMMIT), (1, -1, "", ErrorCode.UNSTABLE_OFFSET_COMMIT)]
    before = [(0, 7, "", 0), (1, -1, "", 0)]
    assert fetched(client, topic, 0, 1, version=version, stable=True) == (unstable if version >= 7 else before)
    assert fetched(client, topic, 0, 1, version=version) == before
    if version >= 7:
        assert fetched(client, None, version=version, stable=True) == unstable[:1], "all that are committed"
        assert fetched(client, None, version=version) == before[:1]
    ended(client, "t", pair)
    assert fetched(client, topic, 0, 1, version=version, stable=True) == [(0, 8, "", 0), (1, 9, "", 0)]


def test_a_transaction_replaces_each_position_that_was_committed_before_it(client: Client) -> None:
    """Several at once, each of which has a record of its own in the journal."""
    find_group(client)
    topic, pair = new_topic(client, 3), init(client, "t")
    assert commit(client, topic, 1, 2, 3) == [0, 0, 0]
    assert txn_commit(client, "t", pair, topic, 4, 5, 6) == [0, 0, 0]
    ended(client, "t", pair)
    assert fetched(client, topic, 0, 1, 2, version=9, stable=True) == [(0, 4, "", 0), (1, 5, "", 0), (2, 6, "", 0)]


def test_a_topic_made_anew_has_no_positions_of_the_one_that_was_deleted(client: Client) -> None:
    find_group(client)
    topic = new_topic(client)
    assert commit(client, topic, 7) == [0]
    gone = DeleteTopicsRequest(topics=[DeleteTopicState(name=topic)], timeout_ms=1000)
    assert [each.error_code for each in client.ask(gone).responses] == [0]
    again = CreatableTopic(name=topic, num_partitions=1, replication_factor=-1, assignments=[], configs=[])
    assert [each.error_code for each in client.ask(CreateTopicsRequest(topics=[again])).topics] == [0]
    assert committed_offset(client, topic) == (-1, 0)
    assert fetched(client, None, version=9) == []


@pytest.mark.parametrize("version", COMMITS)
def test_unknown_partitions_and_long_metadata(client: Client, version: int) -> None:
    find_group(client)
    topic = new_topic(client)
    unknown = ErrorCode.UNKNOWN_TOPIC_ID if version >= 10 else ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert commit(client, "unknown", 7, version=version) == [unknown]
    assert commit(client, topic, 7, 8, version=version) == [0, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION]
    for metadata in ("m" * 4097, "\u00e9" * 4097, "\U0001f600" * 2049):  # units of UTF-16, as Apache Kafka counts
        too_long = commit(client, topic, 9, metadata=metadata, version=version)
        assert too_long == [ErrorCode.OFFSET_METADATA_TOO_LARGE]
        assert committed_offset(client, topic) == (7, 0)
        assert commit(client, topic, 7, metadata=metadata[1:], version=version) == [ErrorCode.NONE]
        assert fetched(client, topic, 0, version=9)[0][2] == metadata[1:]


@pytest.mark.parametrize("version", COMMITS)
def test_who_may_commit_for_a_group_with_members(client: Client, version: int) -> None:
    find_group(client)
    topic = new_topic(client)
    member = alone(client)
    for each, error in [
        (member, ErrorCode.NONE),
        (Who(member.member_id, member.generation + 1), ErrorCode.ILLEGAL_GENERATION),
        (Who("somebody", member.generation), ErrorCode.UNKNOWN_MEMBER_ID),
        (Who(), ErrorCode.UNKNOWN_MEMBER_ID),
    ]:
        assert commit(client, topic, 7, who=each, version=version) == [error], each
    leave(client, member)
    assert commit(client, topic, 8, version=version) == [ErrorCode.NONE]


def test_during_a_rebalance(client: Client) -> None:
    """Before everybody has joined the old generation may commit; then it may not until it is assigned."""
    topic = new_topic(client)
    member = alone(client)
    other = Client(client.broker)
    other.send(join_request(), version=3)
    wait_until("it rebalances", lambda: heartbeat(client, member) == ErrorCode.REBALANCE_IN_PROGRESS)
    assert commit(client, topic, 7, who=member) == [ErrorCode.NONE]
    again = client.ask(join_request(member.member_id))
    fresh = Who(again.member_id, again.generation_id)
    assert commit(client, topic, 8, who=fresh) == [ErrorCode.REBALANCE_IN_PROGRESS]
    assert commit(client, topic, 8, who=member) == [ErrorCode.ILLEGAL_GENERATION]
    assert committed_offset(client, topic) == (7, 0)
    other.close()


def forget(client: Client, topic: str, *partitions: int, group: str = "g") -> Any:
    wanted = [OffsetDeleteRequestPartition(partition_index=index) for index in partitions]
    request = OffsetDeleteRequest(group_id=group, topics=[OffsetDeleteRequestTopic(name=topic, partitions=wanted)])
    answer = client.ask(request)
    return answer.error_code or [each.error_code for of_topic in answer.topics for each in of_topic.partitions]


def test_offsets_are_forgotten(client: Client) -> None:
    find_group(client)
    topic = new_topic(client, 2)
    assert forget(client, topic, 0) == ErrorCode.GROUP_ID_NOT_FOUND
    assert commit(client, topic, 7, 8) == [0, 0]
    assert forget(client, topic, 0, 5) == [0, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION]
    assert (committed_offset(client, topic), committed_offset(client, topic, 1)) == ((-1, 0), (8, 0))
    alone(client)
    assert forget(client, topic, 1) == [ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC]
    assert forget(client, topic, 0, group="") == ErrorCode.INVALID_GROUP_ID


def test_a_deleted_group_has_no_offsets(client: Client) -> None:
    find_group(client)
    topic = new_topic(client, 2)
    pair = init(client, "t")
    assert commit(client, topic, 7) == [0]
    assert txn_commit(client, "t", pair, topic, 5, 6) == [0, 0]
    (result,) = client.ask(DeleteGroupsRequest(groups_names=["g"])).results
    assert result.error_code == ErrorCode.NONE
    ended(client, "t", pair)
    for partition in (0, 1):
        assert committed_offset(client, topic, partition, stable=True) == (-1, 0)


@pytest.mark.parametrize("version", range(2, 11))
def test_a_group_that_is_not_there(client: Client, version: int) -> None:
    find_group(client)
    topic = new_topic(client)
    absent = commit(client, topic, 5, who=Who("m", 3), version=version)
    assert absent == [ErrorCode.GROUP_ID_NOT_FOUND if version >= 9 else ErrorCode.ILLEGAL_GENERATION]
    assert commit(client, topic, 5, version=version) == [ErrorCode.NONE], "it is made by whoever says no generation"
    assert commit(client, topic, 6, who=Who("m", 3), version=version) == [ErrorCode.UNKNOWN_MEMBER_ID]
    assert committed_offset(client, topic) == (5, ErrorCode.NONE)


class ReadsNoTopic:
    def allows(self, principal: str, host: str, operation: Operation, resource: Resource, name: str) -> bool:  # noqa: ARG002
        return (operation, resource) != (Operation.READ, Resource.TOPIC)


def test_a_topic_id_of_nothing_is_unknown_whatever_the_caller_may() -> None:
    with serving(ReadsNoTopic()) as broker:
        client = Client(broker)
        find_group(client)
        pair, topic = init(client, "t"), new_topic(client)
        assert commit(client, topic, 1) == [ErrorCode.TOPIC_AUTHORIZATION_FAILED]
        assert txn_commit(client, "t", pair, topic, 1) == [ErrorCode.TOPIC_AUTHORIZATION_FAILED]
        assert commit(client, "nowhere", 1) == [ErrorCode.UNKNOWN_TOPIC_ID]
        assert txn_commit(client, "t", pair, "nowhere", 1) == [ErrorCode.UNKNOWN_TOPIC_ID]
        client.close()


def test_the_position_in_a_topic_id_of_nothing_is_told_as_unknown_beside_the_others(client: Client) -> None:
    topic = new_topic(client)
    find_group(client)
    assert commit(client, topic, 5) == [ErrorCode.NONE]
    there, *nothing = client.broker.node.topics.by_name[topic].topic_id, uuid.UUID(int=77), uuid.UUID(int=78)
    asked = [OffsetFetchRequestTopics(topic_id=each, partition_indexes=[0]) for each in (*nothing, there)]
    request = OffsetFetchRequest(groups=[OffsetFetchRequestGroup(group_id="g", topics=asked)])
    (group,) = client.ask(request, 10).groups
    told = {
        found.topic_id: (each.committed_offset, each.error_code) for found in group.topics for each in found.partitions
    }
    assert told == {there: (5, ErrorCode.NONE), **dict.fromkeys(nothing, (-1, ErrorCode.UNKNOWN_TOPIC_ID))}


@pytest.mark.parametrize("retention_ms", [-1, 0, 1, 86_400_000, 2**63 - 1])
@pytest.mark.parametrize("version", [2, 3, 4])
def test_an_offset_expires_when_its_commit_says_so_or_never_or_as_the_broker_is_set(
    client: Client, version: int, retention_ms: int
) -> None:
    """-1: as the broker is set."""
    find_group(client)
    topic = new_topic(client)
    partitions = [OffsetCommitRequestPartition(partition_index=0, committed_offset=3)]
    request = OffsetCommitRequest(
        group_id="g",
        member_id="",
        retention_time_ms=retention_ms,
        topics=[OffsetCommitRequestTopic(name=topic, partitions=partitions)],
    )
    assert client.ask(request, version).topics[0].partitions[0].error_code == ErrorCode.NONE
    assert committed_offset(client, topic) == (3, ErrorCode.NONE)
    at, groups = TopicPartition(topic, 0), client.broker.node.groups
    stored = on_the_loop(client.broker, lambda: groups.fetch_offsets("g", [at], False))
    assert not isinstance(stored, ErrorCode)
    found = stored[at]
    assert isinstance(found, CommittedOffset)
    expires = -1 if retention_ms < 0 else min(found.commit_timestamp + retention_ms, 2**63 - 1)
    assert found.expire_timestamp == expires


@pytest.mark.parametrize("lengths", list(product((0, 4096, 4097), repeat=3)))
def test_each_partition_is_told_of_its_own_metadata(client: Client, lengths: tuple[int, ...]) -> None:
    """Facts §7.2, 9: what is too long for one keeps no other from being committed, with or without a transaction."""
    find_group(client)
    topic, other = new_topic(client, 3), new_topic(client, 3)
    expected = [ErrorCode.OFFSET_METADATA_TOO_LARGE if length > 4096 else ErrorCode.NONE for length in lengths]
    plain = [
        OffsetCommitRequestPartition(partition_index=index, committed_offset=7, committed_metadata="m" * length)
        for index, length in enumerate(lengths)
    ]
    topics = [OffsetCommitRequestTopic(name=topic, partitions=plain)]
    request = OffsetCommitRequest(group_id="g", member_id="", generation_id_or_member_epoch=-1, topics=topics)
    told = client.ask(request, 9).topics[0].partitions
    assert [each.error_code for each in told] == expected
    pair = init(client, "t")
    in_transaction = txn_commit_request(client, "t", pair, [other], 7, 7, 7)
    for each, length in zip(in_transaction.topics[0].partitions, lengths, strict=True):
        each.committed_metadata = "m" * length
    told = client.ask(in_transaction, 6).topics[0].partitions
    assert [each.error_code for each in told] == expected
    ended(client, "t", pair)
    for name in (topic, other):
        for index, error in enumerate(expected):
            assert committed_offset(client, name, index) == (-1 if error else 7, 0)


def test_each_of_several_groups_is_told_whole_and_once(client: Client) -> None:
    topic = new_topic(client)
    for group in ("g", "h"):
        find_group(client, group)
        assert commit(client, topic, 7, group=group) == [0]
    asked = [OffsetFetchRequestGroup(group_id=group, topics=None) for group in ("g", "h", "g", "h")]
    told = client.ask(OffsetFetchRequest(groups=asked), 9).groups
    assert [(each.group_id, each.topics[0].partitions[0].committed_offset) for each in told] == [("g", 7), ("h", 7)]
