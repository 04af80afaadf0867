"""Fixtures for the comparison with Apache Kafka: its class path, or a skip that says why."""

from __future__ import annotations

import subprocess
from collections.abc import Callable

import pytest
from benchmarks.apache_kafka import NoPeer, jars, java

Tool = Callable[..., str]


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
