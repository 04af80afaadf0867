"""The header of a record batch, format 2 (facts §10.1): all that the broker ever reads of one.

Big-endian.  The CRC covers everything from the attributes on, so a leader can stamp base offset and leader epoch into
a batch without touching it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from struct import Struct
from struct import error as StructError
from typing import Any, Final, NamedTuple

from crc32c import crc32c

from fencepost.protocol.compression import LARGEST_BATCH, Compression, decompress
from fencepost.protocol.errors import ProtocolError
from fencepost.protocol.types import (
    NO_EPOCH,
    NO_PRODUCER_ID,
    Buffer,
    Epoch,
    LeaderEpoch,
    Milliseconds,
    Offset,
    ProducerId,
)

HEADER_SIZE = 61
SMALLEST_RECORD: Final = 7
"""Bytes: its length, attributes, time, offset, key and value lengths and number of headers, one byte each."""
MAGIC = 2
TRANSACTIONAL = 0x10
CONTROL = 0x20
LOG_APPEND_TIME = 0x08
DELETE_HORIZON = 0x40
"""The base timestamp is the time from which on compaction may drop the tombstones of the batch."""
NO_SEQUENCE = -1
MAX_INT32 = 2**31 - 1
CRC_START = 21
_BEFORE_LENGTH: Final = 12
"""Bytes of a batch that its length does not count: the base offset and the length itself."""
_LEAST_LENGTH: Final = HEADER_SIZE - _BEFORE_LENGTH

_HEADER = Struct(">qiibIhiqqqhii")
AFTER_CRC = Struct(">hiqqqhii")
_STAMP = Struct(">q")
_EPOCH = Struct(">i")


class BatchHeader(NamedTuple):
    """The header of a batch: its first 61 bytes.  Times in milliseconds."""

    base_offset: Offset
    batch_length: int
    partition_leader_epoch: LeaderEpoch
    magic: int
    crc: int
    attributes: int
    last_offset_delta: int
    base_timestamp: Milliseconds
    max_timestamp: Milliseconds
    producer_id: ProducerId
    producer_epoch: Epoch
    base_sequence: int
    record_count: int

    @property
    def size(self) -> int:
        """Bytes of the whole batch."""
        return self.batch_length + _BEFORE_LENGTH

    @property
    def last_offset(self) -> Offset:
        return Offset(self.base_offset + self.last_offset_delta)

    @property
    def last_sequence(self) -> int:
        """Sequence of the last record, -1 if the batch has none."""
        if self.base_sequence == NO_SEQUENCE:
            return NO_SEQUENCE
        return next_sequence(self.base_sequence, self.last_offset_delta)

    @property
    def is_transactional(self) -> bool:
        return bool(self.attributes & TRANSACTIONAL)

    @property
    def is_control(self) -> bool:
        return bool(self.attributes & CONTROL)

    @property
    def has_producer_id(self) -> bool:
        return self.producer_id >= 0

    @property
    def names_a_producer(self) -> bool:
        """Whether it has a producer id and an epoch, neither of them -1."""
        return self.producer_id != NO_PRODUCER_ID and self.producer_epoch != NO_EPOCH

    @property
    def compression(self) -> Compression:
        """The codec of the records.  Raises ProtocolError for one that nobody knows."""
        try:
            return Compression(self.attributes & 7)
        except ValueError:
            raise ProtocolError(f"unknown compression {self.attributes & 7}") from None

    @property
    def is_log_append_time(self) -> bool:
        return bool(self.attributes & LOG_APPEND_TIME)


_header: Final[Callable[[tuple[Any, ...]], BatchHeader]] = partial(tuple.__new__, BatchHeader)
"""Of the fields as they were unpacked: these are as many, so nothing need look at them (as `_make` does)."""


def next_sequence(sequence: int, count: int) -> int:
    """The sequence `count` records on; after 2147483647 comes 0 (facts §6.2)."""
    following = sequence + count
    return following if following <= MAX_INT32 else following - MAX_INT32 - 1


def read_header(buffer: Buffer, at: int = 0) -> BatchHeader:
    """The header of the batch at position `at`.  Raises ProtocolError if there is no whole header of format 2."""
    try:
        header = _header(_HEADER.unpack_from(buffer, at))
    except StructError:
        raise ProtocolError("a record batch is cut off inside its header") from None
    if header.magic != MAGIC:
        raise ProtocolError(f"record batches of format {header.magic} are not supported, only format {MAGIC}")
    if header.batch_length < _LEAST_LENGTH:
        raise ProtocolError(f"a record batch of {header.batch_length} bytes is shorter than its own header")
    return header


def read_part_of_header(buffer: Buffer, end: int) -> BatchHeader:
    """The header of a batch of format 2 that claims to end at `end`, with 0 in fields that are behind that."""
    return _header(_HEADER.unpack(bytes(buffer[: min(end, HEADER_SIZE)]).ljust(HEADER_SIZE, b"\0")))


def headers(buffer: Buffer, at: int = 0) -> Iterator[tuple[int, BatchHeader]]:
    """Position and header of each whole batch from `at` on; a partial last batch is left out."""
    end = len(buffer)
    while at + HEADER_SIZE <= end:
        header = read_header(buffer, at)
        following = at + header.batch_length + _BEFORE_LENGTH
        if following > end:
            return
        yield at, header
        at = following


def with_records(header: BatchHeader, records: Buffer) -> bytes:
    """A batch of this header and these encoded records, with length and CRC made anew."""
    covered = AFTER_CRC.pack(*header[5:])
    length = HEADER_SIZE - 12 + len(records)
    front = header._replace(batch_length=length, crc=crc32c(records, crc32c(covered)))
    return b"".join((_HEADER.pack(*front), records))


def crc_matches(buffer: Buffer, at: int, header: BatchHeader) -> bool:
    """Whether the CRC-32C in the header is that of the batch's bytes at `at`."""
    end = at + header.batch_length + _BEFORE_LENGTH
    return bool(crc32c(memoryview(buffer)[at + CRC_START : end]) == header.crc)


