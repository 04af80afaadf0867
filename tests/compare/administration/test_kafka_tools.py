"""What Apache Kafka's own tools for administrators print of both nodes."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from functools import partial

import pytest
from tests.compare.nodes.connection import Connection, wait_until
from tests.compare.nodes.two_nodes import TwoNodes, two_nodes

from fencepost.protocol.messages import MetadataRequest
from fencepost.protocol.messages.metadata import MetadataRequestTopic

pytestmark = pytest.mark.compare

TOPICS = {"tools-a": 3, "tools-b": 1}
TOPIC_COMMAND = "org.apache.kafka.tools.TopicCommand"
CONFIG_COMMAND = "kafka.admin.ConfigCommand"
ELECTION = "org.apache.kafka.tools.LeaderElectionCommand"
REASSIGN = "org.apache.kafka.tools.reassign.ReassignPartitionsCommand"
#: Ids and numbers of brokers, and settings that every topic has from the one node and not from the other.
OF_ONE_NODE = re.compile(r"TopicId: \S+|\tConfigs: \S*|(?<=Leader: )\d+|(?<=Replicas: )\d+|(?<=Isr: )\d+")


@pytest.fixture(scope="module")
def both() -> Iterator[TwoNodes]:
    with two_nodes() as nodes:
        nodes.make_topics(TOPICS)
        for address in nodes.addresses:
            node = Connection(address)
            for name, count in TOPICS.items():
                wait_until(partial(has_leaders, node, name, count), 30, f"leaders of {name}")
            node.hang_up()
        yield nodes


def has_leaders(node: Connection, name: str, count: int) -> bool:
    asked = MetadataRequest(topics=[MetadataRequestTopic(name=name)], allow_auto_topic_creation=False)
    (topic,) = node.ask(asked, 12).topics
    return len(topic.partitions) == count and all(one.leader_id >= 0 for one in topic.partitions)


def printed(kafka_tool: Callable[..., str], address: str, *arguments: str) -> str:
    return OF_ONE_NODE.sub("", kafka_tool(arguments[0], "--bootstrap-server", address, *arguments[1:]))


@pytest.mark.parametrize(
    "arguments",
    [
        (TOPIC_COMMAND, "--describe", "--topic", "tools-.*"),
        (TOPIC_COMMAND, "--describe", "--topic", "tools-.*", "--under-replicated-partitions"),
        (REASSIGN, "--list"),
        (ELECTION, "--election-type", "preferred", "--all-topic-partitions"),
        (ELECTION, "--election-type", "unclean", "--topic", "tools-a", "--partition", "2"),
        (CONFIG_COMMAND, "--describe", "--entity-type", "clients"),
        (CONFIG_COMMAND, "--describe", "--entity-type", "ips", "--entity-default"),
    ],
    ids=[
        "topics",
        "partitions that lack replicas",
        "partitions that are being moved",
        "an election of every leader",
        "an election of one leader",
        "quotas of clients",
        "the quota of addresses",
    ],
)
def test_kafkas_tools_print_the_same_of_both(
    both: TwoNodes, kafka_tool: Callable[..., str], arguments: tuple[str, ...]
) -> None:
    theirs, ours = (printed(kafka_tool, address, *arguments) for address in both.addresses)
    assert ours == theirs
