"""What a client's batch must be, whoever sends it (facts §6.3 c, j).

The header and the checksum are enough, but for what only the records say: in a compacted topic every record needs a
key, and a record's time may be too far from the broker's, or not the producer's to say.  Records are decoded only where
one of them is due.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from fencepost.log.outcome import Refused
from fencepost.log.settings import LONG, LogSettings
from fencepost.protocol.batch import HEADER_SIZE, LOG_APPEND_TIME, BatchHeader, crc_matches
from fencepost.protocol.compression import Compression
from fencepost.protocol.errors import ErrorCode, ProtocolError
from fencepost.protocol.records import decode_batch
from fencepost.protocol.types import Buffer

NO_TIMESTAMP = -1
_CODECS = frozenset(Compression)

_SMALLEST_RECORD: Final = 7
"""Bytes: its length, attributes, time, offset, key and value lengths and number of headers, one byte each."""

#: How many bytes one byte of the codec can become, at most: by its format, whatever an encoder does.
_LARGEST_RATIO: Final[Mapping[int, int]] = {
    Compression.NONE: 1,
    Compression.GZIP: 1032,  # deflate: 258 bytes for two bits
    Compression.SNAPPY: 22,  # a copy: 64 bytes for three
    Compression.LZ4: 255,  # a match grows by 255 with each byte of its length
    Compression.ZSTD: 32 * 1024,  # a block of 128 KiB has at least its header of three bytes and one more
}


def check_batch(batch: Buffer, header: BatchHeader, settings: LogSettings, now: int) -> Refused | None:
    """Why a client's batch is not taken, before anything is known of its producer."""
    if header.size != len(batch):
        return Refused(ErrorCode.INVALID_RECORD, "a partition takes exactly one record batch per request")
    if header.base_offset != 0:
        return Refused(ErrorCode.INVALID_RECORD, f"the base offset of a batch is 0, not {header.base_offset}")
    if header.size > settings.max_message_bytes:
        limit = settings.max_message_bytes
        return Refused(ErrorCode.MESSAGE_TOO_LARGE, f"the batch has {header.size} bytes, max.message.bytes is {limit}")
    if not crc_matches(batch, 0, header):
        return Refused(ErrorCode.CORRUPT_MESSAGE, "the checksum of the record batch does not match")
    if header.attributes & 7 not in _CODECS:
        return Refused(ErrorCode.UNKNOWN_SERVER_ERROR, f"nobody knows compression {header.attributes & 7}")
    if header.record_count != header.last_offset_delta + 1 or header.record_count < 1:
        return Refused(ErrorCode.INVALID_RECORD, "record count and offsets of the batch do not agree")
    if header.record_count > most_records(header):
        size, count = header.size - HEADER_SIZE, header.record_count
        return Refused(ErrorCode.INVALID_RECORD, f"{size} bytes cannot hold the {count} records of the header")
    if header.is_control:
        return Refused(ErrorCode.INVALID_RECORD, "a client may not write control records")
    if header.producer_id >= 0 and header.base_sequence < 0:
        return Refused(ErrorCode.INVALID_RECORD, "a batch with a producer id needs a base sequence")
    if header.is_transactional and header.producer_id < 0:
        return Refused(ErrorCode.INVALID_RECORD, "a transactional batch needs a producer id")
    return _check_records(batch, header, settings, now)


def most_records(header: BatchHeader) -> int:
    """How many records the bytes behind the header can hold at most, compressed as they are."""
    return (header.size - HEADER_SIZE) * _LARGEST_RATIO[header.attributes & 7] // _SMALLEST_RECORD


def _check_records(batch: Buffer, header: BatchHeader, settings: LogSettings, now: int) -> Refused | None:
    """What only the records tell, where there is reason to look."""
    keyed = "compact" in settings.cleanup_policy
    timed = settings.message_timestamp_type == "CreateTime" and (
        header.max_timestamp - now > settings.timestamp_after_max_ms or settings.timestamp_before_max_ms < LONG
    )
    # To say when records are appended is the broker's; where records have times of their own, it does not matter.
    stamped = header.attributes & LOG_APPEND_TIME and (
        settings.message_timestamp_type == "LogAppendTime" or header.max_timestamp == NO_TIMESTAMP
    )
    if not keyed and not timed and not stamped:
        return None
    try:
        records = decode_batch(batch, 0, header)
    except ProtocolError as unreadable:
        return Refused(ErrorCode.INVALID_RECORD, str(unreadable))
    wrong: list[tuple[int, str]] = []
    error = ErrorCode.INVALID_RECORD
    for number, record in enumerate(records):
        if keyed and record.key is None:
            wrong.append((number, "a record of a compacted topic needs a key"))
        elif timed and not _timely(record.timestamp, settings, now):
            wrong.append((number, f"its time, {record.timestamp}, is too far from the broker's, {now}"))
            error = ErrorCode.INVALID_TIMESTAMP
        elif stamped:
            wrong.append((number, "a producer may not say that its time is the one of its append"))
            error = ErrorCode.INVALID_TIMESTAMP
    if not wrong:
        return None
    return Refused(error, f"record {wrong[0][0]} of the batch: {wrong[0][1]}", record_errors=tuple(wrong))


def _timely(timestamp: int, settings: LogSettings, now: int) -> bool:
    if timestamp == NO_TIMESTAMP:
        return True
    return now - timestamp <= settings.timestamp_before_max_ms and timestamp - now <= settings.timestamp_after_max_ms
