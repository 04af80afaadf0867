"""What a client's batch must be, whoever sends it (facts §6.3 c, j).

A batch that its readers cannot read would stop each of them for ever: what the header says must be what the records
are.  For that no records are made; they are looked at one after the other, in steps, since few bytes may unfold to
many of them.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import Final, NamedTuple

from fencepost.log.outcome import Refused
from fencepost.log.recompression import recompress
from fencepost.log.settings import LONG, LogSettings
from fencepost.protocol.batch import CONTROL, HEADER_SIZE, SMALLEST_RECORD, TRANSACTIONAL, BatchHeader, crc_matches
from fencepost.protocol.compression import CODECS, LARGEST_BATCH, Compression, TooLarge, check_start
from fencepost.protocol.errors import ErrorCode, ProtocolError
from fencepost.protocol.record_scan import Scanned, moments, scan, scan_at_once, unfolded
from fencepost.protocol.steps import SUMMED_IN_A_UNIT, UNFOLDED_IN_A_UNIT, Pace, Steps, elsewhere
from fencepost.protocol.types import NO_TIMESTAMP, Buffer, Milliseconds

#: How many bytes one byte of the codec can become, at most: by its format, whatever an encoder does.
_LARGEST_RATIO: Final[Mapping[int, int]] = {
    Compression.NONE: 1,
    Compression.GZIP: 1032,  # deflate: 258 bytes for two bits
    Compression.SNAPPY: 22,  # a copy: 64 bytes for three
    Compression.LZ4: 255,  # a match grows by 255 with each byte of its length
    Compression.ZSTD: 32 * 1024,  # a block of 128 KiB has at least its header of three bytes and one more
}

_MOST_UNFOLDED: Final = 16
LEAST_UNFOLDED: Final = 16 * 1024 * 1024
"""Bytes to which any batch may unfold."""

MOST_RECORD_ERRORS: Final = 100
"""The number of records of a batch that are named as wrong, at most.  (Apache Kafka names all.)"""

_FOLDED_AT_ONCE: Final = 256 * 1024
"""Bytes of records that are compressed without leaving it to another thread: hard levels do 5 MB in a second."""


class Checked(NamedTuple):
    """The result of checking a client's batch for a log with these settings.  `refused`: why it is not taken, if so."""

    settings: LogSettings
    header: BatchHeader
    """The header of the batch as it came."""
    refused: Refused | None
    max_timestamp: Milliseconds = NO_TIMESTAMP
    """The timestamp for the header: the largest of the records, where these keep their own."""
    anew: bytes | None = None
    """The batch in the codec of its topic, where it came in another one."""


def most_unfolded(settings: LogSettings) -> int:
    """Bytes to which the records of one batch may unfold: a small multiple of max.message.bytes.

    Apache Kafka has no such limit.  Honest records shrink to a tenth or so, hostile ones to a 30,000th.
    """
    return min(max(_MOST_UNFOLDED * settings.max_message_bytes, LEAST_UNFOLDED), LARGEST_BATCH)


def check_batch(
    batch: Buffer, header: BatchHeader, settings: LogSettings, now: Milliseconds, pace: Pace
) -> Steps[Checked]:
    """Check a client's batch, before anything is known of its producer.

    `batch` is not looked at after the first interruption: it may be a view of a buffer that is used again.
    """
    try:
        return (yield from _check_batch(batch, header, settings, now, pace))
    finally:
        pace.hold(0)


def _check_batch(
    batch: Buffer, header: BatchHeader, settings: LogSettings, now: Milliseconds, pace: Pace
) -> Steps[Checked]:
    refused = check_header(batch, header, settings)
    if refused is not None:
        return Checked(settings, header, refused)
    compression = header.attributes & 7
    most = _looked_at_closely(header, settings, now)
    records: Buffer = memoryview(batch)[HEADER_SIZE:]
    try:
        if compression:
            check_start(Compression(compression), records)
        if compression and most < header.record_count:
            return Checked(settings, header, None, header.max_timestamp)
        pace.left -= len(records) // SUMMED_IN_A_UNIT
        if compression:
            records = yield from unfolded(Compression(compression), records, most_unfolded(settings), pace)
            pace.left -= len(records) // UNFOLDED_IN_A_UNIT
    except TooLarge as large:
        return Checked(settings, header, Refused(ErrorCode.MESSAGE_TOO_LARGE, str(large)))
    except ProtocolError as unreadable:
        return Checked(settings, header, Refused(ErrorCode.UNKNOWN_SERVER_ERROR, str(unreadable)))
    try:
        scanned = scan_at_once(records, header, pace, most)
        if scanned is None:
            records = bytes(records)
            yield from pace.spend(0)
            scanned = yield from scan(records, header, pace, most)
    except ProtocolError as wrong:
        return Checked(settings, header, Refused(ErrorCode.INVALID_RECORD, str(wrong)))
    demands = _demands(header, settings, now, scanned)
    if demands is not None:
        refused = yield from _check_records(records, header, settings, now, demands, pace)
        if refused is not None:
            return Checked(settings, header, refused)
    max_timestamp = header.max_timestamp
    if settings.message_timestamp_type == "CreateTime" and most >= header.record_count:
        max_timestamp = Milliseconds(max(scanned.latest, NO_TIMESTAMP))
    wanted = settings.compression
    if wanted is None or wanted == compression:
        return Checked(settings, header, None, max_timestamp)
    fold = partial(recompress, bytes(records), header._replace(max_timestamp=max_timestamp), wanted, settings)
    anew = (yield from elsewhere(fold)) if len(records) > _FOLDED_AT_ONCE else fold()
    if isinstance(anew, Refused):
        return Checked(settings, header, anew)
    return Checked(settings, header, None, max_timestamp, anew)


