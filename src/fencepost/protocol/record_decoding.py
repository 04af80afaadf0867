"""The records of a batch as a consumer gets them, read in Python: the twin of `record_kernel.decode_records`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, TypeAlias, TypeVar

from fencepost.protocol.batch import BatchHeader
from fencepost.protocol.errors import ProtocolError
from fencepost.protocol.types import Buffer

R = TypeVar("R", bound=tuple[Any, ...])

_Headers: TypeAlias = Sequence[tuple[str, bytes | None]]


def decode_records(
    kind: type[R], topic: str | None, partition: int, body: bytes, header: BatchHeader, first: int
) -> list[R]:
    """The records whose offset is `first` or more, as tuples of this kind: their topic and partition if one is given,
    offset, timestamp, key, value and headers.

    The hot path of every consumer: numbers of variable length are read in place up to their second byte.
    Raises ProtocolError, IndexError, UnicodeDecodeError.
    """
    base_offset, base_timestamp = header.base_offset, header.base_timestamp
    append_time = header.max_timestamp if header.is_log_append_time else None
    records: list[R] = []
    keep, make, end, at = records.append, tuple.__new__, len(body), 0
    if not 0 <= header.record_count <= end:
        raise ProtocolError(f"a record batch claims {header.record_count} records in {end} bytes")
    for _ in range(header.record_count):
        n = body[at]
        at += 1
        if n > 127:
            if (n2 := body[at]) < 128:
                n += (n2 - 1) << 7
                at += 1
            else:
                n, at = continue_varint(body, at, n)
        stop = at + ((n >> 1) ^ -(n & 1))
        if stop > end or stop <= at:
            raise ProtocolError("a record batch is damaged: a record is longer than the batch")
        n = body[at + 1]
        at += 2
        if n > 127:
            if (n2 := body[at]) < 128:
                n += (n2 - 1) << 7
                at += 1
            else:
                n, at = continue_varint(body, at, n)
        timestamp = base_timestamp + ((n >> 1) ^ -(n & 1))
        n = body[at]
        at += 1
        if n > 127:
            if (n2 := body[at]) < 128:
                n += (n2 - 1) << 7
                at += 1
            else:
                n, at = continue_varint(body, at, n)
        offset = base_offset + ((n >> 1) ^ -(n & 1))
        n = body[at]
        at += 1
        if n > 127:
            if (n2 := body[at]) < 128:
                n += (n2 - 1) << 7
                at += 1
            else:
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
            if (n2 := body[at]) < 128:
                n += (n2 - 1) << 7
                at += 1
            else:
                n, at = continue_varint(body, at, n)
        if n & 1:
            value = None
        else:
            n = at + (n >> 1)
            value = body[at:n]
            at = n
        found: _Headers = ()
        if body[at]:
            found, at = _decode_headers(body, at, stop)
        else:
            at += 1
        if at != stop:
            raise ProtocolError("a record batch is damaged: a record does not end where it should")
        if offset < first:
            continue
        if append_time is not None:
            timestamp = append_time
        if topic is None:
            keep(make(kind, (offset, timestamp, key, value, found)))
        else:
            keep(make(kind, (topic, partition, offset, timestamp, key, value, found)))
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


def _decode_headers(body: bytes, at: int, stop: int) -> tuple[_Headers, int]:
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
