"""A partition that cannot be opened: its requests are told so, as Apache Kafka tells it, and all others are served."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from tests.broker.apis.test_elect_leaders import PREFERRED, UNCLEAN, elect
from tests.broker.group_talk import commit, find_group, txn_commit
from tests.broker.wire import (
    SETTINGS,
    Client,
    add,
    batch,
    end,
    ended,
    fetch,
    find_coordinator,
    init,
    init_answer,
    list_offset,
    new_topic,
    produce,
    values,
    wait_until,
)

from fencepost.broker import running_broker
from fencepost.broker.metrics import measure
from fencepost.log import opening
from fencepost.log.offline import PartitionDamaged
from fencepost.log.recovery import recover
from fencepost.protocol.errors import ErrorCode
from fencepost.protocol.messages import (
    AddOffsetsToTxnRequest,
    DeleteRecordsRequest,
    DeleteTopicsRequest,
    DescribeLogDirsRequest,
    DescribeProducersRequest,
    DescribeTopicPartitionsRequest,
    FindCoordinatorRequest,
    MetadataRequest,
    OffsetForLeaderEpochRequest,
    WriteTxnMarkersRequest,
)
from fencepost.protocol.messages.delete_records import DeleteRecordsPartition, DeleteRecordsTopic
from fencepost.protocol.messages.delete_topics import DeleteTopicState
from fencepost.protocol.messages.describe_log_dirs import DescribableLogDirTopic
from fencepost.protocol.messages.describe_producers import TopicRequest as ProducersTopic
from fencepost.protocol.messages.describe_topic_partitions import TopicRequest
from fencepost.protocol.messages.metadata import MetadataRequestTopic
from fencepost.protocol.messages.offset_for_leader_epoch import OffsetForLeaderPartition, OffsetForLeaderTopic
from fencepost.protocol.messages.write_txn_markers import WritableTxnMarker, WritableTxnMarkerTopic
from fencepost.protocol.partitioning import partition_for_id
from fencepost.protocol.types import ProducerIdAndEpoch

OFFLINE = ErrorCode.KAFKA_STORAGE_ERROR
NODE = 0


@pytest.fixture
def damaged(monkeypatch: pytest.MonkeyPatch) -> set[str]:
    """Names of partition directories that cannot be opened."""
    names: set[str] = set()

    def refuse(partition: Any, *rest: Any) -> None:
        if partition.directory.name in names:
            raise PartitionDamaged("it is said to be damaged")
        recover(partition, *rest)

    monkeypatch.setattr(opening, "recover", refuse)
    return names


@contextmanager
def node(data: Path) -> Iterator[Client]:
    with running_broker(data=data, settings={**SETTINGS, "log.segment.delete.delay.ms": 0}) as broker:
        client = Client(broker)
        yield client
        client.close()


def test_every_request_for_it_is_answered_and_the_others_are_served(damaged: set[str], tmp_path: Path) -> None:
    with node(tmp_path) as client:
        topic, other = new_topic(client, partitions=2), new_topic(client)
        assert produce(client, topic, batch("kept")).error_code == ErrorCode.NONE
    damaged.add(f"{topic}-0")
    for _ in range(2):
        with node(tmp_path) as client:
            answered = produce(client, topic, batch("x"))
            assert (answered.error_code, answered.base_offset) == (OFFLINE, -1)
            assert fetch(client, topic).error_code == OFFLINE
            for timestamp in (-1, -2, -3, 0):
                assert list_offset(client, topic, timestamp).error_code == OFFLINE
            assert delete_records(client, topic) == OFFLINE
            assert describe_producers(client, topic) == OFFLINE
            assert epoch_end(client, topic) == OFFLINE
            assert write_marker(client, topic) == OFFLINE
            assert described_directory(client, topic, 2) == [1], "it has no size that anybody knows"
            assert fetch(client, topic, partition=1).error_code == ErrorCode.NONE
            assert produce(client, other, batch("y")).error_code == ErrorCode.NONE
            find_group(client)
            assert commit(client, topic, 1) == [ErrorCode.NONE], "offsets are of the topic, not of what it holds"
            shown = measure(client.broker.node, client.broker.node.clock.now())
            there = sum(len(each.partitions) for each in client.broker.node.topics.by_name.values())
            assert shown["kafka.server:type=ReplicaManager,name=PartitionCount:Value"] == there
            assert shown["kafka.server:type=ReplicaManager,name=OfflineReplicaCount:Value"] == 1
            assert shown["kafka.controller:type=KafkaController,name=OfflinePartitionsCount:Value"] == 1
    damaged.clear()
    with node(tmp_path) as client:
        assert values(fetch(client, topic)) == ["kept"]


def test_metadata_shows_no_leader_for_it(damaged: set[str], tmp_path: Path) -> None:
    """So that producers without a key write to the other partitions."""
    with node(tmp_path) as client:
        topic = new_topic(client, partitions=3)
    damaged.add(f"{topic}-1")
    with node(tmp_path) as client:
        (shown,) = client.ask(MetadataRequest(topics=[MetadataRequestTopic(name=topic)])).topics
        (paged,) = client.ask(DescribeTopicPartitionsRequest(topics=[TopicRequest(name=topic)])).topics
        for described in (shown, paged):
            assert described.error_code == ErrorCode.NONE
            assert [
                (each.partition_index, each.error_code, each.leader_id, each.replica_nodes, each.offline_replicas)
                for each in described.partitions
            ] == [
                (0, ErrorCode.NONE, NODE, [NODE], []),
                (1, ErrorCode.LEADER_NOT_AVAILABLE, -1, [NODE], [NODE]),
                (2, ErrorCode.NONE, NODE, [NODE], []),
            ]


@pytest.mark.parametrize(
    ("election_type", "error"),
    [(PREFERRED, ErrorCode.PREFERRED_LEADER_NOT_AVAILABLE), (UNCLEAN, ErrorCode.ELIGIBLE_LEADERS_NOT_AVAILABLE)],
)
def test_nobody_else_can_be_elected_to_lead_it(
    damaged: set[str], tmp_path: Path, election_type: int, error: ErrorCode
) -> None:
    with node(tmp_path) as client:
        topic = new_topic(client, partitions=3)
    damaged.add(f"{topic}-1")
    with node(tmp_path) as client:
        told = [(0, ErrorCode.ELECTION_NOT_NEEDED), (1, error)]
        assert elect(client, (topic, [0, 1]), election_type=election_type) == (ErrorCode.NONE, [(topic, told)])
        assert dict(elect(client, election_type=election_type, every=True)[1])[topic] == [(1, error)]


def test_a_transaction_waits_for_it_with_its_marker_and_no_new_one_takes_it_in(
    damaged: set[str], tmp_path: Path
) -> None:
    with node(tmp_path) as client:
        topic, other = new_topic(client), new_topic(client)
        pair = init(client, "id")
        for name in (topic, other):
            record = batch("x", pair=pair, sequence=0, transactional=True)
            assert produce(client, name, record, "id").error_code == ErrorCode.NONE
    damaged.add(f"{topic}-0")
    with node(tmp_path) as client:
        pair = ended(client, "id", pair)
        assert values(fetch(client, other)) == ["x"]
        again = end(client, "id", pair)
        assert again.error_code == ErrorCode.CONCURRENT_TRANSACTIONS, "the marker is still to be written"
        fresh = init(client, "another id")
        record = batch("y", pair=fresh, sequence=0, transactional=True)
        assert produce(client, topic, record, "another id").error_code == OFFLINE
        assert add(client, "another id", fresh, topic) == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        assert produce(client, other, record, "another id").error_code == ErrorCode.NONE
        ended(client, "another id", fresh)
        assert values(fetch(client, other)) == ["x", "y"]
    damaged.clear()
    with node(tmp_path) as client:
        wait_until("the marker is written", lambda: values(fetch(client, topic)) == ["x"])


def test_no_transaction_takes_in_offsets_of_a_group_whose_journal_is_offline(damaged: set[str], tmp_path: Path) -> None:
    """It could not end: its id would stand still until the journal is back."""
    gone = next(name for name in map(str, range(20)) if partition_for_id(name, 5) == 2)
    with node(tmp_path) as client:
        topic = new_topic(client)
        find_group(client)
    damaged.add("__consumer_offsets-2")
    with node(tmp_path) as client:
        for version in range(5):
            name = f"id{version}"
            pair = init(client, name)
            assert add(client, name, pair, topic, version=3) == ErrorCode.NONE
            for group, told in [(gone, ErrorCode.COORDINATOR_NOT_AVAILABLE), ("g", ErrorCode.NONE)]:
                request = AddOffsetsToTxnRequest(
                    transactional_id=name,
                    producer_id=pair.producer_id,
                    producer_epoch=pair.producer_epoch,
                    group_id=group,
                )
                assert client.ask(request, version).error_code == told
            for _ in range(2):
                assert end(client, name, pair, commit=False, version=4).error_code == ErrorCode.NONE


def test_what_lives_in_an_offline_journal_has_no_coordinator(damaged: set[str], tmp_path: Path) -> None:
    names = [f"id{number}" for number in range(20)]
    with node(tmp_path) as client:
        topic, pairs = new_topic(client), {name: init(client, name) for name in names}
        find_group(client)
    damaged.update({"__transaction_state-1", "__consumer_offsets-2"})
    with node(tmp_path) as client:
        seen = set()
        for name in names:
            offline = partition_for_id(name, 5) == 1
            seen.add(offline)
            request = FindCoordinatorRequest(key_type=1, coordinator_keys=[name])
            (found,) = client.ask(request).coordinators
            answer = init_answer(client, name, pairs[name])
            if offline:
                assert found.error_code == ErrorCode.COORDINATOR_NOT_AVAILABLE
                assert "__transaction_state-1 is offline" in found.error_message
                assert answer.error_code == ErrorCode.NOT_COORDINATOR
            else:
                assert found.error_code == answer.error_code == ErrorCode.NONE
                taken = ProducerIdAndEpoch.of(answer.producer_id, answer.producer_epoch)
            group_offline = partition_for_id(name, 5) == 2
            (found,) = client.ask(FindCoordinatorRequest(key_type=0, coordinator_keys=[name])).coordinators
            said = commit(client, topic, 1, group=name)
            assert found.error_code == (ErrorCode.COORDINATOR_NOT_AVAILABLE if group_offline else ErrorCode.NONE)
            assert said == [ErrorCode.NOT_COORDINATOR if group_offline else ErrorCode.NONE]
            if group_offline:
                working = next(each for each in names if partition_for_id(each, 5) == 0)
                pair = ProducerIdAndEpoch.of(*init(client, working))
                said = txn_commit(client, working, pair, topic, 1, group=name)
                assert said == [ErrorCode.NOT_COORDINATOR]
        assert seen == {True, False} and taken
        assert init_answer(client, None).error_code == ErrorCode.NONE
    damaged.clear()
    with node(tmp_path) as client:
        for name in names:
            find_coordinator(client, name)
            assert init_answer(client, name).producer_epoch > pairs[name].producer_epoch


def test_its_topic_can_be_deleted_with_what_is_its_own(
    damaged: set[str], tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Damaged, it goes with its topic; where the directory is another topic's it stays, and no topic is made there."""
    with node(tmp_path) as client:
        topic, other = new_topic(client), new_topic(client)
        for name in (topic, other):
            assert produce(client, name, batch("kept")).error_code == ErrorCode.NONE
    damaged.add(f"{topic}-0")
    metadata = tmp_path / f"{other}-0" / "partition.metadata"
    metadata.write_text(re.sub(r"(topic_id: .{17}).{5}", r"\1AAAAA", metadata.read_text()))
    with node(tmp_path) as client:
        assert len(client.broker.node.storage.offline) == 2
        for name in (topic, other):
            gone = DeleteTopicsRequest(topics=[DeleteTopicState(name=name)], timeout_ms=1000)
            assert client.ask(gone).responses[0].error_code == ErrorCode.NONE
            assert produce(client, name, batch("x")).error_code == ErrorCode.UNKNOWN_TOPIC_ID
        damaged.clear()
        answered = [
            client.ask(MetadataRequest(topics=[MetadataRequestTopic(name=name)])).topics[0] for name in (topic, other)
        ]
        assert [each.error_code for each in answered] == [ErrorCode.NONE, OFFLINE]
        assert values(fetch(client, topic)) == []
    assert [path.name for path in tmp_path.glob("*-delete")] == []
    assert (tmp_path / f"{other}-0" / f"{0:020d}.log").stat().st_size > 0
    assert any(f"what is in {tmp_path / other}-0 stays" in line for line in caplog.messages)


