"""Keys and values of the internal topics are laid out as in Apache Kafka; what is ours hides where it skips."""

from __future__ import annotations

from struct import pack
from typing import Any
from uuid import UUID

import pytest

from fencepost.protocol.codec import decode_stored, encode_stored, stored_version
from fencepost.protocol.errors import ProtocolError
from fencepost.protocol.stored import (
    GroupMember,
    GroupMetadataKey,
    GroupMetadataValue,
    OffsetCommitKey,
    OffsetCommitValue,
    TransactionLogKey,
    TransactionLogValue,
    TransactionPartitions,
)


def text(value: str) -> bytes:
    return pack(">h", len(value.encode())) + value.encode()


def compact(value: bytes) -> bytes:
    """For fewer than 127 bytes."""
    return bytes([len(value) + 1]) + value


def transaction(**changes: Any) -> TransactionLogValue:
    values: dict[str, Any] = {
        "producer_id": 7,
        "producer_epoch": 3,
        "transaction_timeout_ms": 60_000,
        "transaction_status": 1,
        "transaction_partitions": [TransactionPartitions(topic="orders", partition_ids=[0, 5])],
        "transaction_last_update_timestamp_ms": 1_700_000_000_123,
        "transaction_start_timestamp_ms": 1_700_000_000_000,
    }
    return TransactionLogValue(**values | changes)


FRONT = pack(">qhib", 7, 3, 60_000, 1)
TIMES = pack(">qq", 1_700_000_000_123, 1_700_000_000_000)
LISTED_V0 = pack(">i", 1) + text("orders") + pack(">iii", 2, 0, 5)
LISTED_V1 = b"\x02" + compact(b"orders") + b"\x03" + pack(">ii", 0, 5) + b"\0"


def test_keys_begin_with_their_kind() -> None:
    assert encode_stored(TransactionLogKey(transactional_id="t-ß"), 0) == b"\0\0" + text("t-ß")
    key = OffsetCommitKey(group="g", topic="orders", partition=5)
    assert encode_stored(key, 1) == b"\0\1" + text("g") + text("orders") + pack(">i", 5)
    assert encode_stored(GroupMetadataKey(group="g"), 2) == b"\0\2" + text("g")


def test_a_transaction_of_version_0_is_kafkas() -> None:
    assert encode_stored(transaction(), 0) == b"\0\0" + FRONT + LISTED_V0 + TIMES
    emptied = transaction(transaction_partitions=None)
    assert encode_stored(emptied, 0) == b"\0\0" + FRONT + b"\xff\xff\xff\xff" + TIMES


def test_a_transaction_of_version_1_is_kafkas() -> None:
    assert encode_stored(transaction(), 1) == b"\0\1" + FRONT + LISTED_V1 + TIMES + b"\0"
    ended = transaction(previous_producer_id=6, next_producer_id=8, client_transaction_version=2, next_producer_epoch=0)
    tags = b"\x04" + b"\0\x08" + pack(">q", 6) + b"\1\x08" + pack(">q", 8) + b"\2\2\0\2" + b"\3\2\0\0"
    assert encode_stored(ended, 1) == b"\0\1" + FRONT + LISTED_V1 + TIMES + tags
    assert decode_stored(TransactionLogValue, encode_stored(ended, 1)) == ended


@pytest.mark.parametrize("version", [0, 1])
def test_what_a_transaction_does_not_say_is_as_kafka_takes_it(version: int) -> None:
    value = decode_stored(TransactionLogValue, encode_stored(transaction(), version))
    assert (value.previous_producer_id, value.next_producer_id, value.next_producer_epoch) == (-1, -1, -1)
    assert value.client_transaction_version == 0
    assert (value.instance_epoch, value.claimed_producer_id, value.timed_out_producer_id) == (-1, -1, -1)


def test_what_only_we_keep_has_tags_from_10000_on() -> None:
    ours = transaction(instance_epoch=2, timed_out_producer_id=7, timed_out_producer_epoch=3)
    tags = b"\x03" + b"\x90\x4e\x02\0\2" + b"\x93\x4e\x08" + pack(">q", 7) + b"\x94\x4e\x02\0\3"
    assert encode_stored(ours, 1) == b"\0\1" + FRONT + LISTED_V1 + TIMES + tags
    assert decode_stored(TransactionLogValue, encode_stored(ours, 1)) == ours
    assert encode_stored(ours, 0) == encode_stored(transaction(), 0)


