"""Columns that cannot be written as they are are named."""

from __future__ import annotations

from types import SimpleNamespace
from typing import cast

import pytest
from pyspark.sql import DataFrame
from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    DataType,
    DoubleType,
    IntegerType,
    LongType,
    NullType,
    StringType,
    StructField,
    StructType,
    TimestampType,
)

from fencepost.spark import Sink, routing
from fencepost.spark.attempt import Plan
from fencepost.spark.routing import check_columns


class Columns:
    """Of a DataFrame, its columns."""

    def __init__(self, **kinds: DataType) -> None:
        self.schema = StructType([StructField(name, kind) for name, kind in kinds.items()])
        self.columns = self.schema.fieldNames()


TEXT, DATA = StringType(), BinaryType()
HEADERS = ArrayType(StructType([StructField("key", TEXT), StructField("value", DATA)]))


@pytest.mark.parametrize(
    "columns",
    [
        Columns(value=TEXT),
        Columns(key=DATA, value=DATA, partition=IntegerType(), timestamp=TimestampType()),
        Columns(key=TEXT, value=NullType(), topic=TEXT, headers=HEADERS),
    ],
)
def test_columns_that_kafka_has_are_taken(columns: Columns) -> None:
    check_columns(cast(DataFrame, columns), None if "topic" in columns.columns else "out")


@pytest.mark.parametrize(
    ("columns", "named"),
    [
        (Columns(value=DoubleType()), "the column value is double: it must be string or binary"),
        (Columns(value=StructType([StructField("a", TEXT)])), "the column value is struct<a:string>"),
        (Columns(value=TEXT, key=LongType()), "the column key is bigint"),
        (Columns(value=TEXT, partition=TEXT), "the column partition is string: it must be int"),
        (Columns(value=TEXT, timestamp=LongType()), "the column timestamp is bigint"),
        (Columns(value=TEXT, headers=ArrayType(TEXT)), "the column headers is array<string>"),
        (Columns(value=TEXT, topic=TEXT), "give one of them"),
        (Columns(key=TEXT), "it must have value"),
        (Columns(value=TEXT, more=TEXT), "it must have value"),
    ],
)
def test_columns_that_cannot_be_written_are_named(columns: Columns, named: str) -> None:
    """Spark's own sink refuses them too; as text they would be what Spark shows."""
    with pytest.raises(ValueError, match=named):
        check_columns(cast(DataFrame, columns), "out")


def test_a_column_that_is_there_twice_is_named() -> None:
    columns = Columns(key=TEXT, value=TEXT)
    columns.columns = ["key", "value", "value"]
    with pytest.raises(ValueError, match=r"has a column value twice"):
        check_columns(cast(DataFrame, columns), "out")


@pytest.mark.parametrize("codec", ["", "snapy", "ZIP"])
def test_a_codec_that_there_is_not_is_named_at_once(codec: str) -> None:
    with pytest.raises(ValueError, match="it must be one of none, gzip, snappy, lz4, zstd"):
        Sink("app", "nowhere:1", ["out"], compression=codec)


class Rows(Columns):
    """A DataFrame of which only what Spark's partitions become is looked at."""

    partitions = 0

    def same(self, *_: object) -> Rows:
        return self

    select = mapInArrow = same

    def repartitionById(self, count: int, number: int) -> Rows:
        assert number == 1000 % count
        self.partitions = count
        return self


@pytest.mark.parametrize("slots", [1, 2, 7])
def test_each_slot_has_a_task(slots: int, monkeypatch: pytest.MonkeyPatch) -> None:
    class Target(int):
        def cast(self, _: str) -> Target:
            return self

        alias = cast

    rows, plan = (
        Rows(value=DATA),
        SimpleNamespace(counts={"out": 9}, batch_bytes=1000, slots=dict.fromkeys(range(slots))),
    )
    monkeypatch.setattr(routing, "sf", SimpleNamespace(col=lambda _: Target(1000), lit=lambda _: Target(0)))
    routing.route(cast(DataFrame, rows), "out", cast(Plan, plan))
    assert rows.partitions == slots
