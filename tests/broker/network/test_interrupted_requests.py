"""What others do between two steps of a long request: it decides as if it had come after that, or is not done."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from tests.broker.group_talk import committed_offset
from tests.broker.interrupted import decoding_held, held
from tests.broker.wire import (
    SETTINGS,
    Client,
    batch,
    clients,
    connections_of,
    ended,
    fetch,
    fetch_request,
    find_coordinator,
    init,
    list_offset,
    new_topic,
    on_the_loop,
    produce,
    produce_request,
    values,
    wait_until,
)

from fencepost.broker import Broker, running_broker
from fencepost.coordinator.group import GroupCoordinator
from fencepost.coordinator.group.classic.group import ClassicGroup
from fencepost.protocol.errors import ErrorCode
from fencepost.protocol.messages import (
    CreateTopicsRequest,
    DeleteTopicsRequest,
    DescribeGroupsRequest,
    MetadataRequest,
    OffsetCommitRequest,
    TxnOffsetCommitRequest,
)
from fencepost.protocol.messages.create_topics import CreatableTopic
from fencepost.protocol.messages.delete_topics import DeleteTopicState
from fencepost.protocol.messages.fetch import FetchPartition, FetchTopic
from fencepost.protocol.messages.metadata import MetadataRequestTopic
from fencepost.protocol.messages.offset_commit import OffsetCommitRequestPartition, OffsetCommitRequestTopic
from fencepost.protocol.messages.produce import PartitionProduceData, TopicProduceData
from fencepost.protocol.messages.txn_offset_commit import TxnOffsetCommitRequestPartition, TxnOffsetCommitRequestTopic
from fencepost.protocol.steps import ITEM, STEP

client = clients()
MANY = 2 * STEP // ITEM
UNKNOWN, GONE = "nowhere", ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


def commit(topic: str) -> OffsetCommitRequest:
    """Position 5 of the topic, and positions of partitions that nobody has."""
    topics = [
        OffsetCommitRequestTopic(
            name=name,
            partitions=[OffsetCommitRequestPartition(partition_index=n, committed_offset=5) for n in range(count)],
        )
        for name, count in ((topic, 1), (UNKNOWN, MANY))
    ]
    return OffsetCommitRequest(group_id="g", member_id="", topics=topics)


def delete(client: Client, topic: str) -> None:
    answer = client.ask(DeleteTopicsRequest(topics=[DeleteTopicState(name=topic)], timeout_ms=1000))
    assert answer.responses[0].error_code == ErrorCode.NONE


def make_again(client: Client, topic: str) -> None:
    wanted = CreatableTopic(name=topic, num_partitions=1, replication_factor=1, assignments=[], configs=[])
    assert client.ask(CreateTopicsRequest(topics=[wanted])).topics[0].error_code == ErrorCode.NONE


def errors(answer: Any) -> tuple[list[int], set[int]]:
    """Of the partition that was there, and of those that were not."""
    known, unknown = answer.topics
    return [each.error_code for each in known.partitions], {each.error_code for each in unknown.partitions}


def test_nothing_is_committed_for_a_topic_that_was_deleted_meanwhile(
    client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It would be the position in the next topic of this name."""
    topic, other = new_topic(client), Client(client.broker)
    find_coordinator(client, "g", 0)
    with held(client.broker, monkeypatch) as interrupted:
        client.send(commit(topic), version=9)
        interrupted(1)
        delete(other, topic)
    assert errors(client.receive()) == ([GONE], {GONE})
    make_again(client, topic)
    assert committed_offset(client, topic) == (-1, 0)
    other.close()


