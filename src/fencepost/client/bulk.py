"""Many records handed over in one call: how they are cut into chunks and batches.  Pure."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from itertools import islice, zip_longest
from typing import Final

from fencepost.client.errors import RecordTooLargeError
from fencepost.client.producer_record import BYTES, too_large, what_is_wrong
from fencepost.protocol.compression import Compression
from fencepost.protocol.records import BatchBuilder

#: Records that are taken at first, before their size is known, and at most.
_FIRST: Final = 16
_MOST: Final = 10_000
#: Bytes of a record beside its key and value, at most, where it has no headers.
_OVERHEAD: Final = 32

Pair = tuple[bytes | None, bytes | None]


def chunks(pairs: Iterator[Pair], chunk_bytes: int) -> Iterator[list[Pair]]:
    """Keys and values, so many at a time that they have about `chunk_bytes`."""
    most = _FIRST
    while chunk := list(islice(pairs, most)):
        size = sum(map(size_of, chunk)) // len(chunk)
        most = max(1, min(chunk_bytes // size, 4 * most, _MOST))
        yield chunk


def size_of(pair: Pair) -> int:
    """Bytes that a record takes at most, and about: what is no record is found later."""
    key, value = pair
    return (
        _OVERHEAD
        + (len(key) if isinstance(key, BYTES) and key else 0)
        + (len(value) if isinstance(value, BYTES) and value else 0)
    )


def first_refused(chunk: Sequence[Pair], most: int) -> int:
    """The place of the first that is no record, or has more than `most` bytes; the length if there is none."""
    for place, (key, value) in enumerate(chunk):
        if not (isinstance(key, BYTES) and isinstance(value, BYTES)) or size_of((key, value)) > most:
            return place
    return len(chunk)


def refusal(topic: str, place: int, pair: Pair, limit: int) -> TypeError | RecordTooLargeError:
    """Why the record at this place is not taken."""
    key, value = pair
    if not (isinstance(key, BYTES) and isinstance(value, BYTES)):
        return TypeError(f"record {place}: {what_is_wrong(key, value, ())}")
    return RecordTooLargeError(f"record {place}: {too_large(topic, key, value, limit)}")


def filled(pairs: Sequence[Pair], timestamp: int, compression: Compression, batch_bytes: int) -> Iterator[BatchBuilder]:
    """Batches of these records in their order, of at most `batch_bytes` unless one record has more."""
    at, largest = 0, max(map(size_of, pairs), default=0)
    keys, values = [pair[0] for pair in pairs], [pair[1] for pair in pairs]
    while at < len(pairs):
        builder = BatchBuilder(compression)
        # It ends with the record that reaches the limit: that one must fit.
        limit = max(batch_bytes - largest, builder.size + 1)
        at += builder.extend(timestamp, keys[at:] if at else keys, values[at:] if at else values, limit)
        yield builder


def paired(values: Iterable[bytes | None], keys: Iterable[bytes | None] | None) -> Iterator[Pair]:
    """Keys and values.  Raises ValueError at the end if there are not as many keys as values."""
    return ((None, value) for value in values) if keys is None else _paired(values, keys)


def _paired(values: Iterable[bytes | None], keys: Iterable[bytes | None]) -> Iterator[Pair]:
    ended = object()
    for pair in zip_longest(keys, values, fillvalue=ended):
        if ended in pair:
            raise ValueError("there are not as many keys as values: give one key, or None, for each value")
        yield pair  # type: ignore[misc]
