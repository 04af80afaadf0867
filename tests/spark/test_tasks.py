"""What a task reports has the same columns everywhere, and rows become batches whole and in their order."""

from __future__ import annotations

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fencepost.protocol.batch import headers
from fencepost.protocol.compression import Compression
from fencepost.protocol.records import BatchBuilder, decode_batch
from fencepost.spark.claims import Written
from fencepost.spark.tasks import _RESULT_SCHEMA, RESULT, _fill


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
