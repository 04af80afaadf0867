"""The journal of groups: records of `__consumer_offsets`, in Apache Kafka's formats (facts §7.5, §10.4)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from fencepost.coordinator.group.offsets import CommittedOffset
from fencepost.protocol import records
from fencepost.protocol.codec import encode_stored
from fencepost.protocol.errors import ErrorCode
from fencepost.protocol.stored import GroupMetadataKey, GroupMetadataValue, OffsetCommitKey, OffsetCommitValue
from fencepost.protocol.types import NO_PRODUCER, Milliseconds, ProducerIdAndEpoch, TopicPartition

OFFSET_KEY_VERSION: Final = 1
#: Those of an offset; no difference is made between them.
OFFSET_KEY_VERSIONS: Final = (0, OFFSET_KEY_VERSION)
GROUP_KEY_VERSION: Final = 2

Entry = tuple[int, bytes | None, bytes | None, tuple[tuple[str, bytes | None], ...]]
"""A record as the batch encoder takes it: timestamp, key, value, headers."""

#: Log error -> what the client is told (facts §7.3).  Others as they are.
APPEND_ERRORS: Final[dict[ErrorCode, ErrorCode]] = {
    ErrorCode.NETWORK_EXCEPTION: ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION: ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.NOT_ENOUGH_REPLICAS: ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.REQUEST_TIMED_OUT: ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.NOT_LEADER_OR_FOLLOWER: ErrorCode.NOT_COORDINATOR,
    ErrorCode.KAFKA_STORAGE_ERROR: ErrorCode.NOT_COORDINATOR,
    ErrorCode.MESSAGE_TOO_LARGE: ErrorCode.UNKNOWN_SERVER_ERROR,
    ErrorCode.RECORD_LIST_TOO_LARGE: ErrorCode.UNKNOWN_SERVER_ERROR,
    ErrorCode.INVALID_FETCH_SIZE: ErrorCode.UNKNOWN_SERVER_ERROR,
}


def offset_commit_entry(group: str, at: TopicPartition, committed: CommittedOffset, now: Milliseconds) -> Entry:
    """The record that commits an offset, at this time."""
    value = OffsetCommitValue(
        offset=committed.offset,
        leader_epoch=committed.leader_epoch,
        metadata=committed.metadata,
        commit_timestamp=committed.commit_timestamp,
        expire_timestamp=committed.expire_timestamp,
    )
    return now, offset_commit_key(group, at), encode_stored(value, 1 if committed.expire_timestamp >= 0 else 3), ()


def offset_commit_key(group: str, at: TopicPartition) -> bytes:
    """The key of the record of a committed offset."""
    key = OffsetCommitKey(group=group, topic=at.topic, partition=at.partition)
    return encode_stored(key, OFFSET_KEY_VERSION)


def offset_commit_tombstone(group: str, at: TopicPartition, now: Milliseconds) -> Entry:
    """The record that removes a committed offset."""
    return now, offset_commit_key(group, at), None, ()


def group_entry(group: str, value: GroupMetadataValue | None, now: Milliseconds) -> Entry:
    """The record that stores a generation of a group, or (None) removes the group."""
    key = encode_stored(GroupMetadataKey(group=group), GROUP_KEY_VERSION)
    return now, key, None if value is None else encode_stored(value, 3), ()


def batch(entries: Sequence[Entry], producer: ProducerIdAndEpoch = NO_PRODUCER) -> bytes:
    """A batch of these records; with a producer it is part of that one's transaction."""
    producer_id, producer_epoch = producer
    if producer_id < 0:
        return records.encode_batch(entries)
    return records.encode_batch(
        entries, producer_id=producer_id, producer_epoch=producer_epoch, base_sequence=0, transactional=True
    )