def check_header(batch: Buffer, header: BatchHeader, settings: LogSettings) -> Refused | None:
    """Why a client's batch is not taken, as far as its header, its size and its checksum tell."""
    size, attributes, count = header.size, header.attributes, header.record_count
    if size != len(batch):
        return Refused(ErrorCode.INVALID_RECORD, "a partition takes exactly one record batch per request")
    if header.base_offset != 0:
        return Refused(ErrorCode.INVALID_RECORD, f"the base offset of a batch is 0, not {header.base_offset}")
    if size > settings.max_message_bytes:
        limit = settings.max_message_bytes
        return Refused(ErrorCode.MESSAGE_TOO_LARGE, f"the batch has {size} bytes, max.message.bytes is {limit}")
    if not crc_matches(batch, 0, header):
        return Refused(ErrorCode.CORRUPT_MESSAGE, "the checksum of the record batch does not match")
    if attributes & 7 not in CODECS:
        return Refused(ErrorCode.UNKNOWN_SERVER_ERROR, f"nobody knows compression {attributes & 7}")
    if count != header.last_offset_delta + 1 or count < 1:
        return Refused(ErrorCode.INVALID_RECORD, "record count and offsets of the batch do not agree")
    if count > most_records(header):
        records = f"{size - HEADER_SIZE} bytes cannot hold the {count} records of the header"
        return Refused(ErrorCode.INVALID_RECORD, records)
    if attributes & CONTROL:
        return Refused(ErrorCode.INVALID_RECORD, "a client may not write control records")
    if header.producer_id >= 0 and header.base_sequence < 0:
        return Refused(ErrorCode.INVALID_RECORD, "a batch with a producer id needs a base sequence")
    if attributes & TRANSACTIONAL and header.producer_id < 0:
        return Refused(ErrorCode.INVALID_RECORD, "a transactional batch needs a producer id")
    return None


def _looked_at_closely(header: BatchHeader, settings: LogSettings, now: Milliseconds) -> int:
    """The number of records to look at one by one: all of them where the settings ask something of each."""
    if header.record_count <= settings.check_max_records or "compact" in settings.cleanup_policy:
        return header.record_count
    if header.attributes & 7 and header.size <= settings.check_max_bytes:
        return header.record_count
    if settings.compression is not None and settings.compression != header.attributes & 7:
        return header.record_count
    if header.is_log_append_time or settings.timestamp_before_max_ms < LONG:
        return header.record_count
    if header.max_timestamp - now > settings.timestamp_after_max_ms:
        return header.record_count
    return settings.check_max_records


def most_records(header: BatchHeader) -> int:
    """The number of records that the bytes behind the header can hold at most, compressed as they are."""
    return (header.size - HEADER_SIZE) * _LARGEST_RATIO[header.attributes & 7] // SMALLEST_RECORD


class _Demands(NamedTuple):
    """What each record must have as the settings ask: a key, a time not too far off, no time of an append."""

    keyed: bool
    timed: bool
    stamped: bool


def _demands(header: BatchHeader, settings: LogSettings, now: Milliseconds, scanned: Scanned) -> _Demands | None:
    created = settings.message_timestamp_type == "CreateTime"
    keyed = scanned.keyless and "compact" in settings.cleanup_policy
    timed = created and (
        scanned.latest - now > settings.timestamp_after_max_ms
        or now - scanned.earliest > settings.timestamp_before_max_ms
    )
    # To say when records are appended is the broker's; where records have times of their own, it does not matter.
    stamped = header.is_log_append_time and (not created or header.max_timestamp == NO_TIMESTAMP)
    return _Demands(keyed, timed, stamped) if keyed or timed or stamped else None


def _check_records(
    records: Buffer, header: BatchHeader, settings: LogSettings, now: Milliseconds, demands: _Demands, pace: Pace
) -> Steps[Refused | None]:
    """The refusal of the records that do not have what is demanded of them; None if all have it."""
    keyed, timed, stamped = demands
    wrong: list[tuple[int, str]] = []
    error = ErrorCode.INVALID_RECORD
    for number, (timestamp, _, keyless) in enumerate(moments(bytes(records), header._replace(attributes=0))):
        if keyed and keyless:
            wrong.append((number, "a record of a compacted topic needs a key"))
        elif timed and not _timely(timestamp, settings, now):
            wrong.append((number, f"its time, {timestamp}, is too far from the broker's, {now}"))
            error = ErrorCode.INVALID_TIMESTAMP
        elif stamped:
            wrong.append((number, "a producer may not say that its time is the one of its append"))
            error = ErrorCode.INVALID_TIMESTAMP
        if len(wrong) == MOST_RECORD_ERRORS:
            break
        if number % 64 == 63:
            yield from pace.spend(64)
    if not wrong:
        return None
    return Refused(error, f"record {wrong[0][0]} of the batch: {wrong[0][1]}", record_errors=tuple(wrong))


def _timely(timestamp: int, settings: LogSettings, now: Milliseconds) -> bool:
    if timestamp == NO_TIMESTAMP:
        return True
    return now - timestamp <= settings.timestamp_before_max_ms and timestamp - now <= settings.timestamp_after_max_ms
