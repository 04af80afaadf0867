"""A node that may have few files open has as many partitions as any other."""

from __future__ import annotations

import re
import resource
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path

from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic
from tests.processes import begun

from fencepost.log.descriptors import LEAST

DESCRIPTORS = LEAST
PARTITIONS = 120


def start(data: Path) -> tuple[subprocess.Popen[str], str]:
    def few() -> None:
        resource.setrlimit(resource.RLIMIT_NOFILE, (DESCRIPTORS // 2, DESCRIPTORS))

    command = [sys.executable, "-m", "fencepost", "serve", "--listen", "127.0.0.1:0", "--data", str(data)]
    process = begun(
        subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, preexec_fn=few)
    )
    assert process.stdout is not None
    found = re.search(r"127\.0\.0\.1:\d+", process.stdout.readline())
    assert found is not None
    return process, found[0]


def test_more_partitions_than_descriptors(tmp_path: Path) -> None:
    process, address = start(tmp_path / "data")
    admin = AdminClient({"bootstrap.servers": address})
    for future in admin.create_topics([NewTopic("many", PARTITIONS, 1)]).values():
        future.result(30)
    for number, how in enumerate((signal.SIGKILL, signal.SIGTERM)):
        producer = Producer({"bootstrap.servers": address})
        for partition in range(PARTITIONS):
            producer.produce("many", f"{number}", partition=partition)
        assert producer.flush(60) == 0
        process.send_signal(how)
        _, told = process.communicate(timeout=30)
        assert told == ""
        process, address = start(tmp_path / "data")
    consumer = Consumer({"bootstrap.servers": address, "group.id": "g", "enable.auto.commit": False})
    consumer.assign([TopicPartition("many", partition, 0) for partition in range(PARTITIONS)])
    found: set[tuple[int | None, bytes | str | None]] = set()
    while len(found) < 2 * PARTITIONS:
        messages = consumer.consume(1000, timeout=10)
        assert messages
        found.update((message.partition(), message.value()) for message in messages)
    consumer.close()
    process.terminate()
    process.communicate(timeout=30)
    assert process.returncode == 0


def test_connections_without_end_neither_stop_the_node_nor_fill_its_log(tmp_path: Path) -> None:
    """Who only connects is not accepted any more; files go on being opened, and it is said a few times."""
    process, address = start(tmp_path / "data")
    host, port = address.split(":")
    admin = AdminClient({"bootstrap.servers": address, "log_level": 0})
    admin.create_topics([NewTopic("before", 1)])["before"].result(30)
    idle = [socket.create_connection((host, int(port)), 5) for _ in range(2 * DESCRIPTORS)]
    try:
        for name in ("meanwhile", "still"):
            admin.create_topics([NewTopic(name, 3)])[name].result(30)
            time.sleep(1.2)
        assert "still" in admin.list_topics(timeout=20).topics
    finally:
        for each in idle:
            each.close()
    process.terminate()
    _, said = process.communicate(timeout=30)
    assert process.returncode == 0, said
    assert "no connection is accepted for a second" in said and "max.connections" in said
    assert len(said) < 10_000, "no line repeats without a limit"


def test_fewer_descriptors_than_a_node_needs_are_refused_with_the_number(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "fencepost", "serve", "--listen", "127.0.0.1:0", "--data", str(tmp_path / "data")]
    for few in (20, LEAST - 1):
        limits = (few, few)
        refused = subprocess.run(
            command,
            capture_output=True,
            text=True,
            timeout=60,
            preexec_fn=lambda limits=limits: resource.setrlimit(resource.RLIMIT_NOFILE, limits),  # type: ignore[misc]
        )
        assert refused.returncode == 2 and refused.stdout == ""
        assert f"{few} files" in refused.stderr and f"needs {LEAST}" in refused.stderr
    assert not (tmp_path / "data").exists()
