"""`fencepost serve --metrics`: what Prometheus reads."""

from __future__ import annotations

import asyncio
import re
import signal
import socket
import struct
import subprocess
import sys
import threading
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest.mock import Mock

import pytest
from prometheus_client.parser import text_string_to_metric_families
from tests.processes import begun

from fencepost.broker import running_broker
from fencepost.broker.metrics import measure
from fencepost.cli.exporter import Exporter, Measurements, _answered, exported
from fencepost.client.blocking import Admin, Producer

Samples = dict[tuple[str, tuple[str, ...]], float]


@contextmanager
def running(data: Path) -> Iterator[tuple[str, str, subprocess.Popen[str]]]:
    """Where a broker answers its clients, and where Prometheus; and its process."""
    command = [sys.executable, "-m", "fencepost", "serve", "--listen", "127.0.0.1:0", "--data", str(data)]
    command += ["--metrics", "127.0.0.1:0", "--set", "transaction.state.log.num.partitions=3"]
    process = begun(subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True))
    assert process.stdout is not None
    words = process.stdout.readline().split()
    yield words[4].rstrip(","), words[-1], process
    process.send_signal(signal.SIGTERM)
    assert process.wait(20) == 0


@pytest.fixture
def node(tmp_path: Path) -> Iterator[tuple[str, str]]:
    """Where a broker answers its clients, and where Prometheus."""
    with running(tmp_path / "data") as (bootstrap, url, _):
        yield bootstrap, url


def reset(address: tuple[str, int], sent: bytes) -> None:
    """Send this, and end the connection as a crash does."""
    with socket.create_connection(address, 5) as connection:
        connection.sendall(sent)
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))


@pytest.mark.parametrize(
    "sent", [b"", b"GET", b"GET /metrics HTTP/1.0\r\n\r\n", b"\x16\x03\x01\r\n\r\n", b"POST / HTTP/1.0\r\n\r\n"]
)
def test_a_reader_who_is_gone_or_sends_nonsense_leaves_nothing_in_the_log(tmp_path: Path, sent: bytes) -> None:
    with running(tmp_path / "data") as (_, url, process):
        for _ in range(20):
            reset(("127.0.0.1", int(url.split(":")[2].partition("/")[0])), sent)
        assert read(url)
        process.send_signal(signal.SIGTERM)
        assert process.stderr is not None
        assert process.stderr.read() == ""


def test_metrics_that_cannot_be_told_are_a_line_of_the_log_and_an_answer(caplog: pytest.LogCaptureFixture) -> None:
    def failing(*_: object) -> list[bytes]:
        raise TimeoutError("the event loop has no time")

    started: list[str] = []
    body = _answered(failing)({}, lambda status, _: started.append(status))
    assert started == ["503 Service Unavailable"] and b"log" in b"".join(body)
    assert "could not be told" in caplog.text