def test_a_transaction_that_a_later_broker_wrote_is_read() -> None:
    """Fields that are tagged do not raise the version (KIP-890 part 2)."""
    later = b"\0\1" + FRONT + LISTED_V1 + TIMES + b"\x02" + b"\2\2\0\2" + b"\x09\x03abc"
    assert decode_stored(TransactionLogValue, later) == transaction(client_transaction_version=2)


@pytest.mark.parametrize(
    ("version", "body"),
    [
        (0, pack(">q", 42) + text("note") + pack(">q", 1_000)),
        (1, pack(">q", 42) + text("note") + pack(">qq", 1_000, 2_000)),
        (2, pack(">q", 42) + text("note") + pack(">q", 1_000)),
        (3, pack(">qi", 42, 6) + text("note") + pack(">q", 1_000)),
        (4, pack(">qi", 42, 6) + compact(b"note") + pack(">q", 1_000) + b"\x01\0\x10" + bytes(range(16))),
    ],
)
def test_a_position_is_kafkas(version: int, body: bytes) -> None:
    value = OffsetCommitValue(
        offset=42,
        leader_epoch=6,
        metadata="note",
        commit_timestamp=1_000,
        expire_timestamp=2_000,
        topic_id=UUID(bytes=bytes(range(16))),
    )
    assert encode_stored(value, version) == pack(">h", version) + body
    again = decode_stored(OffsetCommitValue, pack(">h", version) + body)
    assert (again.offset, again.metadata, again.commit_timestamp) == (42, "note", 1_000)
    assert again.leader_epoch == (6 if version >= 3 else -1)
    assert again.expire_timestamp == (2_000 if version == 1 else -1)
    assert again.topic_id == (value.topic_id if version == 4 else UUID(int=0))


def _group(version: int) -> bytes:
    """A generation with one member, field by field."""
    body = text("consumer") + pack(">i", 9) + text("range") + text("m-1")
    body += pack(">q", 1_000) if version >= 2 else b""
    body += pack(">i", 1) + text("m-1")
    body += text("static-1") if version >= 3 else b""
    body += text("client") + text("/127.0.0.1")
    body += pack(">i", 300_000) if version >= 1 else b""
    return body + pack(">i", 45_000) + pack(">i", 3) + b"sub" + pack(">i", 0)


@pytest.mark.parametrize("version", range(4))
def test_a_group_is_kafkas(version: int) -> None:
    member = GroupMember(
        member_id="m-1",
        group_instance_id="static-1",
        client_id="client",
        client_host="/127.0.0.1",
        rebalance_timeout=300_000,
        session_timeout=45_000,
        subscription=b"sub",
        assignment=b"",
    )
    group = GroupMetadataValue(
        protocol_type="consumer",
        generation=9,
        protocol="range",
        leader="m-1",
        current_state_timestamp=1_000,
        members=[member],
    )
    assert encode_stored(group, version) == pack(">h", version) + _group(version)
    again = decode_stored(GroupMetadataValue, encode_stored(group, version))
    assert encode_stored(again, version) == pack(">h", version) + _group(version)


def test_an_empty_group_of_version_4() -> None:
    group = GroupMetadataValue(protocol_type="consumer", generation=0, current_state_timestamp=5, members=[])
    body = b"\0\4" + compact(b"consumer") + pack(">i", 0) + b"\0\0" + pack(">q", 5) + b"\1\0"
    assert encode_stored(group, 4) == body
    assert decode_stored(GroupMetadataValue, body) == group


def test_the_version_stands_in_front() -> None:
    assert stored_version(b"\0\3rest") == 3
    for data in (b"", b"\0"):
        with pytest.raises(ProtocolError, match="too short"):
            stored_version(data)


@pytest.mark.parametrize("version", [-1, 2, 5, 32767])
def test_a_version_of_the_future_is_refused(version: int) -> None:
    with pytest.raises(ProtocolError, match="versions 0 to 1"):
        decode_stored(TransactionLogValue, pack(">h", version) + FRONT + LISTED_V1 + TIMES + b"\0")


def test_a_torn_value_is_refused() -> None:
    for version in (0, 1):
        whole = encode_stored(transaction(instance_epoch=2), version)
        for end in range(len(whole)):
            with pytest.raises(ProtocolError):
                decode_stored(TransactionLogValue, whole[:end])
