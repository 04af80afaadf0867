"""Which task writes a row: all rows of one topic-partition go to one task.

The target is a function of the row alone, so that a row which is computed again goes where it went before.
"""

from __future__ import annotations

from collections.abc import Mapping
from struct import Struct
from typing import Any, Final

import numpy as np
import pyarrow as pa
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as sf
from pyspark.sql.pandas.functions import arrow_udf
from pyspark.sql.types import NullType

from fencepost.compiled.in_use import compiled
from fencepost.protocol import record_kernel

_M: Final = np.uint32(0x5BD1E995)
_SEED: Final = np.uint32(0x9747B28C)
_WORD: Final = Struct("<I")
_FEW: Final = 32
"""Values for which going on one by one takes less than going on with all of them at once."""

_compiled_murmur2 = compiled(record_kernel.murmur2)

#: column -> what it may be, as Spark's own Kafka sink has them
KINDS: Final[Mapping[str, tuple[str, ...]]] = {
    "topic": ("string",),
    "partition": ("int",),
    "key": ("string", "binary"),
    "value": ("string", "binary"),
    "timestamp": ("timestamp",),
    "headers": ("array<struct<key:string,value:binary>>",),
}


def murmur2(values: pa.Array) -> np.ndarray[Any, np.dtype[np.uint32]]:
    """The hash of Kafka's default partitioner, of every binary value; null counts as empty."""
    values = values.fill_null(b"")
    if _compiled_murmur2 is not None:
        return np.fromiter(map(_compiled_murmur2, values.to_pylist()), np.uint32, len(values))
    _, offsets_buffer, data_buffer = values.buffers()
    count = len(values)
    offsets = np.frombuffer(offsets_buffer, np.int32)[values.offset : values.offset + count + 1].astype(np.int64)
    data = np.frombuffer(data_buffer, np.uint8) if data_buffer is not None else np.zeros(0, np.uint8)
    lengths = np.diff(offsets)
    order = np.argsort(-lengths, kind="stable")
    starts, sizes = offsets[:-1][order], lengths[order]
    h = _SEED ^ sizes.astype(np.uint32)
    # Every place of the data as the word of four bytes that begins there.
    words = np.ndarray((max(len(data) - 3, 0),), "<u4", data, strides=(1,)) if len(data) else data.view("<u4")
    fours = sizes // 4
    with np.errstate(over="ignore"):
        for n in range(int(fours[0]) if count else 0):
            longer = int(np.searchsorted(-fours, -n, "left"))  # the longest come first
            if longer < _FEW:
                for row in range(longer):
                    words_left = data[starts[row] + 4 * n : starts[row] + 4 * fours[row]].tobytes()
                    h[row] = _mixed(int(h[row]), words_left)
                break
            k = words[starts[:longer] + 4 * n] * _M
            h[:longer] = h[:longer] * _M ^ (k ^ (k >> np.uint32(24))) * _M
        rest = sizes % 4
        tail = np.zeros(count, np.uint32)
        for n in range(3):
            more = np.flatnonzero(rest > n)
            tail[more] |= data[starts[more] + 4 * fours[more] + n].astype(np.uint32) << np.uint32(8 * n)
        h = np.where(rest > 0, (h ^ tail) * _M, h)
        h = (h ^ (h >> np.uint32(13))) * _M
        h ^= h >> np.uint32(15)
    found = np.empty(count, np.uint32)
    found[order] = h
    return found


def _mixed(h: int, words: bytes) -> int:
    """The state of a hash after some more whole words."""
    m = int(_M)
    for (word,) in _WORD.iter_unpack(words):
        k = word * m & 0xFFFFFFFF
        h = (h * m ^ (k ^ k >> 24) * m) & 0xFFFFFFFF
    return h


