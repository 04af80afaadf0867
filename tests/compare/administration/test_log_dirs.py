"""What both nodes say of their data directories, and what Apache Kafka's own kafka-log-dirs makes of it."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from tests.compare.nodes import requests
from tests.compare.nodes.connection import Connection, wait_until
from tests.compare.nodes.plain import NOW
from tests.compare.nodes.two_nodes import TwoNodes, two_nodes

from fencepost.protocol.messages import DescribeLogDirsRequest
from fencepost.protocol.messages.describe_log_dirs import DescribableLogDirTopic
from fencepost.protocol.records import encode_batch

pytestmark = pytest.mark.compare

TOOL = "org.apache.kafka.tools.LogDirsCommand"
TOPICS = {"dirs-a": 3, "dirs-b": 1}
VERSIONS = range(1, 6)
#: Of "dirs-a" the first partition has several segments, the second one, the third nothing.
WRITTEN = {("dirs-a", 0): 5 * [400_000], ("dirs-a", 1): [1, 1000], ("dirs-b", 0): [10]}
ASKED: dict[str, dict[str, list[int]] | None] = {
    "all": None,
    "nothing": {},
    "one": {"dirs-a": [1]},
    "no partition": {"dirs-a": []},
    "twice": {"dirs-a": [1, 1], "dirs-b": [0]},
    "unknown": {"dirs-a": [0, 3, -1], "dirs-never": [0], "": [0]},
}


@pytest.fixture(scope="module")
def both() -> Iterator[TwoNodes]:
    with two_nodes() as nodes:
        for address in nodes.addresses:
            node = Connection(address)
            fill(node)
            node.hang_up()
        yield nodes


def fill(node: Connection) -> None:
    node.ask(requests.create_topics(TOPICS, segment_bytes="1048576"), 5)
    for (topic, index), sizes in WRITTEN.items():
        for size in sizes:
            wait_until(lambda t=topic, n=index, s=size: is_written(node, t, n, s), 30, "a record is taken")  # type: ignore[misc]


def is_written(node: Connection, topic: str, index: int, size: int) -> bool:
    records = encode_batch([(NOW, None, b"r" * size, ())])
    answer = node.ask(requests.produce_records(None, topic, index, records), 11)
    return not answer.responses[0].partition_responses[0].error_code


def told(address: str, topics: dict[str, list[int]] | None, version: int) -> dict[str, Any]:
    """The answer; of the directory only what both nodes share, and only of our topics."""
    asked = None
    if topics is not None:
        asked = [DescribableLogDirTopic(topic=name, partitions=indexes) for name, indexes in topics.items()]
    node = Connection(address)
    answer = node.ask(DescribeLogDirsRequest(topics=asked), version)
    node.hang_up()
    (found,) = answer.results
    assert found.log_dir.startswith("/")
    return {
        "errors": (answer.error_code, found.error_code),
        "partitions": {
            (topic.name, one.partition_index): (one.partition_size, one.offset_lag, one.is_future_key)
            for topic in found.topics
            for one in topic.partitions
            if topic.name in TOPICS
        },
        "topics": sorted(topic.name for topic in found.topics if topic.name in TOPICS),
        "total": found.total_bytes,
        "usable": found.usable_bytes > 0,
        "cordoned": found.is_cordoned,
    }


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("asked", ASKED)
def test_directories_are_described_alike(both: TwoNodes, asked: str, version: int) -> None:
    theirs, ours = (told(address, ASKED[asked], version) for address in both.addresses)
    assert ours == theirs


def test_kafka_log_dirs_prints_the_same_of_both(both: TwoNodes, kafka_tool: Callable[..., str]) -> None:
    printed = []
    for address in both.addresses:
        output = kafka_tool(TOOL, "--bootstrap-server", address, "--describe", "--topic-list", ",".join(TOPICS))
        (directory,) = json.loads(output.splitlines()[-1])["brokers"][0]["logDirs"]
        directory["partitions"].sort(key=lambda one: one["partition"])
        printed.append((directory["error"], directory["partitions"]))
    assert len(printed[0][1]) == sum(TOPICS.values())
    assert printed[1] == printed[0]
