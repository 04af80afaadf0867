"""A sink says what makes no sense when it is made, before anything is written; its tasks get what it was given."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from fencepost.client.portal import Portal
from fencepost.client.shared_transaction import Ticket
from fencepost.protocol.types import ProducerIdAndEpoch
from fencepost.spark.attempt import Plan
from fencepost.spark.sink import Sink, _InThisThread
from fencepost.spark.streaming import write, write_stream
from fencepost.spark.tasks import Task

GOOD: dict[str, Any] = {"application_id": "app", "bootstrap_servers": "127.0.0.1:9092", "topics": ["t"]}


@pytest.mark.parametrize(
    ("wrong", "said"),
    [
        ({"application_id": ""}, "application_id=''"),
        ({"application_id": "a" * 201}, "1 to 200 characters"),
        ({"topics": []}, "topics="),
        ({"topics": "orders"}, "topics='orders': it must be a list"),
        ({"compression": "zip"}, "compression='zip': it must be one of none, gzip"),
        ({"tasks": True}, "tasks=True: it must be a whole number"),
        ({"attempts": 2.0}, "attempts=2.0: it must be a whole number"),
        ({"transaction_timeout_ms": 2**31}, "transaction_timeout_ms=2147483648: it must be 2147483647 or less"),
        ({"transaction_timeout_ms": 0}, "transaction_timeout_ms=0: it must be 1 or more"),
        ({"transaction_timeout_ms": "600000"}, "transaction_timeout_ms='600000': it must be a whole number"),
        ({"tasks": 0}, "tasks=0: it must be 1 or more"),
        ({"attempts": -1}, "attempts=-1: it must be 1 or more"),
        ({"attempts": None}, "attempts=None: it must be a whole number"),
    ],
)
def test_what_makes_no_sense_is_refused(wrong: dict[str, Any], said: str) -> None:
    Sink(**GOOD)
    with pytest.raises(ValueError, match=said):
        Sink(**GOOD | wrong)


def test_tasks_are_given_what_the_sink_was_given(monkeypatch: pytest.MonkeyPatch) -> None:
    """Tried without Spark, which would wait for a task that a listener with TLS does not understand."""

    class Rows:
        sparkSession = None

        def mapInArrow(self, task: Task, _schema: str) -> Any:
            tasks.append(task)
            return self

        def collect(self) -> list[Any]:
            return []

    tasks: list[Task] = []
    monkeypatch.setattr("fencepost.spark.sink._is_stopped", lambda _spark: False)
    monkeypatch.setattr("fencepost.spark.routing.route", lambda rows, *_: rows)
    sink, portal = Sink(**GOOD, kafka_options={"kafka.security.protocol": "SSL"}), Portal()
    plan = Plan("app", Ticket("app", ProducerIdAndEpoch.of(1, 0), True), {0: None}, {"t": 1})
    surroundings: Any = _InThisThread(sink, portal, Rows(), "t")  # type: ignore[arg-type]
    with pytest.raises(StopIteration):
        surroundings.run_tasks(plan).send(None)
    portal.close()
    assert [(task.bootstrap_servers, task.plan) for task in tasks] == [("127.0.0.1:9092", plan)]
    assert tasks[0].security is sink._security


def test_spark_connect_is_refused_in_one_sentence_before_anything_is_asked() -> None:
    """Its DataFrames have no way to the driver, which would be told as an attribute of Java that is not there."""
    rows: Any = type("DataFrame", (), {"__module__": "pyspark.sql.connect.dataframe"})()
    where: dict[str, Any] = {"application_id": "app", "bootstrap_servers": "nowhere:1", "topic": "out"}
    asks: list[Callable[[], Any]] = [
        lambda: write_stream(rows, checkpoint_location="nowhere", **where),
        lambda: write(rows, run_id="1", **where),
        lambda: Sink(**GOOD).write(rows, 0, "query", topic="out"),
    ]
    for ask in asks:
        with pytest.raises(RuntimeError, match=r"through Spark Connect: .* Run this program there, with spark-submit"):
            ask()
