"""A node has fewer threads than cores.

Where it may start none (`ulimit -u`, `TasksMax=`) it does everything in one, or says why it does not start.
"""

from __future__ import annotations

import asyncio
import os
import re
import subprocess
import sys
import threading
from pathlib import Path

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic
from tests.processes import begun

from fencepost.cli.serve import loop_beside_threads

WITHOUT_THREADS = """
import sys, threading

def refuse(*_):
    raise RuntimeError("can't start new thread")

threading._start_new_thread = refuse
from fencepost.cli import main

sys.exit(main())
"""
"""What the system does for a process that may have one thread; root may always have more."""
LARGE = 300 * 1024
"""Bytes of a record that is unfolded in another thread."""


def start(data: Path, *options: str) -> subprocess.Popen[str]:
    command = [sys.executable, "-c", WITHOUT_THREADS, "serve", "--listen", "127.0.0.1:0", "--data", str(data)]
    return begun(subprocess.Popen([*command, *options], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True))


def test_a_node_that_may_start_no_thread_serves_and_stops_cleanly(tmp_path: Path) -> None:
    partitions = 20
    process = start(tmp_path / "data")
    assert process.stdout is not None
    found = re.search(r"127\.0\.0\.1:\d+", process.stdout.readline())
    assert found is not None, process.communicate(timeout=30)[1]
    admin = AdminClient({"bootstrap.servers": found[0]})
    compacted = NewTopic("compacted", partitions, 1, config={"cleanup.policy": "compact"})
    admin.create_topics([compacted])["compacted"].result(30)
    producer = Producer({"bootstrap.servers": found[0], "compression.type": "zstd"})
    for partition in range(partitions):
        producer.produce("compacted", bytes(LARGE), b"key", partition=partition)
    assert producer.flush(60) == 0
    consumer = Consumer({"bootstrap.servers": found[0], "group.id": "g", "enable.auto.commit": False})
    consumer.assign([TopicPartition("compacted", partition, 0) for partition in range(partitions)])
    left = set(range(partitions))
    while left:
        messages = consumer.consume(partitions, timeout=10)
        assert messages
        for message in messages:
            value = message.value()
            assert value is not None and len(value) == LARGE
            left.discard(message.partition() or 0)
    consumer.close()
    process.terminate()
    _, told = process.communicate(timeout=30)
    assert (process.returncode, told) == (0, "")


def test_metrics_that_no_thread_can_be_had_for_are_refused_with_what_to_do(tmp_path: Path) -> None:
    pytest.importorskip("prometheus_client")
    process = start(tmp_path / "data", "--metrics", "127.0.0.1:0")
    _, told = process.communicate(timeout=30)
    assert (process.returncode, told.count("\n")) == (2, 1), told
    assert "--metrics" in told and "no thread can be started" in told and "ulimit -u" in told
    assert not (tmp_path / "data").exists()


@pytest.mark.parametrize(("cores", "threads"), [(None, 1), (1, 1), (2, 1), (4, 3)])
def test_what_is_done_in_threads_leaves_a_core_to_the_event_loop(
    monkeypatch: pytest.MonkeyPatch, cores: int | None, threads: int
) -> None:
    monkeypatch.setattr(os, "cpu_count", lambda: cores)
    may_end, at_work, most, lock = threading.Event(), [0], [0], threading.Lock()

    def work() -> None:
        with lock:
            at_work[0] += 1
            most[0] = max(most[0], at_work[0])
            if most[0] == threads:
                may_end.set()
        may_end.wait(60)
        with lock:
            at_work[0] -= 1

    async def all_at_once() -> None:
        await asyncio.wait([asyncio.ensure_future(asyncio.to_thread(work)) for _ in range(2 * threads + 1)])

    with asyncio.Runner(loop_factory=loop_beside_threads) as runner:
        runner.run(all_at_once())
    assert most == [threads]
