"""The records of a batch, format 2 (facts §10.1): written by producers, read by consumers."""

from __future__ import annotations

from collections.abc import Sequence
from struct import Struct
from typing import Final, NamedTuple, TypeAlias

from crc32c import crc32c

from fencepost.protocol.batch import (
    AFTER_CRC,
    CONTROL,
    HEADER_SIZE,
    MAGIC,
    NO_SEQUENCE,
    TRANSACTIONAL,
    BatchHeader,
    read_header,
)
from fencepost.protocol.compression import LARGEST_BATCH, Compression, compress, decompress
from fencepost.protocol.errors import ProtocolError
from fencepost.protocol.types import Buffer, Offset

_FRONT = Struct(">qiibI")
UNLIMITED: Final = (1 << 63) - 1

Headers: TypeAlias = Sequence[tuple[str, bytes | None]]
NewRecord: TypeAlias = tuple[int, bytes | None, bytes | None, Headers]
"""What a writer gives: timestamp (ms), key, value, headers."""


class Record(NamedTuple):
    """A record as it was read."""

    offset: Offset
    timestamp: int
    key: bytes | None
    value: bytes | None
    headers: Headers


def _varint(number: int) -> bytes:
    number = (number << 1) ^ (number >> 63)
    encoded = bytearray()
    while number > 127:
        encoded.append(number & 127 | 128)
        number >>= 7
    encoded.append(number)
    return bytes(encoded)


_VARINTS = [_varint(number) for number in range(8192)]
_NULL = _varint(-1)
_EMPTY: Headers = ()


def varint(number: int) -> bytes:
    """Zig-zag variable-length form of a signed number."""
    return _VARINTS[number] if 0 <= number < 8192 else _varint(number)


def _header_bytes(headers: Headers) -> bytes:
    parts = [varint(len(headers))]
    for name, value in headers:
        encoded = name.encode()
        parts += (varint(len(encoded)), encoded)
        parts += (_NULL,) if value is None else (varint(len(value)), value)
    return b"".join(parts)


def encode_record(
    offset_delta: int, timestamp_delta: int, key: bytes | None, value: bytes | None, headers: Headers
) -> bytes:
    """One record in the form that stands in a batch."""
    small = _VARINTS
    key_part = _NULL if key is None else (small[len(key)] if len(key) < 8192 else _varint(len(key))) + key
    length = _NULL if value is None else small[len(value)] if len(value) < 8192 else _varint(len(value))
    timestamp = small[timestamp_delta] if 0 <= timestamp_delta < 8192 else _varint(timestamp_delta)
    offset = small[offset_delta] if offset_delta < 8192 else _varint(offset_delta)
    tail = _header_bytes(headers) if headers else b"\x00"
    body = b"".join((b"\x00", timestamp, offset, key_part, length, value or b"", tail))
    return (small[len(body)] if len(body) < 8192 else _varint(len(body))) + body


def seal(
    body: bytes,
    count: int,
    base_timestamp: int,
    max_timestamp: int,
    *,
    base_offset: int = 0,
    last_offset_delta: int | None = None,
    compression: Compression = Compression.NONE,
    compression_level: int | None = None,
    producer_id: int = -1,
    producer_epoch: int = -1,
    base_sequence: int = NO_SEQUENCE,
    transactional: bool = False,
    control: bool = False,
    leader_epoch: int = -1,
) -> bytes:
    """Put a header before encoded records."""
    attributes = compression | (TRANSACTIONAL if transactional else 0) | (CONTROL if control else 0)
    if compression:
        body = compress(compression, body, compression_level)
    delta = count - 1 if last_offset_delta is None else last_offset_delta
    covered = AFTER_CRC.pack(
        attributes, delta, base_timestamp, max_timestamp, producer_id, producer_epoch, base_sequence, count
    )
    crc = crc32c(body, crc32c(covered))
    front = _FRONT.pack(base_offset, HEADER_SIZE - 12 + len(body), leader_epoch, MAGIC, crc)
    return b"".join((front, covered, body))


def encode_batch(
    records: Sequence[NewRecord],
    *,
    base_offset: int = 0,
    compression: Compression = Compression.NONE,
    producer_id: int = -1,
    producer_epoch: int = -1,
    base_sequence: int = NO_SEQUENCE,
    transactional: bool = False,
    control: bool = False,
    leader_epoch: int = -1,
) -> bytes:
    """A whole batch.  `records` must not be empty."""
    first = records[0][0]
    body = b"".join(
        [encode_record(n, record[0] - first, record[1], record[2], record[3]) for n, record in enumerate(records)]
    )
    return seal(
        body,
        len(records),
        first,
        max([record[0] for record in records]),
        base_offset=base_offset,
        compression=compression,
        producer_id=producer_id,
        producer_epoch=producer_epoch,
        base_sequence=base_sequence,
        transactional=transactional,
        control=control,
        leader_epoch=leader_epoch,
    )


