"""A request that names several things is answered for each by the right to that one, whichever of them is refused."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Final

import pytest
from tests.broker.test_authorizer import GROUP, ID, NO_GROUP, NO_ID, NO_TOPIC, TOPIC, Scene, scene
from tests.broker.wire import add, batch, new_topic

from fencepost.broker.authorizer import Operation, Resource
from fencepost.protocol.errors import ErrorCode
from fencepost.protocol.messages import (
    AddPartitionsToTxnRequest,
    AlterConfigsRequest,
    CreatePartitionsRequest,
    CreateTopicsRequest,
    DeleteGroupsRequest,
    DeleteRecordsRequest,
    DeleteTopicsRequest,
    DescribeConfigsRequest,
    DescribeGroupsRequest,
    DescribeProducersRequest,
    DescribeTopicPartitionsRequest,
    DescribeTransactionsRequest,
    FetchRequest,
    FindCoordinatorRequest,
    IncrementalAlterConfigsRequest,
    ListOffsetsRequest,
    MetadataRequest,
    OffsetCommitRequest,
    OffsetDeleteRequest,
    OffsetFetchRequest,
    OffsetForLeaderEpochRequest,
    ProduceRequest,
    TxnOffsetCommitRequest,
    add_partitions_to_txn,
    alter_configs,
    create_partitions,
    create_topics,
    delete_records,
    delete_topics,
    describe_configs,
    describe_producers,
    describe_topic_partitions,
    fetch,
    incremental_alter_configs,
    list_offsets,
    metadata,
    offset_commit,
    offset_delete,
    offset_fetch,
    offset_for_leader_epoch,
    produce,
    txn_offset_commit,
)

__all__ = ["scene"]

Names = Sequence[str]
Told = dict[str, int]
"""Name -> error."""
TOPIC_CONFIG: Final = 2


def first_of(topics: Sequence[Any], partitions: str = "partitions") -> Told:
    """The errors of topics whose partition 0 alone was asked for."""
    return {topic.name: getattr(topic, partitions)[0].error_code for topic in topics}


def of_resources(found: Sequence[Any]) -> Told:
    return {each.resource_name: each.error_code for each in found}


def write(scene: Scene, names: Names) -> Told:
    wanted = [
        produce.TopicProduceData(name=name, partition_data=[produce.PartitionProduceData(index=0, records=batch("v"))])
        for name in names
    ]
    request = ProduceRequest(acks=-1, timeout_ms=1000, topic_data=wanted)
    return first_of(scene.client.ask(request, 12).responses, "partition_responses")


def read(scene: Scene, names: Names) -> Told:
    wanted = [
        fetch.FetchTopic(
            topic=name, partitions=[fetch.FetchPartition(partition=0, fetch_offset=0, partition_max_bytes=100)]
        )
        for name in names
    ]
    request = FetchRequest(max_wait_ms=0, min_bytes=0, topics=wanted)
    return {topic.topic: topic.partitions[0].error_code for topic in scene.client.ask(request, 12).responses}


def offsets(scene: Scene, names: Names) -> Told:
    asked = [list_offsets.ListOffsetsPartition(partition_index=0, timestamp=-1)]
    wanted = [list_offsets.ListOffsetsTopic(name=name, partitions=asked) for name in names]
    return first_of(scene.client.ask(ListOffsetsRequest(replica_id=-1, topics=wanted)).topics)


def show(scene: Scene, names: Names) -> Told:
    wanted = [metadata.MetadataRequestTopic(name=name) for name in names]
    return {topic.name: topic.error_code for topic in scene.client.ask(MetadataRequest(topics=wanted)).topics}


def show_pages(scene: Scene, names: Names) -> Told:
    wanted = [describe_topic_partitions.TopicRequest(name=name) for name in names]
    answer = scene.client.ask(DescribeTopicPartitionsRequest(topics=wanted))
    return {topic.name: topic.error_code for topic in answer.topics}


def create(scene: Scene, names: Names) -> Told:
    wanted = [
        create_topics.CreatableTopic(name=name, num_partitions=1, replication_factor=1, assignments=[], configs=[])
        for name in names
    ]
    answer = scene.client.ask(CreateTopicsRequest(topics=wanted, validate_only=True))
    return {topic.name: topic.error_code for topic in answer.topics}


def grow(scene: Scene, names: Names) -> Told:
    wanted = [create_partitions.CreatePartitionsTopic(name=name, count=2) for name in names]
    request = CreatePartitionsRequest(topics=wanted, timeout_ms=1000, validate_only=True)
    return {topic.name: topic.error_code for topic in scene.client.ask(request).results}


def delete(scene: Scene, names: Names) -> Told:
    wanted = [delete_topics.DeleteTopicState(name=name) for name in names]
    answer = scene.client.ask(DeleteTopicsRequest(topics=wanted, timeout_ms=1000))
    return {topic.name: topic.error_code for topic in answer.responses}


def delete_oldest(scene: Scene, names: Names) -> Told:
    asked = [delete_records.DeleteRecordsPartition(partition_index=0, offset=0)]
    wanted = [delete_records.DeleteRecordsTopic(name=name, partitions=asked) for name in names]
    return first_of(scene.client.ask(DeleteRecordsRequest(topics=wanted, timeout_ms=1000)).topics)


def describe(scene: Scene, names: Names) -> Told:
    wanted = [
        describe_configs.DescribeConfigsResource(resource_type=TOPIC_CONFIG, resource_name=name) for name in names
    ]
    return of_resources(scene.client.ask(DescribeConfigsRequest(resources=wanted)).results)


def change(scene: Scene, names: Names) -> Told:
    wanted = [
        incremental_alter_configs.AlterConfigsResource(resource_type=TOPIC_CONFIG, resource_name=name, configs=[])
        for name in names
    ]
    request = IncrementalAlterConfigsRequest(resources=wanted, validate_only=False)
    return of_resources(scene.client.ask(request).responses)


def replace(scene: Scene, names: Names) -> Told:
    wanted = [
        alter_configs.AlterConfigsResource(resource_type=TOPIC_CONFIG, resource_name=name, configs=[]) for name in names
    ]
    request = AlterConfigsRequest(resources=wanted, validate_only=False)
    return of_resources(scene.client.ask(request).responses)


def producers(scene: Scene, names: Names) -> Told:
    wanted = [describe_producers.TopicRequest(name=name, partition_indexes=[0]) for name in names]
    return first_of(scene.client.ask(DescribeProducersRequest(topics=wanted)).topics)


def epochs(scene: Scene, names: Names) -> Told:
    asked = [offset_for_leader_epoch.OffsetForLeaderPartition(partition=0, leader_epoch=0)]
    wanted = [offset_for_leader_epoch.OffsetForLeaderTopic(topic=name, partitions=asked) for name in names]
    answer = scene.client.ask(OffsetForLeaderEpochRequest(topics=wanted))
    return {topic.topic: topic.partitions[0].error_code for topic in answer.topics}


def commit(scene: Scene, names: Names) -> Told:
    asked = [offset_commit.OffsetCommitRequestPartition(partition_index=0, committed_offset=1)]
    wanted = [offset_commit.OffsetCommitRequestTopic(name=name, partitions=asked) for name in names]
    return first_of(scene.client.ask(OffsetCommitRequest(group_id="g", member_id="", topics=wanted), 9).topics)


def commit_in_transaction(scene: Scene, names: Names) -> Told:
    asked = [txn_offset_commit.TxnOffsetCommitRequestPartition(partition_index=0, committed_offset=1)]
    wanted = [txn_offset_commit.TxnOffsetCommitRequestTopic(name=name, partitions=asked) for name in names]
    request = TxnOffsetCommitRequest(
        transactional_id="t",
        group_id="g",
        producer_id=scene.pair.producer_id,
        producer_epoch=scene.pair.producer_epoch,
        topics=wanted,
    )
    return first_of(scene.client.ask(request, 5).topics)


def committed(scene: Scene, names: Names) -> Told:
    wanted = [offset_fetch.OffsetFetchRequestTopics(name=name, partition_indexes=[0]) for name in names]
    asked = offset_fetch.OffsetFetchRequestGroup(group_id="g", topics=wanted)
    return first_of(scene.client.ask(OffsetFetchRequest(groups=[asked]), 9).groups[0].topics)


def committed_of_groups(scene: Scene, names: Names) -> Told:
    wanted = [offset_fetch.OffsetFetchRequestGroup(group_id=name) for name in names]
    answer = scene.client.ask(OffsetFetchRequest(groups=wanted), 9)
    return {group.group_id: group.error_code for group in answer.groups}


def forget(scene: Scene, names: Names) -> Told:
    asked = [offset_delete.OffsetDeleteRequestPartition(partition_index=0)]
    wanted = [offset_delete.OffsetDeleteRequestTopic(name=name, partitions=asked) for name in names]
    commit(scene, names)  # so that there is a group
    return first_of(scene.client.ask(OffsetDeleteRequest(group_id="g", topics=wanted)).topics)


def describe_groups(scene: Scene, names: Names) -> Told:
    answer = scene.client.ask(DescribeGroupsRequest(groups=list(names)))
    return {group.group_id: group.error_code for group in answer.groups}


def delete_groups(scene: Scene, names: Names) -> Told:
    answer = scene.client.ask(DeleteGroupsRequest(groups_names=list(names)))
    return {group.group_id: group.error_code for group in answer.results}


def describe_transactions(scene: Scene, names: Names) -> Told:
    answer = scene.client.ask(DescribeTransactionsRequest(transactional_ids=list(names)))
    return {each.transactional_id: each.error_code for each in answer.transaction_states}


def find(kind: int) -> Callable[[Scene, Names], Told]:
    def ask(scene: Scene, names: Names) -> Told:
        answer = scene.client.ask(FindCoordinatorRequest(key_type=kind, coordinator_keys=list(names)), 4)
        return {each.key: each.error_code for each in answer.coordinators}

    return ask


CASES: Final[dict[str, tuple[Resource, Operation, Callable[[Scene, Names], Told], ErrorCode]]] = {
    "Produce": (TOPIC, Operation.WRITE, write, NO_TOPIC),
    "Fetch": (TOPIC, Operation.READ, read, NO_TOPIC),
    "ListOffsets": (TOPIC, Operation.DESCRIBE, offsets, NO_TOPIC),
    "Metadata": (TOPIC, Operation.DESCRIBE, show, NO_TOPIC),
    "DescribeTopicPartitions": (TOPIC, Operation.DESCRIBE, show_pages, NO_TOPIC),
    "CreatePartitions": (TOPIC, Operation.ALTER, grow, NO_TOPIC),
    "DeleteTopics": (TOPIC, Operation.DELETE, delete, NO_TOPIC),
    "DeleteRecords": (TOPIC, Operation.DELETE, delete_oldest, NO_TOPIC),
    "DescribeConfigs": (TOPIC, Operation.DESCRIBE_CONFIGS, describe, NO_TOPIC),
    "IncrementalAlterConfigs": (TOPIC, Operation.ALTER_CONFIGS, change, NO_TOPIC),
    "AlterConfigs": (TOPIC, Operation.ALTER_CONFIGS, replace, NO_TOPIC),
    "DescribeProducers": (TOPIC, Operation.READ, producers, NO_TOPIC),
    "OffsetForLeaderEpoch": (TOPIC, Operation.DESCRIBE, epochs, NO_TOPIC),
    "OffsetCommit": (TOPIC, Operation.READ, commit, NO_TOPIC),
    "TxnOffsetCommit": (TOPIC, Operation.READ, commit_in_transaction, NO_TOPIC),
    "OffsetFetch of topics": (TOPIC, Operation.DESCRIBE, committed, NO_TOPIC),
    "OffsetFetch of groups": (GROUP, Operation.DESCRIBE, committed_of_groups, NO_GROUP),
    "OffsetDelete": (TOPIC, Operation.READ, forget, NO_TOPIC),
    "DescribeGroups": (GROUP, Operation.DESCRIBE, describe_groups, NO_GROUP),
    "DeleteGroups": (GROUP, Operation.DELETE, delete_groups, NO_GROUP),
    "DescribeTransactions": (ID, Operation.DESCRIBE, describe_transactions, NO_ID),
    "FindCoordinator of groups": (GROUP, Operation.DESCRIBE, find(0), NO_GROUP),
    "FindCoordinator of ids": (ID, Operation.DESCRIBE, find(1), NO_ID),
}


def denying(scene: Scene, resource: Resource, operation: Operation, name: str) -> None:
    scene.deny(resource, operation)
    scene.denies.only = name


@pytest.mark.parametrize("place", [0, 1, 2])
@pytest.mark.parametrize("api", CASES)
def test_each_name_is_refused_for_itself(scene: Scene, api: str, place: int) -> None:
    resource, operation, ask, error = CASES[api]
    names = [new_topic(scene.client) for _ in range(3)]
    denying(scene, resource, operation, names[place])
    told = ask(scene, names)
    assert [name for name in names if told[name] == error] == [names[place]]
    in_order = sorted(names) if ask is show_pages else names
    if ask is read:  # as in Apache Kafka what is read comes first
        in_order = [*(name for name in names if name != names[place]), names[place]]
    assert list(told) == in_order


@pytest.mark.parametrize("make", [create, show], ids=["CreateTopics", "Metadata"])
@pytest.mark.parametrize("place", [0, 1, 2])
def test_a_topic_is_made_by_the_right_to_that_one(
    scene: Scene, place: int, make: Callable[[Scene, Names], Told]
) -> None:
    names = ["new-1", "new-2", "new-3"]
    scene.denies.denied = {(resource, Operation.CREATE) for resource in (Resource.CLUSTER, TOPIC)}
    allowed = names[place]
    scene.denies.allows = lambda *asked: asked[-1] == allowed or asked[2] is not Operation.CREATE  # type: ignore[method-assign]
    assert make(scene, names) == {name: ErrorCode.NONE if name == allowed else NO_TOPIC for name in names}


@pytest.mark.parametrize("place", [0, 1, 2])
def test_nothing_is_added_to_a_transaction_where_one_topic_may_not_be_written(scene: Scene, place: int) -> None:
    names = [new_topic(scene.client) for _ in range(3)]
    denying(scene, TOPIC, Operation.WRITE, names[place])
    topics = [add_partitions_to_txn.AddPartitionsToTxnTopic(name=name, partitions=[0]) for name in names]
    request = AddPartitionsToTxnRequest(
        transactional_id="t",
        producer_id=scene.pair.producer_id,
        producer_epoch=scene.pair.producer_epoch,
        topics=topics,
    )
    told = {
        topic.name: topic.results_by_partition[0].partition_error_code
        for topic in scene.client.ask(request, 3).results_by_topic
    }
    left = ErrorCode.OPERATION_NOT_ATTEMPTED
    assert told == {name: NO_TOPIC if name == names[place] else left for name in names}
    (state,) = scene.client.ask(DescribeTransactionsRequest(transactional_ids=["t"])).transaction_states
    assert (state.transaction_state, state.topics) == ("Empty", [])
    assert add(scene.client, "t", scene.pair, names[(place + 1) % 3]) == ErrorCode.NONE


@pytest.mark.parametrize("version", range(1, 8))
def test_who_may_not_see_a_group_is_told_so_of_each_partition_and_since_version_2_of_the_whole(
    scene: Scene, version: int
) -> None:
    scene.deny(GROUP)
    topics = [offset_fetch.OffsetFetchRequestTopic(name=scene.topic, partition_indexes=[0, 1])]
    answer = scene.client.ask(OffsetFetchRequest(group_id="g", topics=topics), version)
    told = [part.error_code for topic in answer.topics for part in topic.partitions]
    assert (answer.error_code, told) == ((ErrorCode.NONE, [NO_GROUP] * 2) if version == 1 else (NO_GROUP, []))
