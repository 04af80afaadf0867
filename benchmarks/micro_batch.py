"""What exactly once costs a micro-batch beside its rows: milliseconds of the driver and of a task, and connections.

    python -m benchmarks.micro_batch                  # 200 batches on a durable node of its own, and on Apache Kafka
    python -m benchmarks.micro_batch --bootstrap host:port

The driver and the tasks of the Spark sink without Spark: 4 partitions, 2 tasks, one record for each partition.
"""

from __future__ import annotations

import argparse
import asyncio
import ssl
import statistics
import time
import uuid
from collections import defaultdict
from collections.abc import Awaitable, Callable, Coroutine, Iterator, Sequence
from contextlib import contextmanager
from random import Random
from typing import Any, TypeVar

from benchmarks.apache_kafka import NoPeer, apache_kafka
from benchmarks.fencepost_node import fencepost_node
from benchmarks.measure import fresh_topic
from fencepost.client.cluster import Cluster
from fencepost.protocol.records import BatchBuilder
from fencepost.protocol.types import TopicPartition
from fencepost.runtime import Runtime, SocketNetwork, SystemClock
from fencepost.spark.attempt import Plan, claim
from fencepost.spark.claims import Written
from fencepost.spark.driver import Driver, Step
from fencepost.spark.progress import Progress

PARTITIONS = 4
TASKS = 2
WARM = 20
#: Milliseconds of the driver in a micro-batch, before its tasks and after them.
AIM = 20.0
T = TypeVar("T")
P = TypeVar("P", bound=asyncio.BaseProtocol)


class CountingNetwork(SocketNetwork):
    """Counts the connections that it opens."""

    def __init__(self) -> None:
        self.opened = 0

    async def connect(
        self,
        protocol_factory: Callable[[], P],
        host: str,
        port: int,
        tls: ssl.SSLContext | None = None,
        begin: Callable[[P], Awaitable[None]] | None = None,
    ) -> tuple[asyncio.Transport, P]:
        self.opened += 1
        return await super().connect(protocol_factory, host, port, tls, begin)


class Costs:
    """What was measured: milliseconds of each kind, and connections of each task (spark.driver.Surroundings)."""

    def __init__(self, bootstrap: str, topic: str) -> None:
        self._bootstrap, self._topic = bootstrap, topic
        self.milliseconds: dict[str, list[float]] = defaultdict(list)
        self.connections: list[int] = []

    @contextmanager
    def measured(self, what: str) -> Iterator[None]:
        begin = time.perf_counter()
        yield
        self.milliseconds[what].append((time.perf_counter() - begin) * 1000)

    async def call(self, work: Coroutine[Any, Any, T]) -> T:
        with self.measured(getattr(work, "__name__", "?")):
            return await work

    async def run_tasks(self, plan: Plan) -> Sequence[Written]:
        return [found for slot in plan.slots for found in await self._task(plan, slot)]

    async def _task(self, plan: Plan, slot: int) -> list[Written]:
        with self.measured("task"):
            network = CountingNetwork()
            runtime = Runtime(SystemClock(), network, Random())
            cluster = Cluster(self._bootstrap, client_id=f"slot-{slot}", runtime=runtime)
            try:
                attempt = await claim(cluster, plan, slot, 0)
                mine = range(slot, PARTITIONS, len(plan.slots))
                for number in mine:
                    records = BatchBuilder()
                    records.append(0, None, b"value", ())
                    await attempt.write(TopicPartition(self._topic, number), records)
                written = await attempt.finish(len(mine))
                await attempt.close()
            finally:
                await cluster.close()
        self.connections.append(network.opened)
        return written

    def tell(self, step: Step, batch_id: int) -> None:
        assert step in (Step.WRITTEN, Step.COMMITTED), f"batch {batch_id}: {step.value}"


async def measure(bootstrap: str, batches: int) -> Costs:
    """Write so many micro-batches, after some for warming, each with the position of a source beside it."""
    topic, source = fresh_topic(bootstrap, PARTITIONS), fresh_topic(bootstrap)
    cluster = Cluster(bootstrap, client_id="driver")
    driver = Driver(cluster, uuid.uuid4().hex, [topic], transaction_timeout_ms=60_000, attempts=1)
    await cluster.refresh([])
    costs = Costs(bootstrap, topic)
    for number in range(WARM + batches):
        if number == WARM:
            costs = Costs(bootstrap, topic)
        ends = [{source: {"0": number}, "@cluster": cluster.cluster_id}]
        assert await driver.write(Progress.of("query", number, ends), TASKS, False, costs)
    await cluster.close()
    return costs


def line(name: str, costs: Costs) -> str:
    """A row of the table."""
    spent = costs.milliseconds
    both = [before + after for before, after in zip(spent["begin"], spent["commit"], strict=True)]
    cells = [_text(values) for values in (spent["begin"], spent["commit"], both, spent["task"])]
    return f"| {name} | {' | '.join(cells)} | {statistics.mean(costs.connections):g} |"


def _text(values: list[float]) -> str:
    return f"{statistics.median(values):.1f} ({sorted(values)[int(len(values) * 0.99)]:.1f})"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--bootstrap", help="measure this cluster only")
    parser.add_argument("--batches", type=int, default=200)
    options = parser.parse_args()
    lines = [
        f"| ms, medians (99 of 100 took less) | before the tasks | after them: commit | both; the aim is {AIM:g} | "
        "one task | connections of a task |",
        "|---|---|---|---|---|---|",
    ]
    if options.bootstrap:
        lines.append(line(options.bootstrap, asyncio.run(measure(options.bootstrap, options.batches))))
    else:
        with fencepost_node("durable") as (bootstrap, _, _):
            lines.append(line("Fencepost durable", asyncio.run(measure(bootstrap, options.batches))))
        for level in (2, 1):
            try:
                with apache_kafka(features={"transaction.version": level}) as (bootstrap, _):
                    costs = asyncio.run(measure(bootstrap, options.batches))
                    lines.append(line(f"Apache Kafka, transaction.version {level}", costs))
            except NoPeer as reason:
                print(reason)
    print("\n".join(lines))


if __name__ == "__main__":
    main()