def hashed(key: Column, value: Column) -> Column:
    """Kafka's hash of a row's key, or where it has none, of its value: never by turns, since that would not repeat."""

    @arrow_udf("int")  # type: ignore[call-overload,untyped-decorator,unused-ignore]
    def hash_of(values: pa.Array) -> pa.Array:
        return pa.array((murmur2(values.cast(pa.binary())) & np.uint32(0x7FFFFFFF)).astype(np.int32))

    found: Column = hash_of(sf.coalesce(key, value, sf.lit(b"")))
    return found


def check_columns(df: DataFrame, topic: str | None) -> None:
    """Raises ValueError with what to do if the columns are not ones that can be written."""
    have = df.columns
    unknown = [name for name in have if name not in KINDS]
    if unknown or "value" not in have:
        raise ValueError(
            f"the DataFrame has the columns {', '.join(have)}: it must have value, and may have key, topic, partition, "
            "timestamp and headers; use select() to name them so"
        )
    if topic is None and "topic" not in have:
        raise ValueError("there is no topic to write to: give topic=..., or a column topic")
    if topic is not None and "topic" in have:
        raise ValueError("there is a column topic, and topic=... as well: give one of them")
    for name in have:
        kind = df.schema[name].dataType
        if kind.simpleString() not in (NullType().simpleString(), *KINDS[name]):
            raise ValueError(
                f"the column {name} is {kind.simpleString()}: it must be {' or '.join(KINDS[name])}. Say how it is to "
                "be written, as with cast() or to_json()"
            )


def route(df: DataFrame, topic: str | None, counts: Mapping[str, int], slots: int) -> DataFrame:
    """The rows with their target and slot, each topic-partition in one of `slots` Spark partitions.

    `counts`: topic -> number of partitions.  A row for another topic, or for a partition that its topic does not have,
    fails the task that computes it.
    """
    have = df.columns
    rows = df.select(
        (sf.lit(topic) if topic is not None else sf.col("topic")).alias("topic"),
        (sf.col("partition").cast("int") if "partition" in have else sf.lit(None).cast("int")).alias("partition"),
        _binary(df, "key").alias("key"),
        _binary(df, "value").alias("value"),
        # What nobody gave is left out: every column costs on its way to Python.
        *([sf.col("timestamp").cast("timestamp")] if "timestamp" in have else []),
        *([sf.col("headers")] if "headers" in have else []),
    )
    count, first = _by_topic(counts), _by_topic(_firsts(counts))
    hashes = sf.lit(0) if all(n == 1 for n in counts.values()) else hashed(sf.col("key"), sf.col("value"))
    rows = rows.withColumn("partition", sf.coalesce(sf.col("partition"), hashes % count))
    known = count.isNotNull() & (sf.col("partition") >= 0) & (sf.col("partition") < count)
    refusal = sf.concat(
        sf.lit("topic "),
        sf.coalesce(sf.col("topic"), sf.lit("null")),
        sf.when(count.isNull(), f" is not one of those of this write: {', '.join(sorted(counts))}").otherwise(
            sf.concat(sf.lit(" has no partition "), sf.col("partition").cast("string"))
        ),
    )
    target = sf.when(known, first + sf.col("partition")).otherwise(sf.raise_error(refusal).cast("int"))
    rows = rows.withColumn("target", target.cast("int")).drop("topic", "partition")
    return rows.repartitionById(slots, sf.col("target") % slots)


def _binary(df: DataFrame, name: str) -> Column:
    if name not in df.columns:
        return sf.lit(None).cast("binary")
    return sf.col(name).cast("binary")


def _firsts(counts: Mapping[str, int]) -> dict[str, int]:
    """Topic -> the place of its partition 0 among all targets."""
    first, total = {}, 0
    for name in sorted(counts):
        first[name], total = total, total + counts[name]
    return first


def _by_topic(numbers: Mapping[str, int]) -> Column:
    """The number of the row's topic, null if it has none."""
    return sf.create_map(*[sf.lit(item) for pair in sorted(numbers.items()) for item in pair])[sf.col("topic")]
