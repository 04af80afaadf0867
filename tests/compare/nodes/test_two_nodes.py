"""When a comparison is skipped: where Apache Kafka cannot be had, and not where it is slow or does not come back."""

from __future__ import annotations

import signal
import sys

import pytest
from benchmarks import apache_kafka
from benchmarks.apache_kafka import NoPeer, restartable_apache_kafka

ENDS = "print('a newer Java is needed')"
IS_SLOW = "import time; print('starting', flush=True); time.sleep(30)"
LISTENS_ONCE = """
import re, socket, sys, time
from pathlib import Path
settings = Path(sys.argv[1])
port = re.search(r"^listeners=.*?:([0-9]+)", settings.read_text(), re.MULTILINE)[1]
settings.rename(settings.with_suffix(".used"))
listener = socket.create_server(("127.0.0.1", int(port)))
time.sleep(30)
"""


def stand_in(monkeypatch: pytest.MonkeyPatch, program: str) -> None:
    """A program in place of the node; it is given the file of settings."""

    def java(main: str, *arguments: str, **_: object) -> list[str]:
        return [sys.executable, "-c", program if main == "kafka.Kafka" else "", *arguments]

    monkeypatch.setattr(apache_kafka, "java", java)


def test_an_apache_kafka_that_ends_cannot_be_had(monkeypatch: pytest.MonkeyPatch) -> None:
    stand_in(monkeypatch, ENDS)
    with pytest.raises(NoPeer, match="a newer Java is needed"), restartable_apache_kafka():
        pass


def test_an_apache_kafka_that_is_slow_is_a_failure(monkeypatch: pytest.MonkeyPatch) -> None:
    """The tests would pass without one comparison."""
    stand_in(monkeypatch, IS_SLOW)
    monkeypatch.setattr(apache_kafka, "_LISTENS_AFTER", 2.0)
    with pytest.raises(TimeoutError, match="does not listen after 2 s"), restartable_apache_kafka():
        pass


def test_an_apache_kafka_that_does_not_come_back_is_a_failure(monkeypatch: pytest.MonkeyPatch) -> None:
    stand_in(monkeypatch, LISTENS_ONCE)
    with restartable_apache_kafka() as kafka:
        kafka.end(signal.SIGKILL)
        with pytest.raises(RuntimeError, match="FileNotFoundError"):
            kafka.start()
