"""kill -9 in the middle of compaction, while policies change and topics go: every key has its newest record."""

from __future__ import annotations

import asyncio
import uuid
from pathlib import Path

import pytest
from confluent_kafka import OFFSET_BEGINNING, Consumer, TopicPartition
from tests.crash.kill_cycles import Node
from tests.crash.kills_while_cleaning import DOOMED, PARTITIONS, SETTINGS, STATE, Shown, Transaction, Work, run, verdict
from tests.seeds import seeds


def read_committed(address: str, topic: str, partitions: int) -> list[Shown]:
    """Every record that a read_committed librdkafka consumer is shown, up to the high watermark."""
    consumer = Consumer(
        {
            "bootstrap.servers": address,
            "group.id": uuid.uuid4().hex,
            "enable.auto.commit": False,
            "isolation.level": "read_committed",
            "enable.partition.eof": True,
            "fetch.wait.max.ms": 20,
            "check.crcs": True,
        }
    )
    consumer.assign([TopicPartition(topic, n, OFFSET_BEGINNING) for n in range(partitions)])
    shown: list[Shown] = []
    ended: set[int] = set()
    while len(ended) < partitions:
        message = consumer.poll(30)
        assert message is not None, f"nothing more comes of {topic}, at the end is {ended}"
        partition = message.partition() or 0
        if message.error() is None:
            value = message.value()
            text = None if value is None else value.split(b" ", 1)[0].decode()
            shown.append(Shown(partition, message.offset() or 0, (message.key() or b"").decode(), text))
        else:
            ended.add(partition)
    consumer.close()
    return shown


def kill_while_cleaning(data: Path, kills: int, seed: int) -> Work:
    node = Node(data)
    node.command += SETTINGS
    try:
        work = asyncio.run(run(node, data, kills, seed))
        assert verdict(work, read_committed(node.address, STATE, PARTITIONS)) == []
        doomed = read_committed(node.address, DOOMED, 1)
        assert {record.value for record in doomed} <= {f"{work.generations}"}
        assert work.kept <= {record.key for record in doomed}, "what was acknowledged since it was made anew"
        node.stop()
        node.start()
        assert verdict(work, read_committed(node.address, STATE, PARTITIONS)) == []
    finally:
        node.kill()
    return work


def test_whatever_befalls_a_pass_every_key_has_its_newest_record(tmp_path: Path) -> None:
    work = kill_while_cleaning(tmp_path / "data", 4, seed=1)
    assert work.cut_off > 1, "kills in the middle of a pass"


@pytest.mark.soak
@pytest.mark.parametrize("seed", seeds(4))
def test_whatever_befalls_many_passes_every_key_has_its_newest_record(tmp_path: Path, seed: int) -> None:
    assert kill_while_cleaning(tmp_path / "data", 100, seed + 2).cut_off > 20


def test_the_verdict_sees_each_kind_of_fault() -> None:
    first = Transaction({"p-transaction-0": "done", "a": "0", "b": "0"}, committed=True, told={(0, 1): "a"})
    unknown = Transaction({"p-transaction-1": "done", "a": "1", "b": None})
    aborted = Transaction({"p-transaction-2": "done", "a": "2"}, committed=False)
    work = Work({"p": [first, unknown, aborted]})
    shown = [Shown(0, 0, "p-transaction-0", "done"), Shown(0, 1, "a", "0"), Shown(1, 0, "b", "0")]
    committed = [Shown(0, 2, "p-transaction-1", "done"), Shown(0, 3, "a", "1"), Shown(1, 1, "b", None)]
    assert verdict(work, shown) == []
    assert verdict(work, [*shown, *committed]) == []
    assert verdict(work, shown[:-1]) == ["b is None, and should be 0"]
    assert verdict(work, [*shown, *committed[:-1]]) == ["b is 0, and should be None"], "torn"
    assert verdict(work, [*shown, Shown(0, 2, "a", "2")]) == ["a is 2, and should be 0"], "aborted"
    assert verdict(work, [*shown, Shown(0, 2, "x", "2")]) == ["x is 2, and should be None"], "never sent"
    assert verdict(work, [shown[0], Shown(0, 2, "a", "0"), shown[2], Shown(0, 1, "b", "0")]) == [
        "at (0, 1) there was a, and is b"
    ]
    assert verdict(work, [*shown, shown[1]]) == ["an offset was shown twice"]
