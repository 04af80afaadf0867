"""Kafka Streams on Fencepost as on Apache Kafka: program and node are killed, and each word is counted once."""

from __future__ import annotations

import asyncio
import signal
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from benchmarks.apache_kafka import CACHE, VERSION, fetch_jars
from tests.compare.nodes.two_nodes import SIDES, TwoNodes, skipped_without_kafka, two_nodes
from tests.compare.stock_clients.counts import counted

from fencepost.client import Admin, Producer

pytestmark = pytest.mark.compare

PROGRAM = Path(__file__).parent / "java" / "WordCount.java"
POM = """<project xmlns="http://maven.apache.org/POM/4.0.0">
  <modelVersion>4.0.0</modelVersion>
  <groupId>fencepost</groupId><artifactId>streams</artifactId><version>1</version><packaging>pom</packaging>
  <dependencies>
    <dependency><groupId>org.apache.kafka</groupId><artifactId>kafka-streams</artifactId><version>VERSION</version></dependency>
  </dependencies>
</project>
"""
PARTITIONS, LINES, ROUNDS = 3, 200, 3
WORDS = 2
"""In each line."""
_PATIENCE = 120.0


@pytest.fixture(scope="module")
def jars() -> str:
    folder = CACHE / f"kafka-streams-{VERSION}"
    with skipped_without_kafka():
        fetch_jars(folder, POM.replace("VERSION", VERSION), "Kafka Streams")
    return f"{folder}/*"


@pytest.fixture(scope="module")
def both() -> Iterator[TwoNodes]:
    with two_nodes({"group.initial.rebalance.delay.ms": "0"}) as nodes:
        yield nodes


@contextmanager
def word_count(jars: str, bootstrap: str, state: Path) -> Iterator[None]:
    """The program, which is killed when the block ends."""
    with open(state.with_suffix(".log"), "w") as log:
        command = ["java", "-Xmx256m", "-cp", jars, str(PROGRAM), bootstrap, str(state)]
        process = subprocess.Popen(command, stdout=log, stderr=log)
        try:
            yield
        finally:
            process.kill()
            process.wait()


async def write_lines(bootstrap: str, first: int) -> None:
    async with Producer(bootstrap) as producer:
        for number in range(first, first + LINES):
            await producer.send("lines", b"w%d line-%d" % (number % 7, number), key=b"%d" % number)


@pytest.mark.parametrize("side", SIDES)
def test_each_word_is_counted_once_though_the_program_and_the_node_are_killed(
    both: TwoNodes, jars: str, side: str, tmp_path: Path
) -> None:
    node = both.on(side)
    bootstrap = node.bootstrap

    async def scenario() -> dict[bytes, list[int]]:
        async with Admin(bootstrap) as admin:
            for name in ("lines", "counts"):
                await admin.create_topic(name, partitions=PARTITIONS)
        for number in range(ROUNDS):
            state = tmp_path / ("state-lost" if number == 1 else "state")
            with word_count(jars, bootstrap, state):
                await write_lines(bootstrap, LINES * number)
                if number == ROUNDS - 1:
                    node.end(signal.SIGKILL)
                    node.start()
                # Killed with some of its round still to do, but for the last one.
                done = LINES * WORDS * number + (LINES * WORDS if number == ROUNDS - 1 else 1)
                found = await counted(bootstrap, "counts", PARTITIONS, done, _PATIENCE)
        return found

    found = asyncio.run(scenario())
    assert all(counts == list(range(1, len(counts) + 1)) for counts in found.values()), found
    assert {word: len(counts) for word, counts in found.items()} == {
        **{b"w%d" % word: sum(number % 7 == word for number in range(LINES * ROUNDS)) for word in range(7)},
        **{b"line-%d" % number: 1 for number in range(LINES * ROUNDS)},
    }
