"""What a task reports has the same columns everywhere, and rows become batches whole and in their order."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime, timedelta
from typing import Any, NamedTuple, cast

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fencepost.client.batches import Headers
from fencepost.client.shared_transaction import Ticket
from fencepost.protocol.batch import headers
from fencepost.protocol.compression import Compression
from fencepost.protocol.records import BatchBuilder, decode_batch
from fencepost.protocol.types import ProducerIdAndEpoch, TopicPartition
from fencepost.runtime import SystemClock
from fencepost.spark.attempt import Attempt, Plan
from fencepost.spark.claims import Written
from fencepost.spark.tasks import _RESULT_SCHEMA, RESULT, _fill, _send


def test_a_report_has_the_columns_that_spark_is_told() -> None:
    assert [column.split()[0] for column in RESULT.split(",")] == list(Written._fields) == _RESULT_SCHEMA.names


ROWS = st.lists(st.tuples(st.integers(0, 2), st.binary(max_size=40)), max_size=12)


@given(ROWS, st.booleans())
def test_every_row_gets_into_one_batch_of_its_target(rows: list[tuple[int, bytes]], with_time: bool) -> None:
    columns: dict[str, list[object]] = {"target": [row[0] for row in rows], "key": [None] * len(rows)}
    columns["value"] = [row[1] for row in rows]
    if with_time:
        columns["timestamp"] = [7] * len(rows)
    types = [("target", pa.int32()), ("key", pa.binary()), ("value", pa.binary()), ("timestamp", pa.timestamp("us"))]
    schema = pa.schema([(name, kind) for name, kind in types if name in columns])
    building: dict[int, BatchBuilder] = {}
    full = _fill(building, pa.RecordBatch.from_pydict(columns, schema=schema), Compression.NONE)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("fencepost.spark.tasks._BATCH_BYTES", 200)
        batches = [(target, building.pop(target)) for target in full]
    batches += building.items()
    for target in range(3):
        values = [
            record.value
            for to, builder in batches
            if to == target
            for at, header in headers(memoryview(builder.build()))
            for record in decode_batch(memoryview(builder.build()), at, header)
        ]
        assert values == [value for to, value in rows if to == target]


class Recording:
    """An attempt that keeps what it is given."""

    def __init__(self) -> None:
        self.written: dict[TopicPartition, list[tuple[int, bytes | None, bytes | None, Headers]]] = {}

    async def write(self, at: TopicPartition, records: BatchBuilder) -> None:
        data = memoryview(records.build())
        for place, header in headers(data):
            found = decode_batch(data, place, header)
            assert len(found) == header.record_count > 0
            kept = [(each.timestamp, each.key, each.value, tuple(each.headers)) for each in found]
            self.written.setdefault(at, []).extend(kept)


class Row(NamedTuple):
    target: int
    key: bytes | None
    value: bytes | None
    timestamp: datetime | None
    headers: list[dict[str, Any]] | None


COUNTS = {"late": 1, "early": 2}
#: As `route` numbers them: by the names of the topics, then by partition.
PLACES = [TopicPartition("early", 0), TopicPartition("early", 1), TopicPartition("late", 0)]
BYTES = st.one_of(st.none(), st.binary(max_size=60))
MOMENTS = st.integers(0, 4 * 10**15).map(lambda n: datetime.fromtimestamp(0, UTC) + timedelta(microseconds=n))
HEADERS = st.lists(st.fixed_dictionaries({"key": st.text(max_size=3), "value": BYTES}), max_size=2)
ARROW = {
    "target": pa.int32(),
    "key": pa.binary(),
    "value": pa.binary(),
    "timestamp": pa.timestamp("us", tz="UTC"),
    "headers": pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())])),
}


@settings(max_examples=40)
@given(
    st.lists(
        st.lists(
            st.builds(Row, st.integers(0, 2), BYTES, BYTES, st.one_of(st.none(), MOMENTS), st.none() | HEADERS),
            max_size=9,
        ),
        max_size=3,
    ),
    st.sets(st.sampled_from(["timestamp", "headers"])),
    st.sampled_from(Compression),
)
def test_every_row_of_a_task_is_written_where_it_is_to_go_whole_and_in_order(
    batches: list[list[Row]], extra: set[str], compression: Compression
) -> None:
    names = ["target", "key", "value", *sorted(extra)]
    schema = pa.schema([(name, ARROW[name]) for name in names])
    arrow = [
        pa.RecordBatch.from_pylist([{name: getattr(row, name) for name in names} for row in rows], schema=schema)
        for rows in batches
    ]
    plan = Plan("app", Ticket("app", ProducerIdAndEpoch.of(1, 0), True), {}, COUNTS, compression)
    recording, began = Recording(), SystemClock().now()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("fencepost.spark.tasks._BATCH_BYTES", 150)
        given_rows = asyncio.run(_send(cast(Attempt, recording), plan, iter(arrow)))
    assert given_rows == sum(map(len, batches))
    for number, at in enumerate(PLACES):
        expected = [row for rows in batches for row in rows if row.target == number]
        written = recording.written.get(at, [])
        assert [(key, value) for _, key, value, _ in written] == [(row.key, row.value) for row in expected]
        for (timestamp, _, _, kept), row in zip(written, expected, strict=True):
            if "timestamp" in extra and row.timestamp is not None:
                assert timestamp == (row.timestamp - datetime.fromtimestamp(0, UTC)) // timedelta(milliseconds=1)
            else:
                assert began <= timestamp <= SystemClock().now()
            wanted = row.headers if "headers" in extra else None
            assert kept == tuple((each["key"], each["value"]) for each in wanted or ())
