"""Files damaged under a real `fencepost serve`, and while it is stopped, read with librdkafka."""

from __future__ import annotations

import asyncio
import subprocess
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from confluent_kafka import Consumer, KafkaError, Producer, TopicPartition
from tests.crash.kill_cycles import Node

from fencepost.client import Admin
from fencepost.protocol.batch import headers

TOPICS = ("hurt", "well")
COUNT = 400


def produce(address: str) -> None:
    producer = Producer({"bootstrap.servers": address, "linger.ms": 0, "batch.num.messages": 10})
    for topic in TOPICS:
        for number in range(COUNT):
            producer.produce(topic, f"{number}".encode(), partition=0)
            if number % 10 == 9:
                producer.flush(30)
    assert producer.flush(30) == 0


def read(address: str, topic: str, start: int, seconds: float = 2.0) -> tuple[list[int], set[int]]:
    """The records that a consumer is given from `start` on, and the errors that it is told."""
    errors: set[int] = set()
    consumer = Consumer(
        {
            "bootstrap.servers": address,
            "group.id": uuid.uuid4().hex,
            "enable.partition.eof": True,
            "fetch.wait.max.ms": 20,
            "check.crcs": True,
            "error_cb": lambda error: errors.add(error.code()),
        }
    )
    consumer.assign([TopicPartition(topic, 0, start)])
    found: list[int] = []
    while (message := consumer.poll(seconds)) is not None:
        error = message.error()
        if error is None:
            found.append(int(message.value() or b""))
        elif error.code() == KafkaError._PARTITION_EOF:
            break
        else:
            errors.add(error.code())
            if error.code() == KafkaError.INVALID_MSG:  # CORRUPT_MESSAGE: it is told so again and again
                break
    consumer.close()
    return found, errors


async def make_topics(address: str) -> None:
    async with Admin(address) as admin:
        for topic in TOPICS:
            await admin.create_topic(topic, partitions=1)


@pytest.fixture
def node(tmp_path: Path) -> Iterator[Node]:
    node = Node(tmp_path / "data")
    node.start()
    try:
        asyncio.run(make_topics(node.address))
        produce(node.address)
        yield node
    finally:
        node.kill()


def log_file(data: Path) -> Path:
    return data / "hurt-0" / f"{0:020d}.log"


def test_a_file_cut_under_the_node_is_read_up_to_there(node: Node, tmp_path: Path) -> None:
    file = log_file(tmp_path / "data")
    with file.open("r+b") as handle:
        handle.truncate(file.stat().st_size // 2)
    try:
        found, _ = read(node.address, "hurt", 0)
        assert found == list(range(len(found))) and 100 < len(found) < 300
        assert read(node.address, "well", 0) == (list(range(COUNT)), set())
        producer = Producer({"bootstrap.servers": node.address})
        producer.produce("well", b"400", partition=0)
        assert producer.flush(10) == 0
    finally:
        node.kill()


def batch_in_the_middle(data: Path) -> tuple[int, int]:
    """Its place in the file, and its first offset."""
    found = [(at, header.base_offset) for at, header in headers(log_file(data).read_bytes())]
    return found[len(found) // 2]


def flip_in_a_header(data: Path) -> None:
    """The length of a batch in the middle."""
    file, (at, _) = log_file(data), batch_in_the_middle(data)
    raw = bytearray(file.read_bytes())
    raw[at + 9] ^= 0x10
    file.write_bytes(raw)


def scramble_the_indexes(data: Path) -> None:
    for suffix in (".index", ".timeindex"):
        file = log_file(data).with_suffix(suffix)
        file.write_bytes(bytes(range(256)) * (file.stat().st_size // 256 + 1))


def cut_the_log(data: Path) -> None:
    file = log_file(data)
    file.write_bytes(file.read_bytes()[:-1])


@pytest.mark.parametrize("damage", [flip_in_a_header, scramble_the_indexes, cut_the_log])
def test_what_is_damaged_while_it_is_stopped(node: Node, tmp_path: Path, damage: Callable[[Path], None]) -> None:
    node.stop()
    _, middle = batch_in_the_middle(tmp_path / "data")
    damage(tmp_path / "data")
    node.start()
    try:
        assert read(node.address, "well", 0) == (list(range(COUNT)), set())
        found, errors = read(node.address, "hurt", 0)
        if damage is scramble_the_indexes:
            assert found == list(range(COUNT))
            assert read(node.address, "hurt", 250)[0] == list(range(250, COUNT))
        elif damage is flip_in_a_header:
            assert found == list(range(middle)) and 0 < middle < COUNT
            assert KafkaError.INVALID_MSG in errors
        else:
            assert found == [], "it is offline"
    finally:
        node.kill()


def test_a_flipped_bit_in_the_commit_log_is_refused_or_recovered_when_told(node: Node, tmp_path: Path) -> None:
    node.kill()
    (file,) = (tmp_path / "data" / "commit-log").glob("*.log")
    raw = bytearray(file.read_bytes())
    raw[len(raw.rstrip(b"\0")) // 2] ^= 4
    file.write_bytes(raw)
    refused = subprocess.run([*node.command, "--listen", "127.0.0.1:0"], capture_output=True, text=True, timeout=60)
    assert refused.returncode != 0 and str(file) in refused.stderr and "--recover-from-segments" in refused.stderr
    node.command.append("--recover-from-segments")
    node.start()
    try:
        for topic in TOPICS:
            assert read(node.address, topic, 0) == (list(range(COUNT)), set())
    finally:
        node.kill()
