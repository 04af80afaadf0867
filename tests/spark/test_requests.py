"""What a micro-batch asks the cluster for, and nothing more: everybody waits for each request."""

from __future__ import annotations

import asyncio
import random
from collections import Counter
from contextlib import ExitStack
from typing import Any

import pytest
from pyspark.sql.streaming.datasource import ReadAllAvailable
from tests.spark.test_driver import Bench, Tasks, in_world
from tests.spark.test_source import SCHEMA, Topic, rows_of

from fencepost.broker import running_broker
from fencepost.client.connection import Connection
from fencepost.spark.attempt import Plan
from fencepost.spark.options import parse
from fencepost.spark.progress import Progress
from fencepost.spark.source import Range, StreamReader


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> Counter[str]:
    """Requests of each kind and client."""
    counter: Counter[str] = Counter()
    request = Connection.request

    def counted(self: Connection, message: Any, *more: Any) -> asyncio.Future[Any]:
        kind = type(message).__name__.removesuffix("Request")
        if kind != "ApiVersions":
            counter[kind] += 1
        return request(self, message, *more)

    monkeypatch.setattr(Connection, "request", counted)
    return counter


@pytest.mark.parametrize(
    ("level", "registered"), [(2, {}), (1, {"AddPartitionsToTxn": 3, "AddOffsetsToTxn": 1, "InitProducerId": 1})]
)
def test_a_micro_batch_of_two_tasks(asked: Counter[str], level: int, registered: dict[str, int]) -> None:
    """Before transaction.version 2 partitions and the group are registered, and the driver gets an epoch."""
    driver_asks = {"Metadata": 2, "DescribeTransactions": 2, "Produce": 1, "TxnOffsetCommit": 1, "EndTxn": 1}
    task_asks = {"Metadata": 1, "FindCoordinator": 1 if level == 2 else 2, "InitProducerId": 1, "Produce": 1}

    async def test(bench: Bench) -> None:
        driver = bench.driver()
        await driver._cluster.refresh([])
        for number in range(3):
            ends = [{"in": {"0": number}, "@cluster": driver._cluster.cluster_id}]
            asked.clear()
            assert await driver.write(Progress.of("query", number, ends), 2, False, Tasks(bench, b"v"))
        assert asked == Counter(driver_asks) + Counter(registered) + Counter(task_asks) + Counter(task_asks)

    in_world(test, level)


@pytest.mark.parametrize(("level", "epochs"), [(2, 0), (1, 1)])
def test_a_batch_that_failed_is_aborted_before_a_new_epoch_is_asked_for(
    asked: Counter[str], level: int, epochs: int
) -> None:
    """Asked for one while a transaction is open, Apache Kafka before transaction.version 2 fences who asks."""

    async def test(bench: Bench) -> None:
        tasks, kinds = Tasks(bench, b"v"), ("EndTxn", "InitProducerId")

        async def fail_once(_: Plan) -> None:
            if len(tasks.plans) == 1:
                asked.clear()
                raise ValueError("a task failed")
            assert [asked[kind] for kind in kinds] == [1, epochs + len(tasks.plans[-1].slots)]

        tasks.between = fail_once
        assert await bench.driver().write(Progress.of("query", 0, []), 2, False, tasks)
        assert await bench.values() == [b"v", b"v"]

    in_world(test, level)


@pytest.mark.parametrize("fails", [True, False])
def test_a_task_that_reads_asks_where_to_fetch_and_fetches(asked: Counter[str], fails: bool) -> None:
    """Whether the topic is another one by now the leader says with each answer."""
    with ExitStack() as stack:
        broker = stack.enter_context(running_broker(flush="os"))
        topic = Topic(broker, "asked", random.Random("asked"), stack)
        topic.write(8)
        options = parse(topic.options(startingOffsets="earliest", failOnDataLoss=fails), streaming=True)
        reader = StreamReader(options, SCHEMA)
        stack.callback(reader.stop)
        start = reader.initialOffset()
        asked.clear()
        end = reader.latestOffset(start, ReadAllAvailable())
        parts = [part for part in reader.partitions(start, end) if isinstance(part, Range)]
        assert asked == {"Metadata": 1, "ListOffsets": 1}
        asked.clear()
        assert sorted(rows_of(reader, parts, topic.name)) == topic.shown()
        assert asked == {"Metadata": len(parts), "Fetch": len(parts)}
