"""Turns the rows of Arrow tables into records, by the names of columns, in chunks.  Needs pyarrow and numpy.

Columns are those of `PartitionBatch.to_arrow`.  Pure.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import pairwise
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from fencepost.client.arguments import INT32
from fencepost.client.bulk import AS_ANY, MOST, NOW, OVERHEAD, Chunk, Own
from fencepost.client.errors import RecordTooLargeError
from fencepost.client.producer_record import LATEST, too_large
from fencepost.protocol.batch import HEADER_SIZE

#: What the log gives its records: it is given anew.
_OF_THE_LOG: Final = ("offset", "timestampType")
#: How the columns begin that pandas makes of an index without a name, which its owner does not see.
_INDEX: Final = "__index_level_"
_WRITTEN: Final = ("key", "value", "headers", "timestamp", "partition")
_HEADER_OVERHEAD: Final = 10
"""Bytes of a header beside its name and value, at most."""
_MORE_HEADERS: Final = 4
"""Bytes that a count of headers may have beside the first."""
_TO_MILLISECONDS: Final = {"s": (1000, 1), "ms": (1, 1), "us": (1, 1000), "ns": (1, 1_000_000)}
_TOO_MANY_CHUNKS: Final = 100
"""Rows: if the chunks of a column have fewer on average, they are combined; each would be a batch of its own."""

Numbers = np.ndarray[Any, np.dtype[np.int64]]


def table_of(rows: object) -> pa.Table:
    """The rows as an Arrow table.  Raises TypeError if they are no table, record batch or Arrow stream."""
    if isinstance(rows, pa.Table):
        return rows
    if isinstance(rows, pa.RecordBatch):
        return pa.Table.from_batches([rows])
    if hasattr(rows, "__arrow_c_stream__"):
        try:
            return pa.RecordBatchReader.from_stream(rows).read_all()
        except (pa.ArrowException, TypeError) as error:
            raise TypeError(f"the {type(rows).__name__} that is to be sent is no table ({error})") from error
    raise TypeError(
        f"a {type(rows).__name__} is to be sent: give a pyarrow Table or RecordBatch, or a data frame that is one "
        "(with __arrow_c_stream__)"
    )


class Rows:
    """The rows of a table, checked: every one of them can be a record.

    `limit`: bytes of the largest request; `given`: the names of arguments for all rows, which no column may have.
    Raises TypeError for a column of another kind, ValueError for an unknown or a missing one and for what no record may
    have, and RecordTooLargeError.
    """

    def __init__(self, topic: str, rows: object, limit: int, given: Sequence[str] = ()) -> None:
        table = table_of(rows)
        _check_names(table.schema.names, given)
        if any(len(each.chunks) * _TOO_MANY_CHUNKS > table.num_rows for each in table.columns):
            table = table.combine_chunks()
        self._names = frozenset(table.schema.names)
        self._batches: list[tuple[pa.RecordBatch, Numbers]] = []
        self.largest_partition = -1
        """The largest partition number that a row names; -1: none does."""
        place = 0
        for batch in table.to_batches() or [pa.RecordBatch.from_pylist([], schema=table.schema)]:
            try:
                sizes = self._checked(batch)
            except _RowError as error:
                raise error.at(place) from None
            amiss = np.flatnonzero(sizes > limit - HEADER_SIZE)
            if len(amiss):
                row = int(amiss[0])
                [key], [value] = (_bytes(batch.slice(row, 1), name) for name in ("key", "value"))
                raise RecordTooLargeError(f"row {place + row}: {too_large(topic, key, value, limit)}")
            self._batches.append((batch, sizes))
            place += batch.num_rows

    def _checked(self, batch: pa.RecordBatch) -> Numbers:
        """The bytes that each of these rows takes at most.  Raises TypeError, ValueError if a row can be no record."""
        sizes = np.full(batch.num_rows, OVERHEAD, np.int64)
        for name in ("key", "value"):
            if name in self._names:
                sizes += _numbers(pc.binary_length(_plain(batch, name)), 0)
        if "headers" in self._names:
            names, values, ends = _headers(batch)
            each = _numbers(pc.binary_length(names), 0) + _numbers(pc.binary_length(values), 0) + _HEADER_OVERHEAD
            until = np.concatenate(([0], np.cumsum(each)))[ends]
            sizes += np.diff(until) + _MORE_HEADERS
        if "timestamp" in self._names:
            _times(batch)
        if "partition" in self._names:
            self.largest_partition = int(_partitions(batch).max(initial=self.largest_partition))
        return sizes

    def chunks(self, chunk_bytes: int) -> Iterator[Chunk]:
        """All rows in their order, in chunks of about `chunk_bytes` and at most 1,000 records."""
        for batch, sizes in self._batches:
            ends = np.cumsum(sizes)
            start = 0
            while start < batch.num_rows:
                before = int(ends[start - 1]) if start else 0
                stop = int(np.searchsorted(ends, before + chunk_bytes, side="right"))
                stop = max(start + 1, min(stop, start + MOST))
                part, some = batch.slice(start, stop - start), sizes[start:stop]
                yield Chunk(
                    _bytes(part, "key"), _bytes(part, "value"), int(some.max()), int(some.sum()), own=self._own(part)
                )
                start = stop

    def _own(self, part: pa.RecordBatch) -> list[Own] | None:
        """Partition, timestamp (ms) and headers of each row; None if there is no column of these."""
        count, columns = part.num_rows, self._names
        if not columns & {"headers", "timestamp", "partition"}:
            return None
        partitions = _partitions(part).tolist() if "partition" in columns else [AS_ANY] * count
        times = _times(part).tolist() if "timestamp" in columns else [NOW] * count
        headers: list[Any] = [()] * count
        if "headers" in columns and part.column("headers").null_count < count:
            names, values, ends = _headers(part)
            pairs = list(zip(_listed(names), _listed(values), strict=True))
            headers = [pairs[first:last] if last > first else () for first, last in pairwise(ends.tolist())]
        if not columns & {"timestamp", "partition"} and not any(headers):
            return None
        return list(zip(partitions, times, headers, strict=True))


class _RowError(ValueError):
    """One of these rows, the first for which `wrong` is true, can be no record; the message says why."""

    def __init__(self, wrong: pa.Array | Numbers, what: str) -> None:
        super().__init__(what)
        self._row = int(np.flatnonzero(np.asarray(wrong))[0])

    def at(self, place: int) -> ValueError:
        return ValueError(f"row {place + self._row}: {self}")


def _check_names(names: Sequence[str], given: Sequence[str]) -> None:
    for name in names:
        if names.count(name) > 1:
            raise ValueError(f"there are {names.count(name)} columns {name!r}: leave one")
        if name == "topic":
            raise ValueError("there is a column 'topic': all rows go to the topic that is given; drop that column")
        if name not in (*_WRITTEN, *_OF_THE_LOG) and not name.startswith(_INDEX):
            raise ValueError(f"a column {name!r} cannot be sent: rename it to one of {', '.join(_WRITTEN)}, or drop it")
        if name in given:
            raise ValueError(f"{name} is given for all rows and as a column: give one of them")
    if "value" not in names:
        raise ValueError("there is no column 'value': rename the one that has the values, as table.rename_columns does")


def _is_text(kind: pa.DataType) -> bool:
    return any(getattr(pa.types, f"is_{name}")(kind) for name in ("string", "large_string", "string_view"))


def _is_bytes(kind: pa.DataType) -> bool:
    names = ("binary", "large_binary", "binary_view", "fixed_size_binary")
    return any(getattr(pa.types, f"is_{name}")(kind) for name in names)


def _without_dictionary(column: pa.Array) -> pa.Array:
    if not pa.types.is_dictionary(column.type):
        return column
    values = column.dictionary
    # Of views, as the categories of polars, Arrow takes no entries.
    if pa.types.is_string_view(values.type):
        values = values.cast(pa.large_string())
    elif pa.types.is_binary_view(values.type):
        values = values.cast(pa.large_binary())
    return values.take(column.indices)


def _plain_bytes(column: pa.Array, said: str) -> pa.Array:
    """A column of bytes or text as large_binary, text as UTF-8.  Raises TypeError for any other column."""
    given = column.type
    column = _without_dictionary(column)
    if pa.types.is_null(column.type):
        return pa.nulls(len(column), pa.large_binary())
    if not (_is_text(column.type) or _is_bytes(column.type)):
        raise TypeError(f"{said} is {given}: cast it to pa.binary(), or to pa.string() to have it written as UTF-8")
    if pa.types.is_fixed_size_binary(column.type):
        column = column.cast(pa.binary())
    return column.cast(pa.large_binary())


def _plain(batch: pa.RecordBatch, name: str) -> pa.Array:
    return _plain_bytes(batch.column(name), f"column {name!r}")


def _listed(column: pa.Array) -> list[Any]:
    """The values of a column as Python objects, without a scalar of Arrow for each."""
    found: list[Any] = column.to_numpy(zero_copy_only=False).tolist()
    return found


def _bytes(part: pa.RecordBatch, name: str) -> list[bytes | None]:
    return _listed(_plain(part, name)) if name in part.schema.names else [None] * part.num_rows


def _numbers(column: pa.Array, instead: int) -> Numbers:
    """The numbers of a column as int64, `instead` in place of null."""
    found: Numbers = column.cast(pa.int64()).fill_null(instead).to_numpy(zero_copy_only=False)
    return found


def _beyond(column: pa.Array, most: int) -> pa.Array:
    """Which of these whole numbers are not from 0 to `most`, both included; null stays null."""
    if pa.types.is_uint64(column.type):
        return pc.greater(column, pa.scalar(most, pa.uint64()))
    column = column.cast(pa.int64())
    return pc.or_(pc.less(column, 0), pc.greater(column, most))


def _partitions(batch: pa.RecordBatch) -> Numbers:
    """The partition of each row, AS_ANY where none is said.  Raises TypeError, ValueError."""
    column = batch.column("partition")
    if pa.types.is_null(column.type):
        return np.full(len(column), AS_ANY, np.int64)
    if not pa.types.is_integer(column.type):
        raise TypeError(f"column 'partition' is {column.type}: cast it to pa.int32()")
    wrong = _beyond(column, INT32)
    if pc.any(wrong).as_py():
        raise _RowError(
            wrong.fill_null(False),
            "its partition is no number of a partition: leave it null to have one chosen by the key",
        )
    return _numbers(column, AS_ANY)


def _times(batch: pa.RecordBatch) -> Numbers:
    """The timestamp of each row in milliseconds since 1970, NOW where none is said.  Raises TypeError, ValueError."""
    column = batch.column("timestamp")
    if pa.types.is_null(column.type):
        return np.full(len(column), NOW, np.int64)
    many, few = 1, 1
    if pa.types.is_timestamp(column.type) and column.type.tz is not None:
        many, few = _TO_MILLISECONDS[column.type.unit]
    elif pa.types.is_timestamp(column.type):
        raise TypeError(
            f"column 'timestamp' is {column.type}, without a time zone: pc.assume_timezone says which one is meant"
        )
    elif not pa.types.is_integer(column.type):
        raise TypeError(
            f"column 'timestamp' is {column.type}: cast it to pa.timestamp('ms', 'UTC'), or to pa.int64(), in "
            "milliseconds since 1970"
        )
    if not pa.types.is_integer(column.type):
        column = column.cast(pa.int64())
    wrong = _beyond(column, LATEST // many)
    if pc.any(wrong).as_py():
        raise _RowError(wrong.fill_null(False), "its timestamp is before 1970, or later than a record can have")
    return np.where(np.asarray(column.is_null()), NOW, _numbers(column, 0) * many // few)


def _headers(batch: pa.RecordBatch) -> tuple[pa.Array, pa.Array, Numbers]:
    """Names and values of all headers, and the places in these where each row's begin and, as the next number, end.

    Raises TypeError, ValueError.
    """
    column = batch.column("headers")
    kind = column.type
    if pa.types.is_null(kind):
        return pa.nulls(0, pa.string()), pa.nulls(0, pa.large_binary()), np.zeros(len(column) + 1, np.int64)
    is_list = pa.types.is_list(kind) or pa.types.is_large_list(kind)
    entries = kind.value_type if is_list else None
    if entries is None or not pa.types.is_struct(entries) or {field.name for field in entries} != {"key", "value"}:
        raise TypeError(f"column 'headers' is {kind}: it must be a list of structs of key (string) and value (binary)")
    counts = _numbers(pc.list_value_length(column), 0)
    ends = np.concatenate(([0], np.cumsum(counts)))
    flat = column.flatten()
    names, values = (_without_dictionary(pc.struct_field(flat, each)) for each in ("key", "value"))
    if pa.types.is_null(names.type):
        names = names.cast(pa.string())
    if not _is_text(names.type):
        raise TypeError(f"the keys of column 'headers' are {names.type}: cast them to pa.string()")
    of_row = np.repeat(np.arange(len(column)), counts)
    if names.null_count:
        wrong = np.isin(np.arange(len(column)), of_row[np.asarray(names.is_null())])
        raise _RowError(wrong, "it has a header that is null, or has no key: leave that out of the column headers")
    names = names.cast(pa.large_string())
    if not _is_utf_8(names):
        first = next(place for place, name in enumerate(names) if not _is_utf_8(pa.array([name])))
        wrong = np.arange(len(column)) == of_row[first]
        raise _RowError(wrong, "it has a header whose key is no UTF-8, though its column says that it is text")
    return names, _plain_bytes(values, "the value of column 'headers'"), ends


def _is_utf_8(text: pa.Array) -> bool:
    """Whether all of a column of text is UTF-8: Arrow looks at no text that it reads, or that is cast."""
    try:
        text.validate(full=True)
    except pa.ArrowInvalid:
        return False
    return True
