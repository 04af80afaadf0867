"""Fixtures for the comparison with Apache Kafka: both nodes, its class path, or a skip that says why."""

from __future__ import annotations

import subprocess
from collections.abc import Callable, Iterator

import pytest
from benchmarks.apache_kafka import jars, java
from tests.compare.nodes.parking import IN_ORDER, ONLY_KAFKA_IN_ORDER
from tests.compare.nodes.twins import SETTINGS, TOPICS
from tests.compare.nodes.two_nodes import TwoNodes, skipped_without_kafka, two_nodes

Tool = Callable[..., str]


@pytest.fixture(scope="module")
def nodes() -> Iterator[TwoNodes]:
    """Two nodes whose coordinators are quick, with the topics of the walks."""
    with two_nodes(SETTINGS) as both:
        both.make_topics(TOPICS)
        yield both


@pytest.fixture(scope="module")
def nodes_in_order() -> Iterator[TwoNodes]:
    """The same, and both do what they are asked in the order in which it came."""
    with two_nodes(SETTINGS | IN_ORDER, only_kafka=ONLY_KAFKA_IN_ORDER) as both:
        both.make_topics(TOPICS)
        yield both


@pytest.fixture(scope="session")
def kafka_tool() -> Tool:
    """Runs a main class of Apache Kafka's jars and returns what it printed."""
    with skipped_without_kafka():
        jars()

    def run(*arguments: str) -> str:
        done = subprocess.run(java(*arguments), capture_output=True, text=True, timeout=300)
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout

    return run
