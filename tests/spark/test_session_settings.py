"""What a write sets in the session of its rows, and leaves there."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack
from types import SimpleNamespace
from typing import TYPE_CHECKING, cast

import pyarrow as pa
import pytest
from tests.spark.places import Place

from fencepost.spark import Sink
from fencepost.spark.session_settings import AT_ONCE, MOST_AT_ONCE, little_at_once

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

ROWS = 4000
"""Of 1 KB, in one Spark partition: fewer than Spark hands over together by their number."""


def how_many_came_together(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    for batch in batches:
        count = pa.array([str(batch.num_rows)] * batch.num_rows)
        yield pa.RecordBatch.from_arrays([count], ["value"])


class Conf(dict[str, str]):
    """What is set in a session."""

    def __init__(self, interrupt: BaseException | None = None) -> None:
        super().__init__()
        self._interrupt = interrupt

    def set(self, name: str, value: str) -> None:
        self[name] = value
        if self._interrupt is not None:
            raise self._interrupt

    def unset(self, name: str) -> None:
        self.pop(name, None)


def session(conf: Conf) -> SparkSession:
    return cast("SparkSession", SimpleNamespace(conf=conf))


def test_what_somebody_sets_while_a_write_runs_stays() -> None:
    conf = Conf()
    with little_at_once(session(conf)):
        assert conf == {MOST_AT_ONCE: str(AT_ONCE)}
        conf.set(MOST_AT_ONCE, "67108864")
    assert conf == {MOST_AT_ONCE: "67108864"}


def test_of_two_writes_at_once_the_first_that_began_takes_it_back_when_it_ends() -> None:
    conf = Conf()
    with ExitStack() as second:
        with little_at_once(session(conf)):
            second.enter_context(little_at_once(session(conf)))
        assert conf == {}
    assert conf == {}


def test_who_is_interrupted_as_it_is_set_leaves_nothing_set() -> None:
    """Spark has done it by then: the answer is what is not waited for."""
    conf = Conf(KeyboardInterrupt())
    with pytest.raises(KeyboardInterrupt), little_at_once(session(conf)):
        raise AssertionError("nothing is written")
    assert conf == {}


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