class BatchBuilder:
    """Gathers the records of one batch; a producer fills it until it is large enough."""

    __slots__ = ("_base_timestamp", "_max_timestamp", "_parts", "compression", "count", "size")

    def __init__(self, compression: Compression = Compression.NONE) -> None:
        self.compression = compression
        self.count = 0
        self.size = HEADER_SIZE
        """Bytes of the batch so far, before compression."""
        self._parts: list[bytes] = []
        self._base_timestamp = 0
        self._max_timestamp = 0

    def append(
        self,
        timestamp: int,
        key: bytes | None,
        value: bytes | None,
        headers: Headers = _EMPTY,
        limit: int = UNLIMITED,
    ) -> bool:
        """Add a record, unless the batch had more than `limit` bytes with it; whether it was added.

        Raises TypeError, ValueError or AttributeError for what is no record; the batch is as it was then.
        """
        place = self.count
        delta = timestamp - self._base_timestamp if place else 0
        encoded = encode_record(place, delta, key, value, headers)
        size = self.size + len(encoded)
        if size > limit:
            return False
        if place == 0:
            self._base_timestamp = self._max_timestamp = timestamp
        elif timestamp > self._max_timestamp:
            self._max_timestamp = timestamp
        self._parts.append(encoded)
        self.size = size
        self.count = place + 1
        return True

    def extend(self, timestamp: int, keys: Sequence[bytes | None], values: Sequence[bytes | None], limit: int) -> int:
        """Add records of one timestamp, without headers, until the batch has `limit` bytes; how many were taken."""
        if self.count == 0:
            self._base_timestamp = self._max_timestamp = timestamp
        self._max_timestamp = max(self._max_timestamp, timestamp)
        front = b"\x00" + varint(timestamp - self._base_timestamp)
        small, parts, size, place = _VARINTS, self._parts, self.size, self.count
        for key, value in zip(keys, values, strict=True):
            if size >= limit:
                break
            offset = small[place] if place < 8192 else _varint(place)
            key_part = _NULL if key is None else (small[len(key)] if len(key) < 8192 else _varint(len(key))) + key
            length = _NULL if value is None else small[len(value)] if len(value) < 8192 else _varint(len(value))
            body = b"".join((front, offset, key_part, length, value or b"", b"\x00"))
            encoded = (small[len(body)] if len(body) < 8192 else _varint(len(body))) + body
            parts.append(encoded)
            size += len(encoded)
            place += 1
        taken, self.count, self.size = place - self.count, place, size
        return taken

    def build(
        self,
        producer_id: int = -1,
        producer_epoch: int = -1,
        base_sequence: int = NO_SEQUENCE,
        transactional: bool = False,
    ) -> bytes:
        """The batch as a producer sends it."""
        return seal(
            b"".join(self._parts),
            self.count,
            self._base_timestamp,
            self._max_timestamp,
            compression=self.compression,
            producer_id=producer_id,
            producer_epoch=producer_epoch,
            base_sequence=base_sequence,
            transactional=transactional,
        )


def decode_batch(
    buffer: Buffer, at: int = 0, header: BatchHeader | None = None, limit: int = LARGEST_BATCH
) -> list[Record]:
    """Every record of the batch that starts there.

    Raises ProtocolError if it is damaged (the CRC is not looked at: see crc_matches) or would unfold to more than
    `limit` bytes.
    """
    header = read_header(buffer, at) if header is None else header
    if at + header.size > len(buffer):
        raise ProtocolError("a record batch is cut off")
    body: bytes = bytes(memoryview(buffer)[at + HEADER_SIZE : at + header.size])
    if header.attributes & 7:
        body = decompress(header.compression, body, limit)
    try:
        return _decode_records(body, header)
    except (IndexError, UnicodeDecodeError):
        raise ProtocolError("a record batch is damaged: a record does not end where it should") from None


class UnreadRecord(NamedTuple):
    """A record of which only the key was looked at, for who wants the last one with each key and nothing else."""

    offset: Offset
    key: bytes | None
    is_tombstone: bool
    rest: Record | tuple[BatchHeader, bytes]
    """The whole of it, or the batch that has no other."""

    def read(self) -> Record:
        """Raises ProtocolError."""
        if isinstance(self.rest, Record):
            return self.rest
        header, batch = self.rest
        return decode_batch(batch, 0, header)[0]


def keys_of(batch: Buffer, header: BatchHeader) -> list[UnreadRecord]:
    """The records of a batch, which is all of `batch`, each with its key.

    Raises ProtocolError as `decode_batch` does, but what is wrong within the value or the headers of an only record is
    found when that is read.
    """
    sole = _sole_record(batch, header) if header.record_count == 1 and not header.attributes & 7 else None
    if sole is not None:
        return [sole]
    return [
        UnreadRecord(record.offset, record.key, record.value is None, record)
        for record in decode_batch(batch, 0, header)
    ]


