"""The coordinator's journal: one record per change, in `__transaction_state`, in Apache Kafka's formats (facts §10.3).

The value is version 0 at transaction.version 0 and version 1 from there on.  What Apache Kafka has no field for goes
into tagged fields that it skips.  A version 0 value has no room for tagged fields, not even for Apache Kafka's own;
there the same value in version 1, without its partitions, travels in a record header.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import lru_cache
from typing import Final, NamedTuple

from fencepost.coordinator.loading import JournalUnreadable
from fencepost.coordinator.transaction.state import STORED, State
from fencepost.coordinator.transaction.transaction import NO_PARTITIONS, TransactionMetadata
from fencepost.log.damage import FileDamaged
from fencepost.protocol import codec, records
from fencepost.protocol.batch import HEADER_SIZE, BatchHeader, crc_matches
from fencepost.protocol.errors import ErrorCode, ProtocolError
from fencepost.protocol.record_keys import UnreadRecord, keys_of
from fencepost.protocol.stored import TransactionLogKey, TransactionLogValue, TransactionPartitions
from fencepost.protocol.types import (
    FIRST_OFFSET,
    TRANSACTION_STATE,
    Buffer,
    Epoch,
    Milliseconds,
    Offset,
    ProducerId,
    ProducerIdAndEpoch,
    TopicPartition,
)

#: Header of a version 0 record: the version 1 encoding of what version 0 has no room for.
HEADER: Final = "fencepost"
#: Tombstones are written in batches of at most so many bytes (KAFKA-13099).
LARGEST_TOMBSTONE_BATCH: Final = 16_384


class Entry(NamedTuple):
    """One record of the journal; `transaction` is None for a tombstone."""

    offset: Offset
    transactional_id: str
    transaction: TransactionMetadata | None


#: Log error -> what the client is told (facts §1.6).  Others as they are.
APPEND_ERRORS: dict[ErrorCode, ErrorCode] = {
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION: ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.NOT_ENOUGH_REPLICAS: ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND: ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.REQUEST_TIMED_OUT: ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.NOT_LEADER_OR_FOLLOWER: ErrorCode.NOT_COORDINATOR,
    ErrorCode.KAFKA_STORAGE_ERROR: ErrorCode.NOT_COORDINATOR,
    ErrorCode.MESSAGE_TOO_LARGE: ErrorCode.UNKNOWN_SERVER_ERROR,
    ErrorCode.RECORD_LIST_TOO_LARGE: ErrorCode.UNKNOWN_SERVER_ERROR,
}


def encode(transaction: TransactionMetadata, level: int) -> bytes:
    """The batch that stores this state.  `level`: the cluster's transaction.version."""
    key = encode_key(transaction.transactional_id)
    timestamp = transaction.last_update_timestamp
    if level >= 1:
        value, headers = codec.encode_stored(_value(transaction), 1), ()
        return records.seal(records.encode_record(0, 0, key, value, headers), 1, timestamp, timestamp)
    extension = codec.encode_stored(_value(transaction._replace(partitions=NO_PARTITIONS)), 1)
    value = codec.encode_stored(_value(transaction), 0)
    return records.encode_batch([(timestamp, key, value, ((HEADER, extension),))])


def tombstones(transactional_ids: Sequence[str], now: Milliseconds) -> bytes:
    """The batch that makes the journal forget these ids."""
    return records.encode_batch(
        [(now, encode_key(transactional_id), None, ()) for transactional_id in transactional_ids]
    )


def in_batches(transactional_ids: Sequence[str]) -> Iterator[Sequence[str]]:
    """The ids in portions whose tombstones fit in one batch each."""
    portion: list[str] = []
    size = 0
    for transactional_id in transactional_ids:
        # A record has at most 21 bytes beside its key.
        needed = len(encode_key(transactional_id)) + 21
        if portion and HEADER_SIZE + size + needed > LARGEST_TOMBSTONE_BATCH:
            yield portion
            portion, size = [], 0
        portion.append(transactional_id)
        size += needed
    if portion:
        yield portion


@lru_cache(maxsize=4096)
def encode_key(transactional_id: str) -> bytes:
    """The key of every record about this id."""
    return codec.encode_stored(TransactionLogKey(transactional_id=transactional_id), 0)


