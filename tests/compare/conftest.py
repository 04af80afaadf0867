"""Fixtures for the comparison with Apache Kafka: both nodes, its class path, or a skip that says why."""

from __future__ import annotations

import subprocess
from collections.abc import Callable, Iterator

import pytest
from benchmarks.apache_kafka import NoPeer, apache_kafka, jars, java
from tests.compare.coordinator.nodes import SETTINGS

from fencepost.broker import running_broker

Tool = Callable[..., str]


@pytest.fixture(scope="module")
def nodes() -> Iterator[tuple[str, str]]:
    """The addresses of an Apache Kafka and of a Fencepost that are set up alike."""
    try:
        with apache_kafka(SETTINGS) as (kafka, _), running_broker(settings=SETTINGS, flush="os") as ours:
            yield kafka, ours.bootstrap_servers
    except NoPeer as reason:
        pytest.skip(str(reason))


@pytest.fixture(scope="session")
def kafka_tool() -> Tool:
    """Runs a main class of Apache Kafka's jars and returns what it printed."""
    try:
        jars()
    except NoPeer as reason:
        pytest.skip(str(reason))

    def run(*arguments: str) -> str:
        done = subprocess.run(java(*arguments), capture_output=True, text=True, timeout=300)
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout

    return run
