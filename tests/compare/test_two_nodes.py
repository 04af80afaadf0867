"""When a comparison is skipped: where Apache Kafka cannot be had, and not where it is merely slow."""

from __future__ import annotations

import pytest
from benchmarks import apache_kafka
from benchmarks.apache_kafka import NoPeer, restartable_apache_kafka


def stand_in(monkeypatch: pytest.MonkeyPatch, program: str) -> None:
    """A shell program in place of the node."""
    monkeypatch.setattr(apache_kafka, "_LISTENS_AFTER", 0.2)
    monkeypatch.setattr(
        apache_kafka, "java", lambda main, *_, **__: ["sh", "-c", program if main == "kafka.Kafka" else "true"]
    )


def test_an_apache_kafka_that_ends_cannot_be_had(monkeypatch: pytest.MonkeyPatch) -> None:
    stand_in(monkeypatch, "echo a newer Java is needed; exit 1")
    with pytest.raises(NoPeer, match="a newer Java is needed"), restartable_apache_kafka():
        pass


def test_an_apache_kafka_that_is_slow_is_a_failure(monkeypatch: pytest.MonkeyPatch) -> None:
    """The tests would pass without one comparison."""
    stand_in(monkeypatch, "echo starting; exec sleep 30")
    with pytest.raises(TimeoutError, match="starting"), restartable_apache_kafka():
        pass