def test_a_node_that_does_not_answer_keeps_no_reader_waiting_for_ever(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[float | None] = []

    def answered(patience: float | None = None) -> dict[str, float]:
        asked.append(patience)
        return {}

    def ask(work: Any, _: object) -> Any:
        work.close()
        return SimpleNamespace(result=answered)

    monkeypatch.setattr(asyncio, "run_coroutine_threadsafe", ask)
    nothing: Any = SimpleNamespace()
    assert list(Measurements(nothing, nothing).collect()) == []
    assert asked == [10]


def test_its_port_is_free_when_it_is_closed() -> None:
    exporter = Exporter("127.0.0.1", 0)
    exporter.close()
    with socket.socket() as another:
        another.bind(("127.0.0.1", exporter.port))


def test_a_reader_who_comes_before_the_node_has_started_is_told_so(caplog: pytest.LogCaptureFixture) -> None:
    exporter = Exporter("127.0.0.1", 0)
    try:
        with pytest.raises(urllib.error.HTTPError, match="503") as told:
            read(f"http://127.0.0.1:{exporter.port}/metrics")
        assert b"not started" in told.value.read()
    finally:
        exporter.close()
    assert caplog.text == ""


def test_readers_whom_no_thread_can_be_started_for_are_a_line_of_the_log(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, capfd: pytest.CaptureFixture[str]
) -> None:
    exporter = Exporter("127.0.0.1", 0)
    refused = Mock(side_effect=RuntimeError("can't start new thread"))
    monkeypatch.setattr(threading, "_start_new_thread", refused)
    with pytest.raises(OSError, match=r"closed|reset"):
        urllib.request.urlopen(f"http://127.0.0.1:{exporter.port}/metrics", timeout=20)
    exporter.close()
    assert [each.getMessage() for each in caplog.records] == [
        "a reader of metrics gets no answer: can't start new thread"
    ]
    assert capfd.readouterr().err == ""


def read(url: str) -> Samples:
    with urllib.request.urlopen(url, timeout=20) as answer:
        text = answer.read().decode()
    families = text_string_to_metric_families(text)
    return {(each.name, tuple(each.labels.values())): each.value for family in families for each in family.samples}


def test_what_transactions_do_is_seen(node: tuple[str, str]) -> None:
    bootstrap, url = node
    assert read(url)["fencepost_transactions_committed_count", ()] == 0
    with Admin(bootstrap) as admin, Producer(bootstrap, transactional_id="payments") as producer:
        admin.create_topic("t", partitions=4)
        producer.init_transactions()
        for commit in (True, True, False):
            producer.begin_transaction()
            producer.send("t", b"x").result()
            if commit:
                producer.commit_transaction()
            else:
                producer.abort_transaction()
        seen = read(url)
        assert seen["fencepost_transactions_committed_count", ()] == 2
        assert seen["fencepost_transactions_aborted_count", ()] == 1
        assert seen["fencepost_transactionalids_value", ("CompleteAbort",)] == 1
        for request, count in (("CreateTopics", 1), ("InitProducerId", 1), ("EndTxn", 3)):
            assert seen["kafka_network_requestmetrics_requestspersec_count", (request,)] == count
        assert seen["kafka_server_addpartitionstotxnmanager_verificationtimems_count", ()] == 3
        assert seen["kafka_server_replicamanager_partitioncount_value", ()] == 4 + 3
        assert seen["fencepost_connections_value", ()] >= 1


@pytest.mark.parametrize(
    ("bean", "name", "labels", "whole"),
    [
        ("a.b:type=C,name=D:Count", "a_b_c_d_count", {}, "a.b:type=C,name=D:Count"),
        ("a:type=C:Value", "a_c_value", {}, "a:type=C:Value"),
        ("a:type=C,name=D,request=E:Count", "a_c_d_count", {"request": "E"}, "a:type=C,name=D:Count"),
        ("a-b:type=C,name=d-e-f:Value", "a_b_c_d_e_f_value", {}, "a-b:type=C,name=d-e-f:Value"),
    ],
)
def test_a_bean_has_one_name(bean: str, name: str, labels: dict[str, str], whole: str) -> None:
    assert exported(bean) == (name, labels, whole)


def test_every_name_is_one_in_every_version_of_prometheus() -> None:
    """Before version 3 a page with one name that is none is not read at all; the library of then writes none."""
    with running_broker() as broker:
        beans = [exported(bean) for bean in measure(broker.node, broker.node.clock.now())]
    wrong = [each.name for each in beans if not re.fullmatch("[a-zA-Z_:][a-zA-Z0-9_:]*", each.name)]
    assert wrong == []
    assert all(re.fullmatch("[a-zA-Z_][a-zA-Z0-9_]*", label) for each in beans for label in each.labels)
    assert "kafka_log_logcleanermanager_uncleanable_partitions_count_value" in [each.name for each in beans]


def test_it_takes_no_reader_any_more_when_its_port_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    """Else whatever has the number of its socket next is asked for readers, without a pause."""
    exporter, done = Exporter("127.0.0.1", 0), list[str]()

    def noting(name: str, call: Callable[[], None]) -> Callable[[], None]:
        def noted() -> None:
            done.append(name)
            call()

        return noted

    for name in ("shutdown", "server_close"):
        monkeypatch.setattr(exporter._server, name, noting(name, getattr(exporter._server, name)))
    exporter.close()
    assert done == ["shutdown", "server_close"]