def delete_records(client: Client, topic: str) -> int:
    wanted = DeleteRecordsTopic(name=topic, partitions=[DeleteRecordsPartition(partition_index=0, offset=-1)])
    request = DeleteRecordsRequest(topics=[wanted], timeout_ms=1000)
    return int(client.ask(request).topics[0].partitions[0].error_code)


def describe_producers(client: Client, topic: str) -> int:
    request = DescribeProducersRequest(topics=[ProducersTopic(name=topic, partition_indexes=[0])])
    return int(client.ask(request).topics[0].partitions[0].error_code)


def described_directory(client: Client, topic: str, count: int) -> list[int]:
    """Those of so many partitions of a topic that the directory is said to have."""
    asked = [DescribableLogDirTopic(topic=topic, partitions=list(range(count)))]
    (directory,) = client.ask(DescribeLogDirsRequest(topics=asked)).results
    assert directory.error_code == ErrorCode.NONE
    return [one.partition_index for found in directory.topics for one in found.partitions]


def epoch_end(client: Client, topic: str) -> int:
    wanted = OffsetForLeaderTopic(topic=topic, partitions=[OffsetForLeaderPartition(partition=0, leader_epoch=0)])
    return int(client.ask(OffsetForLeaderEpochRequest(topics=[wanted])).topics[0].partitions[0].error_code)


def write_marker(client: Client, topic: str) -> int:
    marker = WritableTxnMarker(
        producer_id=7,
        producer_epoch=0,
        transaction_result=False,
        topics=[WritableTxnMarkerTopic(name=topic, partition_indexes=[0])],
        coordinator_epoch=0,
    )
    (result,) = client.ask(WriteTxnMarkersRequest(markers=[marker])).markers
    return int(result.topics[0].partitions[0].error_code)
