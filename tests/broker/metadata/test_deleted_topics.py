"""What is left of a deleted topic for one of the same name: nothing."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from random import Random

import pytest
from tests.broker.group_talk import commit, committed_offset, find_group, txn_commit
from tests.broker.wire import (
    SETTINGS,
    Client,
    batch,
    clients,
    ended,
    fetch,
    init,
    list_offset,
    new_topic,
    on_the_loop,
    produce,
    values,
)

from fencepost.broker import Broker, running, running_broker
from fencepost.coordinator.group.shards import GroupCoordinatorShard
from fencepost.log import commit_log, space
from fencepost.protocol.errors import ErrorCode
from fencepost.protocol.messages import CreateTopicsRequest, DeleteTopicsRequest
from fencepost.protocol.messages.create_topics import CreatableTopic
from fencepost.protocol.messages.delete_topics import DeleteTopicState
from fencepost.simulation.disk import SimulatedDisk

client = clients()


def delete(client: Client, name: str) -> None:
    request = DeleteTopicsRequest(topics=[DeleteTopicState(name=name)], timeout_ms=1000)
    assert client.ask(request).responses[0].error_code == ErrorCode.NONE


def make_again(client: Client, name: str) -> None:
    wanted = CreatableTopic(name=name, num_partitions=1, replication_factor=1, assignments=[], configs=[])
    assert client.ask(CreateTopicsRequest(topics=[wanted])).topics[0].error_code == ErrorCode.NONE


def test_records_offsets_and_producers_are_gone(client: Client) -> None:
    find_group(client)
    topic, other = new_topic(client), new_topic(client)
    assert produce(client, topic, batch("old", pair=(7, 5), sequence=0)).error_code == ErrorCode.NONE
    for each in (topic, other):
        assert commit(client, each, 1) == commit(client, each, 1, group="h") == [ErrorCode.NONE]
    delete(client, topic)
    assert produce(client, topic, batch("lost"), version=12).error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    make_again(client, topic)
    assert values(fetch(client, topic)) == []
    assert list_offset(client, topic, -1).offset == 0
    assert committed_offset(client, topic) == committed_offset(client, topic, group="h") == (-1, ErrorCode.NONE)
    assert committed_offset(client, other) == (1, ErrorCode.NONE)
    assert produce(client, topic, batch("new", pair=(7, 0), sequence=0)).error_code == ErrorCode.NONE


def test_an_offset_that_was_pending_is_not_for_the_new_topic(client: Client) -> None:
    find_group(client)
    topic, pair = new_topic(client), init(client, "t")
    assert txn_commit(client, "t", pair, topic, 9) == [ErrorCode.NONE]
    delete(client, topic)
    make_again(client, topic)
    assert committed_offset(client, topic, stable=True) == (-1, ErrorCode.NONE)
    ended(client, "t", pair)
    assert committed_offset(client, topic) == (-1, ErrorCode.NONE)


def test_a_transaction_that_wrote_to_it_can_be_ended(client: Client) -> None:
    gone, kept, pair = new_topic(client), new_topic(client), init(client, "t")
    for topic in (gone, kept):
        data = batch("x", pair=pair, sequence=0, transactional=True)
        assert produce(client, topic, data, "t").error_code == ErrorCode.NONE
    delete(client, gone)
    pair = ended(client, "t", pair)
    assert values(fetch(client, kept)) == ["x"]
    make_again(client, gone)
    assert fetch(client, gone).high_watermark == 0


def test_it_stays_deleted_after_a_restart(tmp_path: Path) -> None:
    with running_broker(data=tmp_path, settings=SETTINGS) as broker:
        client = Client(broker)
        find_group(client)
        topic = new_topic(client)
        produce(client, topic, batch("old"))
        commit(client, topic, 1)
        delete(client, topic)
        client.close()
    with running_broker(data=tmp_path, settings=SETTINGS) as broker:
        client = Client(broker)
        assert topic not in broker.node.topics.by_name
        make_again(client, topic)
        assert values(fetch(client, topic)) == []
        assert committed_offset(client, topic) == (-1, ErrorCode.NONE)
        client.close()


def test_committed_offsets_go_even_where_the_disk_is_full(client: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    find_group(client)
    topic = new_topic(client)
    assert commit(client, topic, 1) == [ErrorCode.NONE]
    space = client.broker.node.storage.space
    with monkeypatch.context() as full:
        full.setattr(space, "is_whole", False)
        full.setattr(space, "refill", lambda: False)
        delete(client, topic)
    make_again(client, topic)
    assert committed_offset(client, topic) == (-1, ErrorCode.NONE)


def test_a_topic_whose_name_still_has_committed_offsets_is_not_made(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refused(*_: object) -> ErrorCode:
        return ErrorCode.KAFKA_STORAGE_ERROR

    wanted = CreatableTopic(name="t", num_partitions=1, replication_factor=1, assignments=[], configs=[])
    with monkeypatch.context() as full:
        with running_broker(data=tmp_path, settings=SETTINGS) as broker:
            client = Client(broker)
            find_group(client)
            make_again(client, "t")
            assert commit(client, "t", 1) == [ErrorCode.NONE]
            full.setattr(GroupCoordinatorShard, "append", refused)
            delete(client, "t")
            make_again(client, "other")  # what is known of the deleted one outlives other changes
            client.close()
        with running_broker(data=tmp_path, settings=SETTINGS) as broker:
            client = Client(broker)
            (answer,) = client.ask(CreateTopicsRequest(topics=[wanted])).topics
            assert answer.error_code == ErrorCode.KAFKA_STORAGE_ERROR
            assert answer.error_message == (
                "what groups committed of an earlier topic 't' cannot be removed: free some space on the disk, "
                "or see to the partition of __consumer_offsets that is offline"
            )
            client.close()
    with running_broker(data=tmp_path, settings=SETTINGS) as broker:
        client = Client(broker)
        make_again(client, "t")
        assert committed_offset(client, "t") == (-1, ErrorCode.NONE)
        client.close()


def test_the_offsets_of_all_that_are_deleted_together_are_gone(client: Client) -> None:
    find_group(client)
    topics = [new_topic(client) for _ in range(3)]
    for topic in topics:
        assert commit(client, topic, 1) == [ErrorCode.NONE]
    request = DeleteTopicsRequest(topics=[DeleteTopicState(name=topic) for topic in topics], timeout_ms=1000)
    assert [each.error_code for each in client.ask(request).responses] == [ErrorCode.NONE] * 3
    for topic in topics:
        make_again(client, topic)
        assert committed_offset(client, topic) == (-1, ErrorCode.NONE)


class SmallDisk:
    """Where a node has its data; somebody else has the rest of the disk, and lets go of some of it later."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, path: Path) -> None:
        for name, size in (("_ALLOCATION", 4096), ("_LITTLE", 512)):
            monkeypatch.setattr(commit_log, name, size)
        monkeypatch.setattr(space, "reserved", lambda total, _: total // 8)
        self._disk = SimulatedDisk(Random(1), capacity=20_000_000)
        self._disk.make_directory(path.parent / "foreign")
        self._foreign = self._disk.open(path.parent / "foreign" / "file")
        self._path = path
        monkeypatch.setattr(running, "Broker", partial(Broker, disk=self._disk))

    @contextmanager
    def serving(self) -> Iterator[Client]:
        with running_broker(data=self._path, settings=SETTINGS) as broker:
            client = Client(broker)
            yield client
            client.close()

    def occupy(self) -> None:
        room = self._disk.room(self._path)
        assert room is not None
        self._foreign.allocate(self._foreign.size() + room.free)

    def let_go(self) -> None:
        self._foreign.truncate(0)


def test_committed_offsets_are_gone_where_the_disk_is_full(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    disk = SmallDisk(monkeypatch, tmp_path)
    with disk.serving() as client:
        find_group(client)
        topic, other = new_topic(client), new_topic(client)
        assert commit(client, topic, 1) == [ErrorCode.NONE]
        disk.occupy()
        while produce(client, other, batch("x")).error_code == ErrorCode.NONE:
            pass
        delete(client, topic)
        disk.let_go()
        make_again(client, topic)
        assert committed_offset(client, topic) == (-1, ErrorCode.NONE)


def test_a_start_on_a_full_disk_finishes_the_deletion(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    disk = SmallDisk(monkeypatch, tmp_path)
    with disk.serving() as client:
        find_group(client)
        topic = new_topic(client)
        assert commit(client, topic, 1) == [ErrorCode.NONE]
        topics = client.broker.node.topics
        on_the_loop(client.broker, lambda: topics.withdraw(topics.by_name[topic]))
    disk.occupy()
    with disk.serving() as client:
        disk.let_go()
        make_again(client, topic)
        assert committed_offset(client, topic) == (-1, ErrorCode.NONE)