def read(partition: int, batches: Iterator[tuple[BatchHeader, Buffer]]) -> Iterator[list[UnreadRecord]]:
    """The records of a journal partition, a batch at a time.  Raises JournalUnreadable rather than leave one out.

    Only of the last one with a key counts what it says: see `decode`.
    """
    following = FIRST_OFFSET
    while True:
        try:
            found = next(batches, None)
        except FileDamaged as damaged:
            raise JournalUnreadable(TRANSACTION_STATE, partition, following, str(damaged)) from damaged
        if found is None:
            return
        header, batch = found
        following = Offset(header.last_offset + 1)
        try:
            if header.is_control:
                continue
            if not crc_matches(batch, 0, header):
                raise ProtocolError("its CRC does not match")
            keyed = keys_of(batch, header)
            for record in keyed:
                if record.key is None:
                    raise ProtocolError("a record without a key")
        except ProtocolError as error:
            raise JournalUnreadable(TRANSACTION_STATE, partition, header.base_offset, str(error)) from error
        yield keyed


def decode(partition: int, record: UnreadRecord) -> Entry | None:
    """The entry that a record holds; None if its key is of an unknown version, and so no transactional id's.

    Raises JournalUnreadable.
    """
    try:
        return _decode(record.read())
    except ProtocolError as error:
        raise JournalUnreadable(TRANSACTION_STATE, partition, record.offset, str(error)) from error


def _value(transaction: TransactionMetadata) -> TransactionLogValue:
    partitions: list[TransactionPartitions] | None = None
    if transaction.state is not State.EMPTY:
        by_topic: dict[str, list[int]] = {}
        for topic, index in transaction.partitions:
            by_topic.setdefault(topic, []).append(index)
        partitions = [TransactionPartitions(topic=topic, partition_ids=indexes) for topic, indexes in by_topic.items()]
    return TransactionLogValue(
        producer_id=transaction.producer_id,
        producer_epoch=transaction.producer_epoch,
        transaction_timeout_ms=transaction.timeout_ms,
        transaction_status=transaction.state,
        transaction_partitions=partitions,
        transaction_last_update_timestamp_ms=transaction.last_update_timestamp,
        transaction_start_timestamp_ms=transaction.start_timestamp,
        previous_producer_id=transaction.previous_producer_id,
        next_producer_id=transaction.next_producer_id,
        client_transaction_version=transaction.client_transaction_version,
        next_producer_epoch=transaction.next_producer_epoch,
        instance_epoch=transaction.instance_epoch,
        claimed_producer_id=transaction.claimed.producer_id,
        claimed_producer_epoch=transaction.claimed.producer_epoch,
        timed_out_producer_id=transaction.timed_out.producer_id,
        timed_out_producer_epoch=transaction.timed_out.producer_epoch,
    )


def _decode(record: records.Record) -> Entry | None:
    if record.key is None:
        raise ProtocolError("a record without a key")
    if codec.stored_version(record.key) != 0:
        return None
    transactional_id = codec.decode_stored(TransactionLogKey, record.key).transactional_id
    if record.value is None:
        return Entry(record.offset, transactional_id, None)
    value = more = codec.decode_stored(TransactionLogValue, record.value)
    for name, content in record.headers:
        if name == HEADER and content is not None:
            more = codec.decode_stored(TransactionLogValue, content)
    return Entry(record.offset, transactional_id, _transaction(transactional_id, value, more))


def _transaction(transactional_id: str, value: TransactionLogValue, more: TransactionLogValue) -> TransactionMetadata:
    """The transaction that a value stores.  `more`: where the tagged fields are.  Raises ProtocolError."""
    if value.transaction_status not in STORED:
        raise ProtocolError(f"status {value.transaction_status} is no state that is ever stored")
    instance_epoch = more.instance_epoch
    if instance_epoch < 0:
        # Written by a coordinator that does not know of it: only the current epoch is known to be this instance's.
        instance_epoch = value.producer_epoch
    return TransactionMetadata(
        transactional_id=transactional_id,
        producer_id=ProducerId(value.producer_id),
        producer_epoch=Epoch(value.producer_epoch),
        previous_producer_id=ProducerId(more.previous_producer_id),
        next_producer_id=ProducerId(more.next_producer_id),
        next_producer_epoch=Epoch(more.next_producer_epoch),
        timeout_ms=Milliseconds(value.transaction_timeout_ms),
        state=State(value.transaction_status),
        partitions={
            TopicPartition(schema.topic, index): None
            for schema in value.transaction_partitions or ()
            for index in schema.partition_ids
        },
        start_timestamp=Milliseconds(value.transaction_start_timestamp_ms),
        last_update_timestamp=Milliseconds(value.transaction_last_update_timestamp_ms),
        client_transaction_version=more.client_transaction_version,
        instance_epoch=Epoch(instance_epoch),
        claimed=ProducerIdAndEpoch(ProducerId(more.claimed_producer_id), Epoch(more.claimed_producer_epoch)),
        timed_out=ProducerIdAndEpoch(ProducerId(more.timed_out_producer_id), Epoch(more.timed_out_producer_epoch)),
    )
