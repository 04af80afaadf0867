"""Subscriptions and assignments of a classic group, in the bytes of Apache Kafka's ConsumerProtocol; pure functions.

Whoever leads may be a client of another kind, and so may everybody else.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from struct import Struct
from typing import Final, TypeVar

from fencepost.client.assignors import COOPERATIVE_STICKY, STICKY, Member
from fencepost.protocol.codec import decode, decode_request, encode, encode_stored, stored_version
from fencepost.protocol.consumer_protocol import (
    ConsumerProtocolAssignment,
    ConsumerProtocolSubscription,
    ConsumerTopicPartitions,
    StickyAssignorUserData,
)
from fencepost.protocol.errors import ProtocolError
from fencepost.protocol.types import TopicPartition

#: The newest version of a subscription, and of an assignment, that Apache Kafka 4 writes.
_NEWEST: Final = 3
_VERSION_SIZE: Final = 2
_WITH_GENERATION: Final = 1
_GENERATION: Final = Struct(">i")

T = TypeVar("T")


def subscription(strategy: str, topics: Iterable[str], owned: Sequence[TopicPartition], generation: int) -> bytes:
    """A member's metadata in JoinGroup, for one assignor.

    `owned`: what it has (cooperative-sticky) or had until now (sticky), since this generation.
    """
    user_data = None
    if strategy == STICKY and owned:
        had = StickyAssignorUserData(previous_assignment=_by_topic(owned), generation=generation)
        user_data = encode(had, _WITH_GENERATION)
    elif strategy == COOPERATIVE_STICKY:
        user_data = _GENERATION.pack(generation)
    said = ConsumerProtocolSubscription(
        topics=sorted(topics),
        user_data=user_data,
        owned_partitions=_by_topic(owned) if strategy == COOPERATIVE_STICKY else [],
        generation_id=generation,
    )
    return encode_stored(said, _NEWEST)


def member_of(strategy: str, metadata: bytes, instance_id: str | None) -> Member:
    """The subscription of a member to this assignor, read.  Raises ProtocolError for other bytes."""
    said = _read(ConsumerProtocolSubscription, metadata)
    owned, generation = _partitions(said.owned_partitions), said.generation_id
    user_data = bytes(said.user_data or b"")
    if strategy == STICKY:
        owned, generation = _had(user_data)
    elif strategy == COOPERATIVE_STICKY and generation < 0 and len(user_data) == _GENERATION.size:
        (generation,) = _GENERATION.unpack(user_data)
    return Member(said.topics, instance_id, owned, generation)


def _had(user_data: bytes) -> tuple[list[TopicPartition], int]:
    for version in (_WITH_GENERATION, 0) if user_data else ():
        try:
            had = decode(StickyAssignorUserData, user_data, version)
        except ProtocolError:
            continue
        return _partitions(had.previous_assignment), had.generation
    return [], -1


def assignment(partitions: Sequence[TopicPartition]) -> bytes:
    """A member's assignment in SyncGroup."""
    return encode_stored(ConsumerProtocolAssignment(assigned_partitions=_by_topic(partitions), user_data=None), _NEWEST)


def partitions_of(assigned: bytes) -> list[TopicPartition]:
    """The partitions in a member's assignment, none in an empty one.  Raises ProtocolError for other bytes."""
    return _partitions(_read(ConsumerProtocolAssignment, assigned).assigned_partitions) if assigned else []


def _read(form: type[T], data: bytes) -> T:
    """The message in these bytes; a newer version is read as the newest one here, as it only adds bytes behind it."""
    return decode_request(form, data, min(stored_version(data), _NEWEST), _VERSION_SIZE)


def _by_topic(partitions: Iterable[TopicPartition]) -> list[ConsumerTopicPartitions]:
    by_topic: dict[str, list[int]] = {}
    for at in partitions:
        by_topic.setdefault(at.topic, []).append(at.partition)
    return [ConsumerTopicPartitions(topic=name, partitions=found) for name, found in by_topic.items()]


def _partitions(found: Iterable[ConsumerTopicPartitions]) -> list[TopicPartition]:
    return [TopicPartition(topic.topic, number) for topic in found for number in topic.partitions]
