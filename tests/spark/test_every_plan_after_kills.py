"""Queries with state of every kind, killed at every step of a micro-batch, write what one does that nothing befell.

A query is killed by an error that leaves open what is open, and goes on with a copy of its checkpoint as it was then:
as after kill -9 nothing else is left (tests/soak has the real one).
"""

from __future__ import annotations

import shutil
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import pytest
from tests.spark.killed_queries import PARTITIONS, feed, make_source, written
from tests.spark.plans_with_state import PLANS, Plan
from tests.spark.stateful_query import MOST, STORES

from fencepost.broker import Broker
from fencepost.client.blocking import Admin
from fencepost.spark import Sink, foreach_batch

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

#: Seconds of event time, with two records each in every source.
FED: Final = 50
SOURCES: Final = ("events-of-plans", "others-of-plans")
Deed = tuple[str, int]
"""A step, and the micro-batch in which the query is killed there.

begun: before anything is asked of the cluster.  written: all tasks are done, the transaction is open.  committed, and
skipped: Spark does not know, nor is its state made up for.  done: only Spark's own file is missing.
"""
EVERY: Final[Sequence[Deed]] = [
    *(("begun", 0), ("written", 0), ("committed", 0), ("skipped", 0), ("done", 0)),
    *(("begun", 1), ("written", 1), ("committed", 1), ("skipped", 1), ("done", 1), ("skipped", 1)),
    *(("written", 2), ("committed", 2), ("done", 2)),
]


class Killed(BaseException):
    """It is no error that anybody would handle."""


class Query:
    """One query over its lives."""

    def __init__(self, spark: SparkSession, servers: str, plan: Plan, name: str, folder: Path) -> None:
        self._spark, self._servers, self._plan, self._name = spark, servers, plan, name
        self._folder = folder
        self._checkpoint = folder / name
        with Admin(servers) as admin:
            admin.create_topic(name, partitions=PARTITIONS)

    def live(self, number: int = 0, deed: Deed | None = None) -> bool:
        """Until it is done, or killed there; whether it was killed."""
        left = self._folder / f"{self._name} {number}"

        def reached(step: str, batch_id: int) -> None:
            if (step, batch_id) == deed and not left.exists():
                shutil.copytree(self._checkpoint, left)
                raise Killed

        def begun(rows: DataFrame, batch_id: int) -> DataFrame:
            reached("begun", batch_id)
            return rows

        def write(batch: DataFrame, batch_id: int) -> None:
            try:
                inner(batch, batch_id)
                reached("done", batch_id)
            except Killed:
                raise RuntimeError("killed") from None

        watch = lambda step, batch_id: reached(step.name.lower(), batch_id)  # noqa: E731
        sink = Sink(self._name, self._servers, [self._name], watch=watch)
        inner = foreach_batch(sink, str(self._checkpoint), topic=self._name, transform=begun)
        rows = self._plan.build(*map(self._source, SOURCES[: self._plan.sources]))
        writer = rows.writeStream.outputMode(self._plan.mode).foreachBatch(write).trigger(availableNow=True)
        query = writer.option("checkpointLocation", str(self._checkpoint)).start()
        try:
            query.awaitTermination()
        except Exception as error:
            if not left.exists() or "killed" not in str(error):
                raise
            self._checkpoint = left
            return True
        finally:
            sink.close()
        return False

    def _source(self, topic: str) -> DataFrame:
        options = {"kafka.bootstrap.servers": self._servers, "subscribe": topic, "startingOffsets": "earliest"}
        source = self._spark.readStream.format("fencepost").options(**options)
        return source.option("maxOffsetsPerTrigger", MOST).load()


@pytest.fixture(scope="module")
def servers(broker: Broker) -> str:
    for topic in SOURCES:
        make_source(broker.bootstrap_servers, topic)
        feed(broker.bootstrap_servers, range(FED), topic)
    return broker.bootstrap_servers


@pytest.fixture
def store(request: Any, spark: SparkSession) -> Iterator[str]:
    for name, value in STORES[request.param].items():
        spark.conf.set(name, value)
    yield request.param
    for name in STORES[request.param]:
        spark.conf.unset(name)


def judge(spark: SparkSession, servers: str, plan: str, deeds: Sequence[Deed], folder: Path) -> None:
    whole = Query(spark, servers, PLANS[plan], f"whole-{folder.name}", folder)
    assert not whole.live()
    query = Query(spark, servers, PLANS[plan], f"killed-{folder.name}", folder)
    assert all(query.live(*each) for each in enumerate(deeds))
    assert not query.live()
    expected = written(servers, f"whole-{folder.name}")
    assert expected and written(servers, f"killed-{folder.name}") == expected


@pytest.mark.parametrize(
    ("plan", "store", "deeds"),
    [
        ("windows", "rocksdb, format 2", [("committed", 1)]),
        pytest.param(
            *("counts, update", "default", [("written", 0), ("committed", 1), ("done", 1)]), marks=pytest.mark.soak
        ),
    ],
    indirect=["store"],
)
@pytest.mark.usefixtures("store")
def test_a_query_that_is_killed_writes_what_one_does_that_nothing_befell(
    spark: SparkSession, servers: str, plan: str, deeds: Sequence[Deed], tmp_path: Path
) -> None:
    judge(spark, servers, plan, deeds, tmp_path)


@pytest.mark.soak
@pytest.mark.parametrize("store", STORES, indirect=True)
@pytest.mark.parametrize("plan", PLANS)
def test_a_query_that_is_killed_at_every_step_writes_what_one_does_that_nothing_befell(
    spark: SparkSession, servers: str, plan: str, store: str, tmp_path: Path
) -> None:
    if PLANS[plan].needs_rocksdb and store == "default":
        pytest.skip("Spark's default store does not keep such state")
    judge(spark, servers, plan, EVERY, tmp_path)