def _sole_record(batch: Buffer, header: BatchHeader) -> UnreadRecord | None:
    """The only record; None if any number before its key has more than two bytes, or anything is wrong with it."""
    try:
        n, at = batch[HEADER_SIZE], HEADER_SIZE + 1
        if n > 127:
            n, at = n & 127 | batch[at] << 7, at + 1
        # After the length: attributes, timestamp and offset (of the first record in its batch 0, in one byte each).
        if at + (n >> 1) != len(batch) or n & 1 or n > 16_383 or batch[at + 1] > 127 or batch[at + 2]:
            return None
        n, at = batch[at + 3], at + 4
        if n > 127:
            n, at = n & 127 | batch[at] << 7, at + 1
        if n & 1 or n > 16_383:
            return None
        end = at + (n >> 1)
        # -1 for the length of the value is a tombstone; any other odd number is longer than one byte, or wrong.
        value = batch[end]
    except IndexError:
        return None
    if value & 1 and value != 1:
        return None
    return UnreadRecord(header.base_offset, bytes(batch[at:end]), value == 1, (header, bytes(batch)))


def _decode_records(body: bytes, header: BatchHeader) -> list[Record]:
    """The hot path of every consumer: the variable-length numbers are read in place, the short forms first."""
    base_offset, base_timestamp = header.base_offset, header.base_timestamp
    append_time = header.max_timestamp if header.is_log_append_time else None
    records: list[Record] = []
    keep, make, end, at = records.append, Record._make, len(body), 0
    if not 0 <= header.record_count <= end:
        raise ProtocolError(f"a record batch claims {header.record_count} records in {end} bytes")
    for _ in range(header.record_count):
        n = body[at]
        at += 1
        if n > 127:
            n, at = continue_varint(body, at, n)
        stop = at + ((n >> 1) ^ -(n & 1))
        if stop > end or stop <= at:
            raise ProtocolError("a record batch is damaged: a record is longer than the batch")
        n = body[at + 1]
        at += 2
        if n > 127:
            n, at = continue_varint(body, at, n)
        timestamp = base_timestamp + ((n >> 1) ^ -(n & 1))
        n = body[at]
        at += 1
        if n > 127:
            n, at = continue_varint(body, at, n)
        offset = base_offset + ((n >> 1) ^ -(n & 1))
        n = body[at]
        at += 1
        if n > 127:
            n, at = continue_varint(body, at, n)
        if n & 1:
            key = None
        else:
            n = at + (n >> 1)
            key = body[at:n]
            at = n
        n = body[at]
        at += 1
        if n > 127:
            n, at = continue_varint(body, at, n)
        if n & 1:
            value = None
        else:
            n = at + (n >> 1)
            value = body[at:n]
            at = n
        found = _EMPTY
        if body[at]:
            found, at = _decode_headers(body, at, stop)
        else:
            at += 1
        if at != stop:
            raise ProtocolError("a record batch is damaged: a record does not end where it should")
        keep(make((offset, timestamp if append_time is None else append_time, key, value, found)))
    if at != end:
        raise ProtocolError("a record batch is damaged: bytes follow its last record")
    return records


def continue_varint(body: Buffer, at: int, n: int) -> tuple[int, int]:
    """The rest of a variable-length number whose first byte, `n`, said that more follow: the number, and where it ends.

    Not zig-zag decoded.  Raises IndexError at the end of `body`, ProtocolError if the number has more than 64 bits.
    """
    n &= 127
    shift = 7
    while True:
        byte = body[at]
        at += 1
        n |= (byte & 127) << shift
        if byte < 128:
            return n, at
        shift += 7
        if shift > 63:
            raise ProtocolError("a record batch is damaged: a number is too long")


def read_varint(body: Buffer, at: int) -> tuple[int, int]:
    """A signed (zig-zag) number of variable length, and where it ends; raises as `continue_varint` does."""
    n, at = continue_varint(body, at + 1, body[at]) if body[at] > 127 else (body[at], at + 1)
    return (n >> 1) ^ -(n & 1), at


def _decode_headers(body: bytes, at: int, stop: int) -> tuple[Headers, int]:
    count, at = read_varint(body, at)
    if not 0 <= count <= stop - at:
        raise ProtocolError(f"a record claims {count} headers in {stop - at} bytes")
    found: list[tuple[str, bytes | None]] = []
    for _ in range(count):
        length, at = read_varint(body, at)
        if length < 0 or at + length > stop:
            raise ProtocolError("a record batch is damaged: a header is longer than its record")
        name = body[at : at + length].decode()
        at += length
        length, at = read_varint(body, at)
        if at + length > stop:
            raise ProtocolError("a record batch is damaged: a header is longer than its record")
        found.append((name, None if length < 0 else body[at : at + length]))
        at += max(length, 0)
    return found, at
