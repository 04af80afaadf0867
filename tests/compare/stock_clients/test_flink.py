"""Apache Flink's exactly-once sink on Fencepost as on Apache Kafka: it and the node are killed, each line counted once.

A process that goes on from a checkpoint commits with the producer id and epoch that stand in it, without
InitProducerId, and aborts what else is open: the ids that would have been next (INCREMENTING), or those that
ListTransactions names (POOLING).
"""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

import pytest
from benchmarks.apache_kafka import CACHE, fetch_jars
from tests.compare.nodes.two_nodes import SIDES, TwoNodes, skipped_without_kafka, two_nodes
from tests.compare.stock_clients.counts import counted

from fencepost.client import Admin, Producer

pytestmark = pytest.mark.compare

VERSION, CONNECTOR = "2.2.1", "5.0.0-2.2"
PROGRAM = Path(__file__).parent / "java" / "FlinkCount.java"
_FLINK = "<dependency><groupId>org.apache.flink</groupId><artifactId>{}</artifactId><version>{}</version></dependency>"
POM = f"""<project xmlns="http://maven.apache.org/POM/4.0.0">
  <modelVersion>4.0.0</modelVersion>
  <groupId>fencepost</groupId><artifactId>flink</artifactId><version>1</version><packaging>pom</packaging>
  <dependencies>
    {_FLINK.format("flink-streaming-java", VERSION)}
    {_FLINK.format("flink-clients", VERSION)}
    {_FLINK.format("flink-connector-base", VERSION)}
    {_FLINK.format("flink-connector-kafka", CONNECTOR)}
  </dependencies>
</project>
"""
PARTITIONS, LINES, ROUNDS = 3, 200, 3
_OPENED = ("lang", "util", "nio", "net", "io", "time", "util.concurrent", "util.concurrent.atomic", "lang.invoke")
_PATIENCE = 180.0


class Topics(NamedTuple):
    lines: str
    counts: str


@pytest.fixture(scope="module")
def class_path(tmp_path_factory: pytest.TempPathFactory) -> str:
    """Flink, and the program: its workers load it by name, so that it cannot be run from its source."""
    folder, classes = CACHE / f"flink-{VERSION}-{CONNECTOR}", tmp_path_factory.mktemp("classes")
    with skipped_without_kafka():
        fetch_jars(folder, POM, "Apache Flink", "-DincludeScope=runtime")
    subprocess.run(["javac", "-cp", f"{folder}/*", "-d", str(classes), str(PROGRAM)], check=True)
    return f"{classes}{os.pathsep}{folder}/*"


@pytest.fixture(scope="module", params=[2, 1], ids=lambda level: f"transaction.version {level}")
def both(request: pytest.FixtureRequest) -> Iterator[TwoNodes]:
    with two_nodes({"group.initial.rebalance.delay.ms": "0"}, level=request.param) as nodes:
        yield nodes


@contextmanager
def flink_count(class_path: str, bootstrap: str, topics: Topics, strategy: str, folder: Path) -> Iterator[None]:
    """The program, which is killed when the block ends."""
    opened = [f"--add-opens=java.base/java.{name}=ALL-UNNAMED" for name in _OPENED]
    with open(folder / "log", "a") as log:
        command = ["java", "-Xmx384m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", *opened, "-cp", class_path]
        command += ["FlinkCount", bootstrap, str(folder / "checkpoints"), *topics, strategy]
        process = subprocess.Popen(command, stdout=log, stderr=log)
        try:
            yield
        finally:
            process.kill()
            process.wait()


async def write_lines(bootstrap: str, topics: Topics, numbers: Iterable[int]) -> None:
    async with Producer(bootstrap) as producer:
        for number in numbers:
            await producer.send(topics.lines, b"w%d" % (number % 7), key=b"%d" % number)


@pytest.mark.parametrize("strategy", ["INCREMENTING", "POOLING"])
@pytest.mark.parametrize("side", SIDES)
def test_each_line_is_counted_once_though_the_program_and_the_node_are_killed(
    both: TwoNodes, class_path: str, side: str, strategy: str, tmp_path: Path
) -> None:
    node = both.on(side)
    bootstrap = node.bootstrap
    topics = Topics(f"lines-{strategy}", f"counts-{strategy}")

    async def scenario() -> dict[bytes, list[int]]:
        async with Admin(bootstrap) as admin:
            for name in topics:
                await admin.create_topic(name, partitions=PARTITIONS)
        for number in range(ROUNDS):
            first = LINES * number
            with flink_count(class_path, bootstrap, topics, strategy, tmp_path):
                await write_lines(bootstrap, topics, range(first, first + LINES // 2))
                found = await counted(bootstrap, topics.counts, PARTITIONS, first + 1, _PATIENCE)
                if number == ROUNDS - 1:
                    node.end(signal.SIGKILL)
                    node.start()
                # These are in an open transaction, or not yet read, when the program is killed, but for the last time.
                await write_lines(bootstrap, topics, range(first + LINES // 2, first + LINES))
                if number == ROUNDS - 1:
                    found = await counted(bootstrap, topics.counts, PARTITIONS, LINES * ROUNDS, _PATIENCE)
        async with Admin(bootstrap) as admin:
            assert not await admin.find_hanging_transactions()
        return found

    found = asyncio.run(scenario())
    assert all(counts == list(range(1, len(counts) + 1)) for counts in found.values()), found
    assert {word: len(counts) for word, counts in found.items()} == {
        b"w%d" % word: sum(number % 7 == word for number in range(LINES * ROUNDS)) for word in range(7)
    }
