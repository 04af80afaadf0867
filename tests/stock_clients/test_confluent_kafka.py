"""confluent-kafka (librdkafka) works on Fencepost unchanged."""

from __future__ import annotations

import time
from typing import Any

import pytest
from confluent_kafka import Consumer, KafkaError, KafkaException, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic


def producer(servers: str, transactional_id: str, **options: Any) -> Producer:
    config = {"bootstrap.servers": servers, "transactional.id": transactional_id, "log_level": 0, **options}
    made = Producer(config)
    made.init_transactions(20)
    return made


def consumer(servers: str, group: str, **options: Any) -> Consumer:
    config = {
        "bootstrap.servers": servers,
        "group.id": group,
        "auto.offset.reset": "earliest",
        "enable.auto.commit": False,
        "isolation.level": "read_committed",
        "session.timeout.ms": 6000,
        "enable.partition.eof": True,
        "fetch.wait.max.ms": 20,
        **options,
    }
    return Consumer(config)


def read(reader: Consumer, count: int, seconds: float = 20) -> list[bytes]:
    """The next `count` values; what there is when the time is over."""
    values: list[bytes] = []
    end = time.monotonic() + seconds
    while len(values) < count and time.monotonic() < end:
        message = reader.poll(0.5)
        if message is not None and message.error() is None:
            values.append(message.value() or b"")
    return values


def rest(reader: Consumer, partitions: list[TopicPartition]) -> list[bytes]:
    """Everything up to the ends of these partitions, as a read_committed reader is shown it now."""
    reader.assign(partitions)
    values, ended = [], 0
    while ended < len(partitions):
        message = reader.poll(20)
        assert message is not None, "the end was not reached"
        error = message.error()
        if error is None:
            values.append(message.value() or b"")
        elif error.code() == KafkaError._PARTITION_EOF:
            ended += 1
    return values


def both(topic: str) -> list[TopicPartition]:
    return [TopicPartition(topic, number, 0) for number in range(2)]


def test_commits_are_shown_and_aborts_are_not(servers: str, name: str) -> None:
    writer = producer(servers, name)
    for number in range(20):
        writer.begin_transaction()
        writer.produce(name, b"%d" % number, partition=number % 2)
        writer.produce(name, b"%d" % number, partition=(number + 1) % 2)
        if number % 3:
            writer.commit_transaction(20)
        else:
            writer.flush()
            writer.abort_transaction(20)
    reader = consumer(servers, name)
    assert sorted(rest(reader, both(name))) == sorted(b"%d" % n for n in range(20) if n % 3 for _ in range(2))
    reader.close()


def test_an_open_transaction_is_not_shown_and_its_successor_aborts_it(servers: str, name: str) -> None:
    first = producer(servers, name)
    first.begin_transaction()
    first.produce(name, b"open", partition=0)
    first.flush()
    reader = consumer(servers, name)
    assert rest(reader, both(name)) == []
    second = producer(servers, name)
    second.begin_transaction()
    second.produce(name, b"committed", partition=0)
    second.commit_transaction(20)
    assert rest(reader, both(name)) == [b"committed"]
    with pytest.raises(KafkaException) as fenced:
        first.commit_transaction(20)
    assert fenced.value.args[0].code() in (KafkaError._FENCED, KafkaError.PRODUCER_FENCED)
    reader.close()


def test_offsets_move_with_their_transaction(servers: str, name: str) -> None:
    writer = producer(servers, name)
    writer.begin_transaction()
    for number in range(10):
        writer.produce(name, b"%d" % number, partition=0)
    writer.commit_transaction(20)
    reader = consumer(servers, name)
    reader.subscribe([name])
    assert len(read(reader, 10)) == 10
    for commits, expected in ((False, -1001), (True, 11)):
        writer.begin_transaction()
        writer.produce(f"{name}-out", b"out", partition=0)
        positions = [TopicPartition(name, 0, 11)]
        writer.send_offsets_to_transaction(positions, reader.consumer_group_metadata(), 20)
        if commits:
            writer.commit_transaction(20)
        else:
            writer.abort_transaction(20)
        assert reader.committed([TopicPartition(name, 0)], 20)[0].offset == expected
    reader.close()


def test_two_members_share_the_partitions(servers: str, name: str) -> None:
    writer = producer(servers, name)
    writer.begin_transaction()
    writer.produce(name, b"x", partition=0)
    writer.commit_transaction(20)
    members = [consumer(servers, name) for _ in range(2)]
    for member in members:
        member.subscribe([name])
    end = time.monotonic() + 30
    while time.monotonic() < end and [len(member.assignment()) for member in members] != [1, 1]:
        for member in members:
            member.poll(0.1)
    assert sorted(at.partition for member in members for at in member.assignment()) == [0, 1]
    for member in members:
        member.close()


def test_after_a_time_out_the_same_producer_aborts_and_goes_on(servers: str, name: str) -> None:
    """On Apache Kafka it takes the old epoch for a fencing, and must be built anew."""
    writer = producer(servers, name, **{"transaction.timeout.ms": 1000})
    writer.begin_transaction()
    writer.produce(name, b"late", partition=0)
    writer.flush()
    reader = consumer(servers, name)
    end = time.monotonic() + 30
    while time.monotonic() < end and reader.get_watermark_offsets(TopicPartition(name, 0), 20)[1] < 2:
        time.sleep(0.1)  # until the marker of the time-out is there
    writer.produce(name, b"too late", partition=0)
    with pytest.raises(KafkaException) as failed:
        writer.commit_transaction(20)
    assert failed.value.args[0].txn_requires_abort()
    writer.abort_transaction(20)
    writer.begin_transaction()
    writer.produce(name, b"again", partition=0)
    writer.commit_transaction(20)
    assert rest(reader, both(name)) == [b"again"]
    reader.close()


def test_topics_are_listed_after_one_was_deleted(servers: str, name: str) -> None:
    """librdkafka asks with bytes behind its request then."""
    admin = AdminClient({"bootstrap.servers": servers, "log_level": 0})
    for topic in (name, f"{name}-kept"):
        admin.create_topics([NewTopic(topic, 1)])[topic].result(20)
    assert name in admin.list_topics(timeout=20).topics
    assert admin.list_topics(name, timeout=20).topics[name].error is None
    admin.delete_topics([name])[name].result(20)
    for _ in range(3):
        assert f"{name}-kept" in (known := admin.list_topics(timeout=5).topics)
        assert name not in known
