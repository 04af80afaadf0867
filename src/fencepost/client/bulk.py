"""Cuts the records of one call into chunks and batches.  Pure."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from itertools import islice
from typing import Final, NamedTuple, cast

from fencepost.client.arguments import keys_or_values
from fencepost.client.errors import RecordTooLargeError
from fencepost.client.producer_record import BYTES, too_large, what_is_wrong
from fencepost.protocol.compression import Compression
from fencepost.protocol.records import BatchBuilder, Headers

#: Records that are taken at first, before their size is known, and at most.
_FIRST: Final = 16
MOST: Final = 1_000
#: Bytes of a record beside its key and value, at most, where it has no headers.
OVERHEAD: Final = 32

#: A partition that is to be chosen, and the time when a record is handed over.
AS_ANY: Final = -1
NOW: Final = -1

Column = list[bytes | None]
Own = tuple[int, int, Headers]
"""Partition, timestamp (ms) and headers of a record."""


class Chunk(NamedTuple):
    """Some of the records of one call, in their order."""

    keys: Column
    values: Column
    largest: int
    """Bytes that one of them takes at most."""
    size: int
    """Bytes that all of them take, about."""
    refused: tuple[bytes | None, bytes | None] | None = None
    """Key and value of the next record, if that cannot be sent: they are no bytes, or too large.  Else None."""
    own: Sequence[Own] | None = None
    """The partition, timestamp and headers of each record; None: none has its own."""


def chunks(
    values: Iterable[bytes | None], keys: Iterable[bytes | None] | None, chunk_bytes: int, most_bytes: int
) -> Iterator[Chunk]:
    """Records in chunks of about `chunk_bytes`, up to the first that cannot be sent or has more than `most_bytes`.

    Raises ValueError at the end if there are not as many keys as values.
    """
    coming = iter(keys_or_values("values", values))
    their_keys = None if keys is None else iter(keys_or_values("keys", keys))
    most = _FIRST
    while True:
        column = taken(coming, most, chunk_bytes)
        key_column: Column = [None] * len(column)
        if their_keys is not None:
            key_column = list(islice(their_keys, len(column) or 1))
        if len(column) != len(key_column):
            raise ValueError("there are not as many keys as values: give one key, or None, for each value")
        if not column:
            return
        chunk = measured(key_column, column, most_bytes)
        if chunk.size > 2 * chunk_bytes:
            yield from cut(chunk, chunk_bytes)
        else:
            yield chunk
        if chunk.refused is not None:
            return
        most = max(1, min(chunk_bytes * len(column) // chunk.size, 4 * most, MOST))


def taken(coming: Iterator[bytes | None], most: int, chunk_bytes: int) -> Column:
    """The next keys or values: at most `most`, and about `chunk_bytes` at most."""
    column: Column = []
    size = 0
    while len(column) < most and size < chunk_bytes:
        some = list(islice(coming, min(_FIRST, most - len(column))))
        if not some:
            break
        column += some
        size += sum(size_of(each) or 0 for each in some)
    return column


def cut(chunk: Chunk, chunk_bytes: int) -> Iterator[Chunk]:
    """A chunk in parts, each of `chunk_bytes` or one record."""
    first = size = 0
    for place, (key, value) in enumerate(zip(chunk.keys, chunk.values, strict=True)):
        record = OVERHEAD + (size_of(key) or 0) + (size_of(value) or 0)
        if place > first and size + record > chunk_bytes:
            yield chunk._replace(
                keys=chunk.keys[first:place], values=chunk.values[first:place], size=size, refused=None
            )
            first, size = place, 0
        size += record
    yield chunk._replace(keys=chunk.keys[first:], values=chunk.values[first:], size=size)


def measured(keys: Column, values: Column, most_bytes: int) -> Chunk:
    """A chunk of these records, up to the first that is no bytes or has more than `most_bytes`, which is `refused`."""
    if keys.count(None) == len(keys) and set(map(type, values)) == {bytes}:
        # What most of them are, measured without a step of Python for each.
        sizes = list(map(len, cast(list[bytes], values)))
        largest = max(sizes) + OVERHEAD
        if largest <= most_bytes:
            return Chunk(keys, values, largest, sum(sizes) + OVERHEAD * len(values))
    largest = size = 0
    for place, (key, value) in enumerate(zip(keys, values, strict=True)):
        record = OVERHEAD + (size_of(key) or 0) + (size_of(value) or 0)
        if size_of(key) is None or size_of(value) is None or record > most_bytes:
            return Chunk(keys[:place], values[:place], largest, size, (key, value))
        largest, size = max(largest, record), size + record
    return Chunk(keys, values, largest, size)


def size_of(data: object) -> int | None:
    """Bytes of a key or value (0 of None); None if it cannot be one."""
    return (0 if data is None else len(data)) if isinstance(data, BYTES) else None


def refusal(
    topic: str, place: int, pair: tuple[bytes | None, bytes | None], limit: int
) -> TypeError | RecordTooLargeError:
    """The error for the record at this place (0 is the first of the call), which cannot be sent."""
    key, value = pair
    if not (isinstance(key, BYTES) and isinstance(value, BYTES)):
        return TypeError(f"record {place}: {what_is_wrong(key, value, ())}")
    return RecordTooLargeError(f"record {place}: {too_large(topic, key, value, limit)}")


def filled(
    keys: Column, values: Column, largest: int, timestamp: int, compression: Compression, batch_bytes: int
) -> Iterator[BatchBuilder]:
    """Batches of these records in their order, of at most `batch_bytes` unless one record has more.

    `largest`: bytes that one of them takes at most.
    """
    at = 0
    while at < len(values):
        builder = BatchBuilder(compression)
        # It ends with the record that reaches the limit: that one must fit.
        limit = max(batch_bytes - largest, builder.size + 1)
        at += builder.extend(timestamp, keys[at:] if at else keys, values[at:] if at else values, limit)
        yield builder


def filled_each(
    chunk: Chunk, numbers: Iterable[int], timestamp: int, compression: Compression, batch_bytes: int
) -> Iterator[tuple[int, BatchBuilder]]:
    """Partition and batch for each batch of records that have partitions, timestamps and headers of their own.

    `numbers`: the partition of each record.  `timestamp`: milliseconds, for those that have none.  Else as `filled`.
    """
    building: dict[int, BatchBuilder] = {}
    for number, key, value, (_, time, headers) in zip(numbers, chunk.keys, chunk.values, chunk.own or (), strict=True):
        record = timestamp if time == NOW else time, key, value, headers
        builder = building.get(number)
        if builder is not None and builder.append(*record, limit=batch_bytes):
            continue
        if builder is not None:
            yield number, builder
        builder = building[number] = BatchBuilder(compression)
        builder.append(*record)
    yield from building.items()
