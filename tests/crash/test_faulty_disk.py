"""A real node whose disk fails, and librdkafka: what is acknowledged is there after a restart, and nothing twice."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import KafkaError, Producer
from tests.crash.kill_cycles import Node
from tests.crash.test_damaged_disk import COUNT, log_file, node, read

FOR_EVER = 1_000_000
MORE = range(COUNT, COUNT + 200)


__all__ = ["node"]


class FaultyNode(Node):
    """Fails from `fail` on."""

    def __init__(self, sound: Node, fault: str, pattern: str, times: int) -> None:
        super().__init__(Path(sound.command[-1]))
        self.address = sound.address
        self.command = sound.command
        self._fault = [fault, pattern, str(times)]

    @property
    def call(self) -> tuple[str, list[str]]:
        _, arguments = super().call
        return "tests.crash.faulty_node.main", [*self._fault, *arguments]

    def fail(self) -> None:
        assert self._process is not None
        self._process.send_signal(signal.SIGUSR1)

    def end(self) -> None:
        assert self._process is not None
        self._process.send_signal(signal.SIGTERM)

    def exit_code(self) -> int:
        """Waits for the end that it comes to by itself."""
        assert self._process is not None
        return self._process.wait(30)


@contextmanager
def failing(sound: Node, fault: str, pattern: str, times: int) -> Iterator[FaultyNode]:
    """The same directory under a node whose disk fails from now on."""
    sound.stop()
    faulty = FaultyNode(sound, fault, pattern, times)
    faulty.start()
    try:
        faulty.fail()
        yield faulty
    finally:
        faulty.kill()


def send(address: str, topic: str, patience_ms: int) -> tuple[list[int], set[str]]:
    """Send `MORE`, each at most once, in order: those that were acknowledged, and the errors of the others."""
    taken: list[int] = []
    errors: set[str] = set()

    def delivered(error: KafkaError | None, message: Any) -> None:
        if error is None:
            taken.append(int(message.value()))
        else:
            errors.add(error.name())

    producer = Producer(
        {
            "bootstrap.servers": address,
            "enable.idempotence": True,
            "message.timeout.ms": patience_ms,
            "socket.timeout.ms": 2000,
            "linger.ms": 0,
            "batch.num.messages": 10,
        }
    )
    for number in MORE:
        producer.produce(topic, f"{number}".encode(), partition=0, on_delivery=delivered)
        if number % 10 == 9:
            producer.poll(0.01)
    assert producer.flush(60) == 0
    return taken, errors


def check(sound: Node, taken: list[int]) -> None:
    """After another start nothing is missing, nothing is there twice, and it goes on."""
    sound.start()
    found, errors = read(sound.address, "hurt", 0)
    assert errors == set()
    assert found == list(range(COUNT)) + found[COUNT:]
    assert found[COUNT:] == sorted(set(found[COUNT:])) and set(found[COUNT:]) <= set(MORE)
    assert set(taken) <= set(found), "what was acknowledged"
    assert read(sound.address, "well", 0) == (list(range(COUNT)), set())
    again, _ = send(sound.address, "hurt", 20_000)
    assert again == list(MORE)
    sound.kill()


@pytest.mark.parametrize("pattern", ["commit-log/", "hurt-0/"])
def test_a_sync_that_fails_ends_the_node(node: Node, pattern: str) -> None:
    """Nobody is told that what it wrote is durable; a file of one partition is synced when there is a checkpoint."""
    with failing(node, "EIO at a sync", pattern, 1) as faulty:
        if pattern == "hurt-0/":
            taken, _ = send(faulty.address, "hurt", 20_000)
            assert taken == list(MORE)
            faulty.end()  # which makes a checkpoint
        else:
            taken, errors = send(faulty.address, "hurt", 1500)
            assert len(taken) < len(MORE) and errors
        assert faulty.exit_code() == 1
    check(node, taken)


@pytest.mark.parametrize("pattern", ["commit-log/", "hurt-0/"])
@pytest.mark.parametrize("fault", ["ENOSPC at a write", "EIO at a write"])
def test_a_write_that_fails_a_few_times_is_tried_again(node: Node, fault: str, pattern: str) -> None:
    with failing(node, fault, pattern, 5) as faulty:
        taken, errors = send(faulty.address, "hurt", 20_000 if "hurt" in pattern else 2500)
        if "hurt" in pattern:
            assert (taken, errors) == (list(MORE), set())
        else:
            assert errors or taken == list(MORE)
    check(node, taken)


@pytest.mark.parametrize("fault", ["ENOSPC at a write", "EIO at a write"])
def test_a_partition_that_takes_nothing_holds_up_nobody_else(node: Node, fault: str) -> None:
    with failing(node, fault, "hurt-0/", FOR_EVER) as faulty:
        taken, errors = send(faulty.address, "hurt", 1500)
        assert taken == [] and errors
        assert read(faulty.address, "well", 0) == (list(range(COUNT)), set())
        assert read(faulty.address, "hurt", 0) == (list(range(COUNT)), set())
    check(node, taken)


@pytest.mark.parametrize("fault", ["EIO at a read", "a short read", "a flipped bit"])
def test_a_read_that_fails_is_an_error_or_tried_again_and_never_another_record(node: Node, fault: str) -> None:
    for times, patience in ((3, 10.0), (FOR_EVER, 0.5)):
        with failing(node, fault, "hurt-0/0", times) as faulty:
            found, _ = read(faulty.address, "hurt", 0, patience)
            assert found == list(range(len(found)))
            if times != FOR_EVER:
                assert len(found) == COUNT, "it was tried again"
            elif fault != "a flipped bit":  # it may be one behind what a reader is given
                assert len(found) < COUNT
            assert read(faulty.address, "well", 0) == (list(range(COUNT)), set())
            faulty.kill()
        node.start()
    node.kill()
    check(node, [])


@pytest.mark.parametrize("synced", [False, True])
def test_a_file_that_vanishes_under_the_node(node: Node, tmp_path: Path, synced: bool) -> None:
    """What the commit log still has is made again; else its partition is offline until a copy is put back."""
    if synced:
        node.stop()
        node.start()
    file, copy = log_file(tmp_path / "data"), tmp_path / "copy"
    os.link(file, copy)
    file.unlink()
    taken, _ = send(node.address, "hurt", 4000)
    node.kill()
    if synced:
        node.start()
        assert read(node.address, "hurt", 0, seconds=0.5)[0] == []
        assert read(node.address, "well", 0) == (list(range(COUNT)), set())
        node.stop()
        os.link(copy, file)
    check(node, taken)
