"""kafka-python works on Fencepost unchanged."""

from __future__ import annotations

import time
from typing import Any

import pytest
from kafka import KafkaAdminClient, KafkaConsumer, KafkaProducer, OffsetAndMetadata, TopicPartition
from kafka.errors import KafkaError

from fencepost.broker import Broker


def producer(servers: str, transactional_id: str, **options: Any) -> Any:
    made = KafkaProducer(bootstrap_servers=servers, transactional_id=transactional_id, **options)
    made.init_transactions()
    return made


def read_all(servers: str, topic: str, seconds: float = 1.5) -> list[bytes]:
    """What a read_committed reader is shown until nothing more comes for a while."""
    reader = KafkaConsumer(
        topic,
        bootstrap_servers=servers,
        isolation_level="read_committed",
        auto_offset_reset="earliest",
        enable_auto_commit=False,
        group_id=None,
        consumer_timeout_ms=int(seconds * 1000),
    )
    values = [message.value for message in reader]
    reader.close()
    return values


def test_commits_are_shown_and_aborts_are_not(servers: str, name: str) -> None:
    writer = producer(servers, name)
    for number in range(20):
        writer.begin_transaction()
        writer.send(name, b"%d" % number)
        if number % 3:
            writer.commit_transaction()
        else:
            writer.flush()
            writer.abort_transaction()
    writer.close()
    assert sorted(read_all(servers, name)) == sorted(b"%d" % number for number in range(20) if number % 3)


@pytest.mark.promise("2014.one-producer")
def test_a_zombie_is_fenced_and_its_open_transaction_aborted(servers: str, name: str) -> None:
    first = producer(servers, name)
    first.begin_transaction()
    first.send(name, b"zombie", partition=0).get(20)
    second = producer(servers, name)
    second.begin_transaction()
    second.send(name, b"successor", partition=0)
    second.commit_transaction()
    with pytest.raises(KafkaError):
        first.commit_transaction()
    assert read_all(servers, name) == [b"successor"]
    first.close(timeout=0)
    second.close()


def test_offsets_move_with_their_transaction(servers: str, name: str) -> None:
    writer = producer(servers, name)
    at = TopicPartition(name, 0)
    writer.begin_transaction()
    writer.send(name, b"in", partition=0)
    writer.commit_transaction()
    reader = KafkaConsumer(bootstrap_servers=servers, group_id=name, enable_auto_commit=False)
    writer.begin_transaction()
    writer.send_offsets_to_transaction({at: OffsetAndMetadata(5, "", -1)}, name)
    writer.abort_transaction()
    assert reader.committed(at) is None
    writer.begin_transaction()
    writer.send_offsets_to_transaction({at: OffsetAndMetadata(7, "", -1)}, name)
    writer.commit_transaction()
    assert reader.committed(at) == 7
    reader.close()
    writer.close()


def test_two_members_share_the_partitions(servers: str, name: str) -> None:
    writer = KafkaProducer(bootstrap_servers=servers)
    writer.send(name, b"x").get(20)
    writer.close()
    members = [KafkaConsumer(name, bootstrap_servers=servers, group_id=name) for _ in range(2)]
    end = time.monotonic() + 30
    while time.monotonic() < end and sorted(len(member.assignment()) for member in members) != [1, 1]:
        for member in members:
            member.poll(200)
    assert sorted(at.partition for member in members for at in member.assignment()) == [0, 1]
    for member in members:
        member.close()


def test_after_a_time_out_a_new_producer_goes_on(servers: str, name: str) -> None:
    writer = producer(servers, name, transaction_timeout_ms=1000)
    writer.begin_transaction()
    writer.send(name, b"late", partition=0).get(20)
    reader = KafkaConsumer(bootstrap_servers=servers, group_id=None)
    at = TopicPartition(name, 0)
    end = time.monotonic() + 30
    while time.monotonic() < end and reader.end_offsets([at])[at] < 2:
        time.sleep(0.1)  # until the marker of the time-out is there
    reader.close()
    with pytest.raises(KafkaError):
        writer.commit_transaction()
    writer.close(timeout=0)
    successor = producer(servers, name)
    successor.begin_transaction()
    successor.send(name, b"again", partition=0)
    successor.commit_transaction()
    successor.close()
    assert read_all(servers, name) == [b"again"]


def test_the_admin_client_sees_the_data_directory(servers: str, name: str, broker: Broker) -> None:
    writer = producer(servers, name)
    writer.begin_transaction()
    writer.send(name, b"x" * 1000, partition=0)
    writer.commit_transaction()
    writer.close()
    admin = KafkaAdminClient(bootstrap_servers=servers)
    (told,) = admin.describe_log_dirs({name: [0]})
    admin.close()
    (directory,) = told["log_dirs"]
    assert (told["broker"], directory["log_dir"]) == (broker.node.node_id, str(broker.node.storage.path))
    (topic,) = directory["topics"]
    assert topic["name"] == name
    assert [one["partition_size"] > 1000 for one in topic["partitions"]] == [True]