def test_nothing_is_committed_in_a_transaction_for_a_topic_that_was_deleted_meanwhile(
    client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    topic, other = new_topic(client), Client(client.broker)
    pair = init(client, "t")
    find_coordinator(client, "g", 0)
    topics = [
        TxnOffsetCommitRequestTopic(
            name=name,
            partitions=[
                TxnOffsetCommitRequestPartition(partition_index=n, committed_offset=5, committed_metadata="")
                for n in range(count)
            ],
        )
        for name, count in ((topic, 1), (new_topic(client), 1), (UNKNOWN, MANY))
    ]
    request = TxnOffsetCommitRequest(
        transactional_id="t",
        group_id="g",
        producer_id=pair.producer_id,
        producer_epoch=pair.producer_epoch,
        topics=topics,
    )
    with held(client.broker, monkeypatch) as interrupted:
        client.send(request, version=5)
        interrupted(1)
        delete(other, topic)
    told = client.receive().topics
    assert [{each.error_code for each in of.partitions} for of in told] == [{GONE}, {ErrorCode.NONE}, {GONE}]
    make_again(client, topic)
    ended(client, "t", pair)
    assert committed_offset(client, topic) == (-1, 0)
    assert committed_offset(client, topics[1].name) == (5, 0)
    other.close()


def test_of_many_writes_those_to_a_topic_that_was_made_anew_meanwhile_are_refused(
    client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    topic, kept, other = new_topic(client), new_topic(client), Client(client.broker)
    request = produce_request(client, topic, [batch("of the first")])
    request.topic_data += produce_request(client, kept, [batch("kept")]).topic_data
    request.topic_data.append(
        TopicProduceData(
            name=UNKNOWN, partition_data=[PartitionProduceData(index=n, records=batch("x")) for n in range(MANY)]
        )
    )
    with held(client.broker, monkeypatch) as interrupted:
        client.send(request, version=12)
        interrupted(1)
        delete(other, topic)
        make_again(other, topic)
    told = [{each.error_code for each in of.partition_responses} for of in client.receive().responses]
    assert told == [{GONE}, {ErrorCode.NONE}, {GONE}]
    assert list_offset(client, topic, -1).offset == 0
    assert values(fetch(client, kept)) == ["kept"]
    other.close()


def test_a_commit_is_done_to_its_end_when_its_client_has_gone(client: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    topic = new_topic(client)
    find_coordinator(client, "g", 0)
    (mine,) = connections_of(client.broker)
    with held(client.broker, monkeypatch) as interrupted:
        gone = Client(client.broker)
        gone.send(commit(topic), version=9)
        interrupted(1)
        (theirs,) = [each for each in connections_of(client.broker) if each is not mine]
        on_the_loop(client.broker, theirs.abort)
        wait_until("one connection is left", lambda: len(connections_of(client.broker)) == 1)
        assert committed_offset(client, topic) == (-1, 0)
    gone.close()
    wait_until("it is committed", lambda: committed_offset(client, topic) == (5, 0))


def test_a_question_is_not_answered_to_its_end_when_its_client_has_gone(
    client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert client.ask(MetadataRequest(topics=[])).brokers
    known: list[str] = []
    look_up = GroupCoordinator.known

    def noted(groups: GroupCoordinator, name: str) -> ClassicGroup | ErrorCode:
        known.append(name)
        return look_up(groups, name)

    monkeypatch.setattr(GroupCoordinator, "known", noted)
    with held(client.broker, monkeypatch) as interrupted:
        gone = Client(client.broker)
        gone.send(DescribeGroupsRequest(groups=[f"g{n}" for n in range(MANY)]))
        interrupted(1)
        gone.close()
        wait_until("one connection is left", lambda: len(connections_of(client.broker)) == 1)
    assert client.ask(MetadataRequest(topics=[])).brokers
    assert len(known) < MANY


def stop_within(broker: Broker) -> None:
    assert broker.failed is not None
    asyncio.run_coroutine_threadsafe(broker.stop(), broker.failed.get_loop()).result(20)


def many_writes(client: Client, topic: str) -> Any:
    request = produce_request(client, topic, [batch("never acknowledged")])
    records = [PartitionProduceData(index=n, records=batch("x")) for n in range(MANY)]
    request.topic_data.append(TopicProduceData(name=UNKNOWN, partition_data=records))
    return request


def many_names(_: Client, __: str) -> Any:
    names = [MetadataRequestTopic(name=f"{UNKNOWN}-{n}") for n in range(2 * STEP)]
    return MetadataRequest(topics=names, allow_auto_topic_creation=False)


@pytest.mark.parametrize("request_of", [many_writes, lambda _, topic: commit(topic), many_names])
def test_a_node_that_stops_in_the_middle_of_a_request_does_nothing_more_of_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, request_of: Callable[..., Any]
) -> None:
    """Nothing goes into a log that is closed, and what was acknowledged before is there afterwards."""
    caplog.set_level(logging.WARNING)
    with running_broker(data=tmp_path, settings=SETTINGS) as broker:
        client = Client(broker)
        topic = new_topic(client)
        find_coordinator(client, "g", 0)
        produce(client, topic, batch("acknowledged"))
        with held(broker, monkeypatch) as interrupted:
            client.send(request_of(client, topic), version=9)
            interrupted(1)
            at_work = [task for connection in connections_of(broker) for task in connection.under_way]
            stop_within(broker)
        for _ in range(5):  # turns of the event loop
            on_the_loop(broker, lambda: None)
        assert [task.cancelled() for task in at_work] == [True]
        client.close()
    assert not caplog.records
    with running_broker(data=tmp_path, settings=SETTINGS) as broker:
        client = Client(broker)
        assert values(fetch(client, topic)) == ["acknowledged"]
        assert committed_offset(client, topic) == (-1, 0)
        client.close()
    assert not caplog.records


def test_a_node_that_stops_while_a_request_is_decoded_does_nothing_of_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.WARNING)
    with running_broker(data=tmp_path, settings=SETTINGS) as broker:
        client = Client(broker)
        topic = new_topic(client)
        produce(client, topic, batch("acknowledged"))
        with decoding_held(broker, monkeypatch) as tried:
            client.send(many_writes(client, topic))
            wait_until("it is being decoded", lambda: tried() > 10)
            stop_within(broker)
            assert not connections_of(broker)
            before = tried()
            for _ in range(5):  # turns of the event loop
                assert tried() == before
        client.close()
    assert not caplog.records
    with running_broker(data=tmp_path, settings=SETTINGS) as broker:
        client = Client(broker)
        assert values(fetch(client, topic)) == ["acknowledged"]
        client.close()
    assert not caplog.records


@pytest.mark.parametrize("again", [False, True])
def test_a_fetch_reads_nothing_of_a_partition_that_was_deleted_after_it_was_found(
    client: Client, monkeypatch: pytest.MonkeyPatch, again: bool
) -> None:
    topic, other = new_topic(client), Client(client.broker)
    produce(client, topic, batch("old"))
    request = fetch_request(client, topic)
    nobodys = [FetchPartition(partition=n, fetch_offset=0, partition_max_bytes=1000) for n in range(MANY)]
    request.topics.append(FetchTopic(topic=UNKNOWN, partitions=nobodys))
    with held(client.broker, monkeypatch) as interrupted:
        client.send(request, version=12)
        interrupted(1)
        delete(other, topic)
        if again:
            make_again(other, topic)
    (found,) = [each for each in client.receive().responses if each.topic == topic]
    assert (found.partitions[0].error_code, found.partitions[0].records) == (0 if again else GONE, b"")
    other.close()
