"""Records as Arrow batches, in the columns of Spark's own Kafka source.  Needs pyarrow and numpy."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from itertools import accumulate
from typing import Any, Final, TypeAlias

import numpy as np
import pyarrow as pa

from fencepost.compiled.in_use import compiled
from fencepost.protocol import record_kernel
from fencepost.protocol.batch import HEADER_SIZE, SMALLEST_RECORD, BatchHeader, body_of
from fencepost.protocol.records import decode_body
from fencepost.protocol.types import TopicPartition

_compiled_index = compiled(record_kernel.index_records)

_ROWS: Final = 20_000
_BYTES: Final = 4 * 1024 * 1024
_LARGEST_PLACE: Final = 0x7FFFFFFF
"""As far as Arrow counts the bytes of keys and values."""

_LATEST: Final = (2**63 - 1) // 1000
"""Milliseconds since 1970 that there are microseconds for."""

Portion: TypeAlias = list[tuple[BatchHeader, bytes | memoryview, int | None]]
"""Headers of batches, their records unfolded, and where those are in the answer; None: they were folded there."""

_MILLISECONDS: Final = pa.timestamp("ms", tz="UTC")
HEADERS: Final = pa.list_(pa.struct([pa.field("key", pa.string()), pa.field("value", pa.binary())]))
FIELDS: Final = {
    "key": pa.binary(),
    "value": pa.binary(),
    "topic": pa.string(),
    "partition": pa.int32(),
    "offset": pa.int64(),
    "timestamp": pa.timestamp("us", tz="UTC"),
    "timestampType": pa.int32(),
    "headers": HEADERS,
}


def record_batches(
    data: memoryview,
    batches: list[tuple[int, BatchHeader]],
    at: TopicPartition,
    start: int,
    end: int,
    columns: list[str],
) -> Iterator[pa.RecordBatch]:
    """The records in [start, end) of these batches in `data`, in the order of `columns`, some 20,000 at a time.

    Raises ProtocolError if they are damaged, and ValueError for a time that a column of microseconds has no room for.
    """
    for together in _portions(data, batches):
        found = None if _compiled_index is None else _indexed(data, together, at, start, end, columns)
        if found is None:
            found = _decoded(together, at, start, end, columns)
        if found.num_rows:
            yield found


def _portions(data: memoryview, batches: list[tuple[int, BatchHeader]]) -> Iterator[Portion]:
    """Batches that are handed over together, by the records that they claim and the size of those, unfolded."""
    portion: Portion = []
    rows = size = 0
    for at, header in batches:
        is_folded = bool(header.attributes & 7)  # what is not is not copied
        body = body_of(data, at, header) if is_folded else data[at + HEADER_SIZE : at + header.size]
        portion.append((header, body, None if is_folded else at + HEADER_SIZE))
        rows += header.record_count
        size += len(body)
        if rows >= _ROWS or size >= _BYTES:
            yield portion
            portion, rows, size = [], 0, 0
    if portion:
        yield portion


def _indexed(
    data: memoryview, portion: Portion, at: TopicPartition, start: int, end: int, columns: list[str]
) -> pa.RecordBatch | None:
    """The same without an object for any record.  None: Python is to do it, records have headers or are damaged."""
    assert _compiled_index is not None, "only where it is"
    if any(SMALLEST_RECORD * header.record_count > len(body) for header, body, _ in portion):
        return None
    memory, shifts = _memory(data, portion)
    if len(memory) > _LARGEST_PLACE:
        return None
    most = sum(max(header.record_count, 0) for header, _, _ in portion)
    places, nulls, kinds = np.empty(4 * most, np.int32), np.empty(most, np.uint8), np.empty(most, np.int32)
    offsets, timestamps = np.empty(most, np.int64), np.empty(most, np.int64)
    row = 0
    for (header, body, _), shift in zip(portion, shifts, strict=True):
        before, stamped = row, header.max_timestamp if header.is_log_append_time else None
        row = _compiled_index(
            *(body, shift, header.record_count, header.base_offset, header.base_timestamp, stamped, start, end),
            *(places, nulls, offsets, timestamps, row),
        )
        if row < 0:
            return None
        kinds[before:row] = header.attributes >> 3 & 1
    # Keys and values as pieces of the whole, between them what belongs to neither.
    buffers = [None, pa.py_buffer(places), pa.py_buffer(memory)]
    pieces = pa.Array.from_buffers(pa.binary(), max(4 * row - 1, 0), buffers)

    def every_fourth(first: int, null: int) -> pa.Array:
        wanted = np.arange(first, 4 * row, 4, dtype=np.int32)
        return pieces.take(pa.array(wanted, mask=(nulls[:row] & null).astype(bool)))

    made = {
        "key": lambda: every_fourth(0, 1),
        "value": lambda: every_fourth(2, 2),
        "offset": lambda: pa.array(offsets[:row]),
        "timestamp": lambda: _times(pa.array(timestamps[:row]), offsets, at),
        "timestampType": lambda: pa.array(kinds[:row]),
        "headers": lambda: pa.nulls(row, HEADERS),
    }
    return _record_batch([made[name]() if name in made else _same(name, at, row) for name in columns], columns)


def _memory(data: memoryview, portion: Portion) -> tuple[bytes | memoryview, list[int]]:
    """Memory in which all these bodies are, and where each begins there: where none was folded, that of the answer."""
    places = [place for _, _, place in portion if place is not None]
    if len(places) == len(portion):
        return data, places
    *begins, _ = accumulate((len(body) for _, body, _ in portion), initial=0)
    return b"".join(body for _, body, _ in portion), begins


def _times(milliseconds: pa.Array, offsets: Iterable[int], at: TopicPartition) -> pa.Array:
    """As microseconds.  Raises ValueError for a record whose time has no room so, as of the year 294,247 on."""
    try:
        return milliseconds.cast(_MILLISECONDS).cast(FIELDS["timestamp"])
    except pa.ArrowInvalid:
        times = zip(offsets, milliseconds.to_pylist(), strict=False)
        offset, time = next(each for each in times if abs(each[1]) > _LATEST)
        raise ValueError(
            f"{at.topic}-{at.partition} has a record at offset {offset} with the time {time} ms since 1970, which a "
            "column of microseconds has no room for: read it without the column timestamp"
        ) from None


def _same(name: str, at: TopicPartition, count: int) -> pa.Array:
    """A column that says the same of every record."""
    return pa.repeat(pa.scalar(at.topic if name == "topic" else at.partition, FIELDS[name]), count)


def _record_batch(made: list[pa.Array], columns: list[str]) -> pa.RecordBatch:
    return pa.RecordBatch.from_arrays(made, schema=pa.schema([pa.field(name, FIELDS[name]) for name in columns]))


def _decoded(portion: Portion, at: TopicPartition, start: int, end: int, columns: list[str]) -> pa.RecordBatch:
    rows: list[Any] = []
    kinds: list[int] = []
    for header, body, _ in portion:
        # The header may say less of its records than is in them.
        found = [record for record in decode_body(bytes(body), header) if start <= record.offset < end]
        rows += found
        kinds += [header.attributes >> 3 & 1] * len(found)
    return _batch(rows, kinds, at, columns)


def decoded_batch(rows: list[Any], at: TopicPartition, columns: list[str]) -> pa.RecordBatch:
    """Records that were decoded before: offset, timestamp, key, value and headers of each; the kind of time is null."""
    return _batch(rows, [None] * len(rows), at, columns)


def _batch(rows: list[Any], kinds: Sequence[int | None], at: TopicPartition, columns: list[str]) -> pa.RecordBatch:
    offsets, timestamps, keys, values, headers = zip(*rows, strict=True) if rows else ((), (), (), (), ())
    made = []
    for name in columns:
        kind = FIELDS[name]
        match name:
            case "key":
                made.append(pa.array(keys, kind))
            case "value":
                made.append(pa.array(values, kind))
            case "offset":
                made.append(pa.array(offsets, kind))
            case "timestamp":
                made.append(_times(pa.array(timestamps, pa.int64()), offsets, at))
            case "timestampType":
                made.append(pa.array(kinds, kind))
            case "headers":
                made.append(_headers(headers))
            case _:
                made.append(_same(name, at, len(rows)))
    return _record_batch(made, columns)


def _headers(headers: Any) -> pa.Array:
    listed = [[{"key": name, "value": value} for name, value in given] if given else None for given in headers]
    return pa.array(listed, HEADERS)
