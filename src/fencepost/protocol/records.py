"""The records of a batch, format 2 (facts §10.1): written by producers, read by consumers."""

from __future__ import annotations

from collections.abc import Sequence
from struct import Struct
from typing import Any, Final, NamedTuple, TypeAlias, TypeVar

from crc32c import crc32c

from fencepost.compiled.in_use import compiled
from fencepost.protocol import record_kernel
from fencepost.protocol.batch import (
    AFTER_CRC,
    CONTROL,
    HEADER_SIZE,
    MAGIC,
    NO_SEQUENCE,
    TRANSACTIONAL,
    BatchHeader,
    body_of,
    read_header,
)
from fencepost.protocol.compression import LARGEST_BATCH, Compression, compress
from fencepost.protocol.errors import ProtocolError
from fencepost.protocol.record_decoding import decode_records
from fencepost.protocol.types import (
    NO_EPOCH,
    NO_LEADER_EPOCH,
    NO_PRODUCER_ID,
    Buffer,
    Epoch,
    LeaderEpoch,
    Offset,
    ProducerId,
)

_FRONT = Struct(">qiibI")
UNLIMITED: Final = (1 << 60) - 1  # bytes, which no batch has

_compiled_decode = compiled(record_kernel.decode_records)
_compiled_append = compiled(record_kernel.append_record)
_compiled_extend = compiled(record_kernel.append_records)
_compiled_extend_rows = compiled(record_kernel.append_rows)

R = TypeVar("R", bound=tuple[Any, ...])

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


def _encode_until(
    place: int, timestamp_delta: int, keys: list[bytes | None], values: list[bytes | None], room: int
) -> list[bytes]:
    """Records of one timestamp, without headers, numbered from `place` on, until they have `room` bytes."""
    small, found = _VARINTS, []
    front = b"\x00" + varint(timestamp_delta)
    for key, value in zip(keys, values, strict=True):
        if room <= 0:
            break
        offset = small[place] if place < 8192 else _varint(place)
        key_part = _NULL if key is None else (small[len(key)] if len(key) < 8192 else _varint(len(key))) + key
        length = _NULL if value is None else small[len(value)] if len(value) < 8192 else _varint(len(value))
        body = b"".join((front, offset, key_part, length, value or b"", b"\x00"))
        found.append((small[len(body)] if len(body) < 8192 else _varint(len(body))) + body)
        room -= len(found[-1])
        place += 1
    return found


def seal(
    body: Buffer,
    count: int,
    base_timestamp: int,
    max_timestamp: int,
    *,
    base_offset: int = 0,
    last_offset_delta: int | None = None,
    compression: Compression = Compression.NONE,
    compression_level: int | None = None,
    producer_id: ProducerId = NO_PRODUCER_ID,
    producer_epoch: Epoch = NO_EPOCH,
    base_sequence: int = NO_SEQUENCE,
    transactional: bool = False,
    control: bool = False,
    leader_epoch: LeaderEpoch = NO_LEADER_EPOCH,
) -> bytes:
    """Put a header before encoded records."""
    attributes = compression | (TRANSACTIONAL if transactional else 0) | (CONTROL if control else 0)
    if compression:
        body = compress(compression, bytes(body), compression_level)
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
    producer_id: ProducerId = NO_PRODUCER_ID,
    producer_epoch: Epoch = NO_EPOCH,
    base_sequence: int = NO_SEQUENCE,
    transactional: bool = False,
    control: bool = False,
    leader_epoch: LeaderEpoch = NO_LEADER_EPOCH,
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


class Rows(NamedTuple):
    """Two columns whose rows are records: memory of what `record_kernel.append_rows` takes, as arrays of numpy are."""

    keys: Any
    key_ends: Any
    values: Any
    value_ends: Any
    nulls: Any


