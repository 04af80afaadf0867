"""A node on a small tmpfs that is full to the last byte: what frees space goes through, and it stops and starts."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import Future
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import KafkaException, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, AlterConfigOpType, ConfigEntry, ConfigResource, NewTopic
from tests.processes import begun

MEBIBYTES = 24


@contextmanager
def mounted(path: Path, options: str) -> Iterator[Path]:
    """A tmpfs there."""
    done = subprocess.run(["mount", "-t", "tmpfs", "-o", options, "tmpfs", str(path)], capture_output=True)
    if done.returncode:
        pytest.skip("only root may mount a small disk")
    try:
        yield path
    finally:
        subprocess.run(["umount", "-l", str(path)], check=True)


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """Where a small tmpfs is mounted."""
    with mounted(tmp_path, f"size={MEBIBYTES}m") as path:
        yield path


class Node:
    """`fencepost serve` on that disk."""

    def __init__(self, data: Path) -> None:
        self.data = data
        self.start()

    def start(self) -> None:
        command = [sys.executable, "-m", "fencepost", "serve", "--listen", "127.0.0.1:0", "--data", str(self.data)]
        self._process = begun(subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True))
        assert self._process.stdout is not None and self._process.stderr is not None
        found = re.search(r"127\.0\.0\.1:\d+", self._process.stdout.readline())
        assert found is not None, self._process.stderr.read()
        self.address = found[0]
        self.admin = AdminClient({"bootstrap.servers": self.address})

    def stop(self, how: signal.Signals = signal.SIGTERM) -> str:
        """End it; what it has said."""
        self._process.send_signal(how)
        told = self._process.communicate(timeout=30)[1]
        assert self._process.returncode == (0 if how == signal.SIGTERM else -how)
        assert "Traceback" not in told
        return told


def done(futures: dict[Any, Future[Any]]) -> None:
    for future in futures.values():
        future.result(15)


def produce(node: Node, topic: str, most: int = 4000) -> tuple[int, set[str]]:
    """Records of 10 KB until some are not taken: how many were taken, and why others were not."""
    taken, errors = 0, set[str]()

    def delivered(error: Any, _: object) -> None:
        nonlocal taken
        if error is None:
            taken += 1
        else:
            errors.add(error.name())

    producer = Producer({"bootstrap.servers": node.address, "message.timeout.ms": 1500, "retries": 0, "linger.ms": 0})
    for number in range(most):
        producer.produce(topic, os.urandom(10_000), partition=number % 2, on_delivery=delivered)
        producer.poll(0)
        if number % 50 == 49:
            producer.flush(5)
        if errors:
            break
    producer.flush(5)
    return taken, errors


def occupy(disk: Path) -> None:
    """Somebody else takes what is left."""
    file = os.open(disk / "foreign", os.O_CREAT | os.O_WRONLY | os.O_APPEND)
    try:
        while True:
            os.write(file, bytes(4096))
    except OSError:
        os.close(file)


def test_a_full_disk_has_a_way_out(small_disk: Path) -> None:
    node = Node(small_disk / "data")
    done(node.admin.create_topics([NewTopic("a", 2, 1), NewTopic("b", 2, 1)]))
    assert produce(node, "b", 100) == (100, set())
    taken, errors = produce(node, "a")
    assert taken > 500
    assert errors == {"KAFKA_STORAGE_ERROR"}
    occupy(small_disk)

    with pytest.raises(KafkaException, match="KAFKA_STORAGE_ERROR"):
        done(node.admin.create_topics([NewTopic("c", 2, 1)]))
    entry = ConfigEntry("retention.bytes", "100000", incremental_operation=AlterConfigOpType.SET)
    done(
        node.admin.incremental_alter_configs(
            [ConfigResource(ConfigResource.Type.TOPIC, "b", incremental_configs=[entry])]
        )
    )
    done(node.admin.delete_records([TopicPartition("b", 0, 5)]))
    told = node.stop()
    assert ["refused" in line for line in told.splitlines() if "delete topics or records" in line] == [False, True]
    for how in (signal.SIGKILL, signal.SIGTERM):
        node.start()
        occupy(small_disk)
        node.stop(how)
    node.start()
    occupy(small_disk)

    done(node.admin.delete_topics(["a"]))
    assert produce(node, "b", 100) == (100, set())
    done(node.admin.create_topics([NewTopic("c", 2, 1)]))
    assert node.stop() == ""


def test_a_disk_that_can_have_no_more_files_has_the_same_way_out(tmp_path: Path) -> None:
    """Each topic takes several; other people's files take the rest."""
    with mounted(tmp_path, f"size={MEBIBYTES}m,nr_inodes=300") as disk:
        node = Node(disk / "data")
        done(node.admin.create_topics([NewTopic("t", 2), NewTopic("gone", 20)]))
        assert produce(node, "t", 20) == (20, set())
        number = 0
        try:
            while True:
                (disk / f"else{number}").touch()
                number += 1
        except OSError:
            assert number > 10
        with pytest.raises(KafkaException, match="no space is left on the disk"):
            done(node.admin.create_topics([NewTopic("more", 2)]))
        done(node.admin.delete_topics(["gone"]))
        node.stop()
        node.start()
        done(node.admin.create_topics([NewTopic("more", 2)]))
        assert produce(node, "more", 20) == (20, set())
        node.stop()
