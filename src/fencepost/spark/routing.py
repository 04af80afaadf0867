"""Routes rows to the tasks that write them: those of one topic-partition to one task, as record batches."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Final

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as sf
from pyspark.sql.types import NullType

from fencepost.spark.attempt import Plan
from fencepost.spark.encoding import ENCODED, Ahead, Encoder

#: column -> what it may be, as Spark's own Kafka sink has them
KINDS: Final[Mapping[str, tuple[str, ...]]] = {
    "topic": ("string",),
    "partition": ("int",),
    "key": ("string", "binary"),
    "value": ("string", "binary"),
    "timestamp": ("timestamp",),
    "headers": ("array<struct<key:string,value:binary>>",),
}


def check_columns(df: DataFrame, topic: str | None) -> None:
    """Raises ValueError if the columns of the rows are not those of records; the message says what to do."""
    have = df.columns
    unknown = [name for name in have if name not in KINDS]
    if unknown or "value" not in have:
        raise ValueError(
            f"the DataFrame has the columns {', '.join(have)}: it must have value, and may have key, topic, partition, "
            "timestamp and headers; use select() to name them so"
        )
    twice = [name for name in KINDS if have.count(name) > 1]
    if twice:
        raise ValueError(f"the DataFrame has a column {twice[0]} twice: use select() or drop() to have it once")
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


def route(df: DataFrame, topic: str | None, plan: Plan, ahead: Callable[[], Ahead] | None = None) -> DataFrame:
    """The rows as record batches (`encoding.ENCODED`), each topic-partition in a Spark partition, one for each slot.

    A row for another topic, or for a partition that its topic does not have,
    fails the task that computes it.  `ahead`: as of `Encoder`.
    """
    have = df.columns
    rows = df.select(
        # What nobody gave is left out: every column costs on its way to Python.
        *([sf.col("topic").cast("string")] if topic is None else []),
        *([sf.col("partition").cast("int")] if "partition" in have else []),
        _binary(df, "key").alias("key"),
        _binary(df, "value").alias("value"),
        *([sf.col("timestamp").cast("timestamp")] if "timestamp" in have else []),
        *([sf.col("headers")] if "headers" in have else []),
    )
    encoded = rows.mapInArrow(Encoder(topic, dict(plan.counts), plan.batch_bytes, ahead), ENCODED)
    slots = len(plan.slots)
    return encoded.repartitionById(slots, sf.col("target") % slots)


def _binary(df: DataFrame, name: str) -> Column:
    if name not in df.columns:
        return sf.lit(None).cast("binary")
    return sf.col(name).cast("binary")
