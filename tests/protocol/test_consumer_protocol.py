"""Subscriptions and assignments of classic groups, as kio, aiokafka and kafka-python write and read them."""

from __future__ import annotations

import importlib
import io
from typing import Any

import aiokafka.coordinator.protocol
import kafka.protocol.consumer
import pytest
from kio.serial import entity_reader, entity_writer

from fencepost.protocol.codec import decode, decode_stored, encode, encode_stored
from fencepost.protocol.consumer_protocol import (
    ConsumerProtocolAssignment,
    ConsumerProtocolSubscription,
    ConsumerTopicPartitions,
    subscribed_topics,
)
from fencepost.protocol.errors import ProtocolError

OWNED = ConsumerTopicPartitions(topic="orders", partitions=[0, 7])
SUBSCRIPTION = ConsumerProtocolSubscription(
    topics=["orders", "payments"], user_data=b"\0\xff", owned_partitions=[OWNED], generation_id=12, rack_id="b"
)
ASSIGNMENT = ConsumerProtocolAssignment(assigned_partitions=[OWNED], user_data=b"\0\xff")
VERSIONS = pytest.mark.parametrize("version", range(4))


def _kios(name: str, version: int) -> Any:
    return importlib.import_module(f"kio.schema.{name}.v{version}.data")


def _written_by_kio(entity: Any) -> bytes:
    with io.BytesIO() as out:
        entity_writer(type(entity))(out, entity)
        return out.getvalue()


@VERSIONS
def test_a_subscription_is_kafkas(version: int) -> None:
    schema = _kios("consumer_protocol_subscription", version)
    values: dict[str, Any] = {"topics": ("orders", "payments"), "user_data": b"\0\xff"}
    if version >= 1:
        values["owned_partitions"] = (schema.TopicPartition(topic="orders", partitions=(0, 7)),)
    if version >= 2:
        values["generation_id"] = 12
    if version >= 3:
        values["rack_id"] = "b"
    body = encode(SUBSCRIPTION, version)
    theirs = schema.ConsumerProtocolSubscription(**values)
    assert body == _written_by_kio(theirs)
    assert entity_reader(schema.ConsumerProtocolSubscription)(body, 0) == (theirs, len(body))
    again = decode(ConsumerProtocolSubscription, body, version)
    assert (again.topics, again.user_data) == (SUBSCRIPTION.topics, SUBSCRIPTION.user_data)
    assert again.owned_partitions == ([OWNED] if version >= 1 else [])
    assert again.generation_id == (12 if version >= 2 else -1)
    assert again.rack_id == ("b" if version >= 3 else None)


@VERSIONS
def test_an_assignment_is_kafkas(version: int) -> None:
    schema = _kios("consumer_protocol_assignment", version)
    listed = (schema.TopicPartition(topic="orders", partitions=(0, 7)),)
    theirs = schema.ConsumerProtocolAssignment(assigned_partitions=listed, user_data=b"\0\xff")
    body = encode(ASSIGNMENT, version)
    assert body == _written_by_kio(theirs)
    assert decode(ConsumerProtocolAssignment, body, version) == ASSIGNMENT


@VERSIONS
def test_user_data_may_be_null(version: int) -> None:
    for message in (
        ConsumerProtocolSubscription(topics=[], user_data=None),
        ConsumerProtocolAssignment(assigned_partitions=[], user_data=None),
    ):
        assert decode(type(message), encode(message, version), version) == message


def test_aiokafka_reads_and_writes_the_same_bytes() -> None:
    members = aiokafka.coordinator.protocol.ConsumerProtocolMemberMetadata
    subscription = ConsumerProtocolSubscription(topics=["orders", "payments"], user_data=b"")
    assert encode_stored(subscription, 0) == members(0, ["orders", "payments"], b"").encode()
    assignments = aiokafka.coordinator.protocol.ConsumerProtocolMemberAssignment
    data = encode_stored(ConsumerProtocolAssignment(assigned_partitions=[OWNED], user_data=b""), 0)
    assert data == assignments(0, [("orders", [0, 7])], b"").encode()
    assert assignments.decode(data).assignment == [("orders", [0, 7])]


@VERSIONS
def test_kafka_python_reads_the_same_bytes(version: int) -> None:
    subscription = kafka.protocol.consumer.ConsumerProtocolSubscription.decode(encode_stored(SUBSCRIPTION, version))
    assert (subscription.topics, bytes(subscription.user_data)) == (["orders", "payments"], b"\0\xff")
    assignment = kafka.protocol.consumer.ConsumerProtocolAssignment.decode(encode_stored(ASSIGNMENT, version))
    assert [(part.topic, part.partitions) for part in assignment.assigned_partitions] == [("orders", [0, 7])]


def test_what_is_no_subscription_is_refused() -> None:
    for data in (b"", b"\0", b"\0\1\0\0", b"\0\x09" + bytes(20), b"\0\0\x7f\xff\xff\xff", b"\xff\xff" + bytes(20)):
        with pytest.raises(ProtocolError):
            decode_stored(ConsumerProtocolSubscription, data)


@VERSIONS
def test_the_topics_of_a_subscription_are_found_in_every_version(version: int) -> None:
    whole = encode_stored(SUBSCRIPTION, version)
    assert subscribed_topics(whole) == ["orders", "payments"]
    assert subscribed_topics(memoryview(whole)) == ["orders", "payments"]
    assert subscribed_topics(encode_stored(ConsumerProtocolSubscription(topics=[]), version)) == []


@pytest.mark.parametrize(
    "metadata",
    [b"", b"me", b"\0\0", b"\0\0\xff\xff\xff\xff\0\0\0\0", b"\0\0\0\0\0\1\0\1\xff\xff\xff\xff\xff"]
    + [encode_stored(SUBSCRIPTION, 0)[:cut] for cut in range(2, 30, 3)],
)
def test_what_is_no_subscription_has_no_topics(metadata: bytes) -> None:
    assert subscribed_topics(metadata) is None
