"""What a write sets in the session of its rows, and leaves there."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import pyarrow as pa
import pytest
from tests.spark.places import Place

from fencepost.spark import Sink
from fencepost.spark.session_settings import AT_ONCE, MOST_AT_ONCE

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

ROWS = 4000
"""Of 1 KB, in one Spark partition: fewer than Spark hands over together by their number."""


def how_many_came_together(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    for batch in batches:
        count = pa.array([str(batch.num_rows)] * batch.num_rows)
        yield pa.RecordBatch.from_arrays([count], ["value"])


@pytest.fixture
def most(request: pytest.FixtureRequest, spark: SparkSession) -> Iterator[str | None]:
    """What the session says of it."""
    if request.param is not None:
        spark.conf.set(MOST_AT_ONCE, request.param)
    yield request.param
    spark.conf.unset(MOST_AT_ONCE)


@pytest.mark.parametrize(
    ("most", "together"), [(None, AT_ONCE // 1000), ("67108864", ROWS), ("100000", 100)], indirect=["most"]
)
def test_rows_go_to_python_in_small_pieces_unless_the_session_says_how_large_they_are(
    spark: SparkSession, place: Place, most: str | None, together: int
) -> None:
    sink = Sink(place.application, place.servers, [place.target])
    rows = spark.range(0, ROWS, 1, 1).selectExpr("repeat('v', 1000) as value")
    assert sink.write(rows.mapInArrow(how_many_came_together, "value string"), 0, "q", topic=place.target)
    sink.close()
    found = place.shown()
    assert len(found) == ROWS and 0.9 * together <= max(found) <= 1.1 * together
    assert spark.conf.get(MOST_AT_ONCE, None) == most