class BatchBuilder:
    """Gathers the records of one batch; a producer fills it until it is large enough."""

    __slots__ = ("_base_timestamp", "_body", "_max_timestamp", "compression", "count", "size")

    def __init__(self, compression: Compression = Compression.NONE) -> None:
        self.compression = compression
        self.count = 0
        self.size = HEADER_SIZE
        """Bytes of the batch so far, before compression."""
        self._body = bytearray()
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
        added = -1
        if _compiled_append is not None and not headers and limit <= UNLIMITED:
            try:
                added = _compiled_append(self._body, place, delta, key, value, limit - self.size)
            except BaseException:  # there is no more memory: what there is of the record must not stay
                del self._body[self.size - HEADER_SIZE :]
                raise
        if added < 0:
            encoded = encode_record(place, delta, key, value, headers)
            added = len(encoded)
            if self.size + added > limit:
                return False
            self._body += encoded
        elif added == 0:
            return False
        if place == 0:
            self._base_timestamp = self._max_timestamp = timestamp
        elif timestamp > self._max_timestamp:
            self._max_timestamp = timestamp
        self.size += added
        self.count = place + 1
        return True

    def extend(self, timestamp: int, keys: list[bytes | None], values: list[bytes | None], limit: int) -> int:
        """Add records of one timestamp, without headers, until the batch has `limit` bytes; how many were taken.

        Raises TypeError or ValueError where these are no records, or not as many keys as values; the batch is as it was
        then.
        """
        base = self._base_timestamp if self.count else timestamp
        taken, before = -1, len(self._body)
        if _compiled_extend is not None and limit <= UNLIMITED:
            try:
                taken = _compiled_extend(self._body, self.count, timestamp - base, keys, values, limit - self.size)
            except BaseException:
                del self._body[before:]
                raise
        if taken < 0:
            encoded = _encode_until(self.count, timestamp - base, keys, values, limit - self.size)
            self._body += b"".join(encoded)
            taken = len(encoded)
        self._took(timestamp, base, taken, before)
        return taken

    def _took(self, timestamp: int, base: int, taken: int, before: int) -> None:
        """Account for `taken` records of one timestamp, whose bytes are in the body from `before` on.

        `base`: the base timestamp of the batch.
        """
        self._max_timestamp = max(self._max_timestamp, timestamp) if self.count else timestamp
        self._base_timestamp = base
        self.count += taken
        self.size += len(self._body) - before

    def extend_rows(self, timestamp: int, rows: Rows, order: Any, at: int, stop: int, limit: int) -> int | None:
        """As `extend`, of the rows `order[at:stop]`; the place in `order` of the first that was not taken.

        None: nothing is compiled that does it, and nothing was done.
        """
        if _compiled_extend_rows is None:
            return None
        base, before = self._base_timestamp if self.count else timestamp, len(self._body)
        delta = timestamp - base
        zigzag = delta << 1 ^ delta >> 63
        try:
            after = _compiled_extend_rows(self._body, self.count, zigzag, order, at, stop, *rows, limit - self.size)
        except BaseException:
            del self._body[before:]
            raise
        self._took(timestamp, base, after - at, before)
        return after

    def parts(self) -> tuple[bytes, bytearray]:
        """The batch as it is, to be joined: a header without its checksum, which no broker takes, and the records."""
        delta = self.count - 1
        covered = AFTER_CRC.pack(
            0, delta, self._base_timestamp, self._max_timestamp, *(NO_PRODUCER_ID, NO_EPOCH, NO_SEQUENCE), self.count
        )
        return _FRONT.pack(0, HEADER_SIZE - 12 + len(self._body), -1, MAGIC, 0) + covered, self._body

    def build(
        self,
        producer_id: ProducerId = NO_PRODUCER_ID,
        producer_epoch: Epoch = NO_EPOCH,
        base_sequence: int = NO_SEQUENCE,
        transactional: bool = False,
    ) -> bytes:
        """The batch as a producer sends it."""
        return seal(
            self._body,
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
    return decode_body(body_of(buffer, at, header, limit), header)


def decode_body(body: bytes, header: BatchHeader) -> list[Record]:
    """Every record of a batch whose records are unfolded.  Raises ProtocolError if they are damaged."""
    return _decode(Record, None, 0, body, header, -(1 << 63))


def decode_as(kind: type[R], topic: str, partition: int, body: bytes, header: BatchHeader, first: int) -> list[R]:
    """The records from offset `first` on, as tuples of `kind`: topic, partition, and what a Record has.

    Raises ProtocolError if they are damaged.
    """
    return _decode(kind, topic, partition, body, header, first)


def _decode(kind: type[R], topic: str | None, partition: int, body: bytes, header: BatchHeader, first: int) -> list[R]:
    found = None
    if _compiled_decode is not None:
        base, time, count = header.base_offset, header.base_timestamp, header.record_count
        stamped = header.max_timestamp if header.is_log_append_time else None
        found = _compiled_decode(body, count, base, time, stamped, kind, topic, partition, first)
    if found is None:
        try:
            found = decode_records(kind, topic, partition, body, header, first)
        except (IndexError, UnicodeDecodeError):
            raise ProtocolError("a record batch is damaged: a record does not end where it should") from None
    return found
