"""Batches with some of their records: offsets, times, headers, producer, sequence and codec stay as they were.

The records that stay are copied as they are encoded; only where a batch gets its delete horizon, which takes the place
of the base timestamp, are their timestamps written anew.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterator
from functools import partial
from typing import Final, NamedTuple

from fencepost.protocol.batch import (
    CONTROL,
    DELETE_HORIZON,
    HEADER_SIZE,
    LOG_APPEND_TIME,
    TRANSACTIONAL,
    BatchHeader,
    with_records,
)
from fencepost.protocol.compression import Compression, TooLarge, compress_in_steps, decompress
from fencepost.protocol.errors import ProtocolError
from fencepost.protocol.record_decoding import read_varint
from fencepost.protocol.records import varint
from fencepost.protocol.types import NO_TIMESTAMP, Buffer, Milliseconds, Offset

_AT_ONCE: Final = 1000
"""Records that are copied in one step."""
UNFOLDED_AT_ONCE: Final = 1024 * 1024
"""Bytes that a batch may unfold to without another thread."""


class Span(NamedTuple):
    """One encoded record within the records section of its batch."""

    start: int
    """Behind its length."""
    end: int
    offset: Offset
    timestamp_delta: int
    timestamp_end: int
    """Where the encoded timestamp delta ends; it begins at start + 1."""
    key: bytes | None
    has_value: bool


def records_section(header: BatchHeader, batch: Buffer) -> bytes | Callable[[], bytes]:
    """The encoded records of a batch, unfolded; or what unfolds them, where that takes long.  Raises ProtocolError."""
    body = bytes(memoryview(batch)[HEADER_SIZE:])
    if not header.attributes & 7:
        return body
    try:
        return decompress(header.compression, body, UNFOLDED_AT_ONCE)
    except TooLarge:
        return partial(decompress, header.compression, body)


def spans(header: BatchHeader, body: bytes) -> Iterator[Span]:
    """The records one after the other, none before it is asked for.  Raises ProtocolError where they are damaged."""
    at, end = 0, len(body)
    for _ in range(header.record_count):
        try:
            length, start = read_varint(body, at)
            stop = start + length
            delta, timestamp_end = read_varint(body, start + 1)
            offset_delta, at = read_varint(body, timestamp_end)
            key_length, at = read_varint(body, at)
            key = None
            if key_length >= 0:
                key = body[at : at + key_length]
                at += key_length
            value_length, _ = read_varint(body, at)
        except IndexError:
            raise ProtocolError("a record batch is damaged: a record does not end where it should") from None
        if length <= 0 or stop > end or at >= stop:
            raise ProtocolError("a record batch is damaged: a record does not end where it should")
        yield Span(start, stop, Offset(header.base_offset + offset_delta), delta, timestamp_end, key, value_length >= 0)
        at = stop
    if at != end:
        raise ProtocolError("a record batch is damaged: bytes follow its last record")


def only_key(header: BatchHeader, batch: Buffer) -> bytes | None:
    """The key of the only record of a small batch as the coordinators write them; None where `spans` must be asked."""
    if header.record_count != 1 or header.attributes & 7 or header.last_offset_delta or header.size < HEADER_SIZE + 6:
        return None
    # Length of the record in one byte or two, attributes, timestamp delta 0, offset delta 0, length of the key.
    at = HEADER_SIZE + (1 if batch[HEADER_SIZE] < 128 else 2)
    length = batch[at + 3] if batch[at - 1] < 128 and not batch[at + 1] and not batch[at + 2] else 1
    if length & 1 or length > 127:
        return None
    key = bytes(batch[at + 4 : at + 4 + (length >> 1)])
    return key if len(key) == length >> 1 else None


def rewritten(
    header: BatchHeader, body: bytes, kept: list[Span], new_horizon: Milliseconds | None
) -> Generator[None, None, bytes]:
    """The batch with these of its records, which must not be none; in steps, since they may be very many.

    `new_horizon`: the delete horizon that it gets now; None to leave it as it is.
    """
    whole: list[bytes] = []
    parts: list[bytes] = []
    base = header.base_timestamp if new_horizon is None else new_horizon
    shift = header.base_timestamp - base
    latest = kept[0].timestamp_delta
    for number, span in enumerate(kept, 1):
        latest = max(latest, span.timestamp_delta)
        if not number % _AT_ONCE:
            whole.append(b"".join(parts))
            parts.clear()
            yield
        if shift:
            stamp = varint(span.timestamp_delta + shift)
            length = span.end - span.timestamp_end + 1 + len(stamp)
            parts += (varint(length), body[span.start : span.start + 1], stamp, body[span.timestamp_end : span.end])
        else:
            parts += (varint(span.end - span.start), body[span.start : span.end])
    records = b"".join((*whole, *parts))
    if header.attributes & 7:
        records = yield from compress_in_steps(header.compression, records)
    newest = header.max_timestamp if header.is_log_append_time else Milliseconds(header.base_timestamp + latest)
    return with_records(
        header._replace(
            attributes=header.attributes | (0 if new_horizon is None else DELETE_HORIZON),
            base_timestamp=base,
            max_timestamp=newest,
            record_count=len(kept),
        ),
        records,
    )


def emptied(header: BatchHeader) -> bytes:
    """Only the header of a batch: its producer, sequence, offsets and largest timestamp, and no record."""
    kept = header.attributes & (TRANSACTIONAL | CONTROL | LOG_APPEND_TIME) | Compression.NONE
    return with_records(header._replace(attributes=kept, base_timestamp=NO_TIMESTAMP, record_count=0), b"")
