"""The query whose micro-batch a thread runs, as Spark's driver knows it."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final
from uuid import UUID

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

QUERY_ID: Final = "sql.streaming.queryId"
"""Spark's name for the id of the query whose micro-batch a thread runs."""


def stop_of(spark: SparkSession) -> Callable[[], bool] | None:
    """A function that says, in any thread, whether the query is to end whose micro-batch this thread runs; None: none.

    Spark interrupts that thread somewhere, and cancels jobs; what is raised does not tell that from an accident.
    """
    asked = _asked_for(spark)
    if asked is None:
        return None
    queries, key = asked

    def is_stopped() -> bool:
        query = queries.get(key)
        return query is None or not query.isActive()

    return is_stopped


def query_of(spark: SparkSession) -> Any:
    """Spark's own object of the query whose micro-batch this thread runs; None: it runs none."""
    asked = _asked_for(spark)
    return None if asked is None else asked[0].get(asked[1])


def query_named(spark: SparkSession, query_id: str) -> Any:
    """Spark's own object of the query with this id that runs in this process, whatever this thread does; None: none."""
    try:
        key = str(UUID(query_id))
    except ValueError:  # it is an id of somebody's own
        return None
    queries, uuid = _queries(spark)
    return queries.get(uuid.fromString(key))


def _asked_for(spark: SparkSession) -> tuple[Any, Any] | None:
    """Spark's queries, and under which key the one is found whose micro-batch this thread runs; None: it runs none."""
    query_id = spark.sparkContext.getLocalProperty(QUERY_ID)
    if query_id is None:
        return None
    queries, uuid = _queries(spark)
    return queries, uuid.fromString(query_id)


def _queries(spark: SparkSession) -> tuple[Any, Any]:
    """Spark's queries, by id, and Java's class of these ids."""
    # Micro-batches have a session of their own, whose `streams` knows nothing of the query.
    jvm: Any = spark.sparkContext._jvm
    queries: Any = spark._jsparkSession.sharedState().activeStreamingQueries()
    return queries, jvm.java.util.UUID