def stamp(buffer: bytearray | memoryview, at: int, base_offset: Offset, leader_epoch: LeaderEpoch) -> None:
    """Write what the leader decides: the base offset and its own epoch.  Neither is under the CRC."""
    _STAMP.pack_into(buffer, at, base_offset)
    _EPOCH.pack_into(buffer, at + 12, leader_epoch)


def set_max_timestamp(
    buffer: bytearray | memoryview, at: int, header: BatchHeader, timestamp: Milliseconds
) -> BatchHeader:
    """Make a batch one of log-append time (message.timestamp.type), with its CRC anew."""
    return _rewrite(
        buffer, at, header._replace(attributes=header.attributes | LOG_APPEND_TIME, max_timestamp=timestamp)
    )


def with_max_timestamp(batch: Buffer, header: BatchHeader, timestamp: Milliseconds) -> tuple[bytearray, BatchHeader]:
    """A copy of a batch whose header names another largest timestamp, with its CRC anew."""
    data = bytearray(batch)
    return data, _rewrite(data, 0, header._replace(max_timestamp=timestamp))


def clear_log_append_time(buffer: bytearray | memoryview, at: int, header: BatchHeader) -> BatchHeader:
    """Make a batch one whose records have the times that their producer gave them, with its CRC anew."""
    return _rewrite(buffer, at, header._replace(attributes=header.attributes & ~LOG_APPEND_TIME))


def _rewrite(buffer: bytearray | memoryview, at: int, header: BatchHeader) -> BatchHeader:
    AFTER_CRC.pack_into(buffer, at + CRC_START, *header[5:])
    header = header._replace(crc=crc32c(memoryview(buffer)[at + CRC_START : at + header.size]))
    _HEADER.pack_into(buffer, at, *header)
    return header


def body_of(buffer: Buffer, at: int, header: BatchHeader, limit: int = LARGEST_BATCH) -> bytes:
    """The records of the batch that starts there, unfolded.  Raises ProtocolError as `records.decode_batch` does."""
    end = at + header.size
    if end > len(buffer):
        raise ProtocolError("a record batch is cut off")
    body = bytes(memoryview(buffer)[at + HEADER_SIZE : end])
    return decompress(header.compression, body, limit) if header.attributes & 7 else body
