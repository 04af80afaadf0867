"""kill -9 of the broker at any moment: nothing acknowledged is lost, nothing uncommitted appears, nothing hangs."""

from __future__ import annotations

import asyncio
import uuid
from pathlib import Path

import pytest
from confluent_kafka import Consumer, TopicPartition
from tests.crash.kill_cycles import TOPICS, Node, Outcomes, run, verdict
from tests.seeds import seeds


def read_committed(address: str) -> list[str]:
    """Every record that a read_committed librdkafka consumer is shown up to the high watermark, without filling."""
    consumer = Consumer(
        {
            "bootstrap.servers": address,
            "group.id": uuid.uuid4().hex,
            "enable.auto.commit": False,
            "isolation.level": "read_committed",
            "enable.partition.eof": True,
            "fetch.wait.max.ms": 20,
        }
    )
    partitions = [TopicPartition(topic, n, 0) for topic, count in TOPICS.items() for n in range(count)]
    ends = {(p.topic, p.partition): consumer.get_watermark_offsets(p, 30)[1] for p in partitions}
    consumer.assign(partitions)
    waiting, records = dict(ends), []
    while waiting:
        message = consumer.poll(30)
        assert message is not None, f"a transaction hangs: nothing more comes, still waiting for {waiting}"
        key = (message.topic() or "", message.partition() or 0)
        if message.error() is None:
            records.append((message.value() or b"").decode().rstrip())
        elif (message.offset() or 0) >= ends[key]:
            waiting.pop(key, None)
    consumer.close()
    return records


def kill_again_and_again(data: Path, cycles: int, longest_life: float, seed: int) -> int:
    """How many transactions were committed."""
    node = Node(data)
    try:
        outcomes = asyncio.run(run(node, cycles, seed, longest_life))
        visible = read_committed(node.address)
    finally:
        node.kill()
    assert verdict(outcomes, visible) == []
    return len(outcomes.committed)


def test_a_hundred_kills_under_load_lose_nothing_and_show_nothing_uncommitted(tmp_path: Path) -> None:
    assert kill_again_and_again(tmp_path / "data", 100, 0.2, seed=1) > 200


@pytest.mark.soak
@pytest.mark.parametrize("seed", seeds(4))
def test_a_thousand_kills_under_load(tmp_path: Path, seed: int) -> None:
    assert kill_again_and_again(tmp_path / "data", 250, 0.8, seed + 2) > 1000


def test_the_verdict_sees_each_kind_of_fault() -> None:
    outcomes = Outcomes(committed={"a": ["a1", "a2"]}, aborted={"b": ["b1"]}, unknown={"c": ["c1", "c2"]})
    assert verdict(outcomes, ["a1", "a2"]) == []
    assert verdict(outcomes, ["a1", "a2", "c1", "c2"]) == []
    assert verdict(outcomes, ["a1"]) == ["a2 of the committed transaction a is lost"]
    assert verdict(outcomes, ["a1", "a2", "a2"]) == ["a2 is visible 2 times"]
    assert verdict(outcomes, ["a1", "a2", "b1"]) == ["b1 of the aborted transaction b is visible"]
    assert verdict(outcomes, ["a1", "a2", "c2"]) == ["transaction c is torn: 1 of 2 records are visible"]
    assert verdict(outcomes, ["a1", "a2", "x"]) == ["x was never sent"]
