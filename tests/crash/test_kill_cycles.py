"""kill -9 of the broker at any moment: nothing acknowledged is lost, nothing uncommitted appears, nothing hangs."""

from __future__ import annotations

import asyncio
import sys
import uuid
from pathlib import Path

from confluent_kafka import Consumer, TopicPartition

sys.path.insert(0, str(Path(__file__).parent))

from kill_cycles import TOPICS, Node, Outcomes, run, verdict


def read_committed(address: str) -> list[str]:
    """Every record that a read_committed librdkafka consumer is shown, up to the high watermark."""
    consumer = Consumer(
        {
            "bootstrap.servers": address,
            "group.id": uuid.uuid4().hex,
            "enable.auto.commit": False,
            "isolation.level": "read_committed",
            "enable.partition.eof": True,
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
            records.append((message.value() or b"").decode())
        elif (message.offset() or 0) >= ends[key]:
            waiting.pop(key, None)
    consumer.close()
    return records


def test_fifty_kills_under_load_lose_nothing_and_show_nothing_uncommitted(tmp_path: Path) -> None:
    node = Node(tmp_path / "data")
    try:
        outcomes = asyncio.run(run(node, cycles=50, seed=1))
        visible = read_committed(node.address)
    finally:
        node.kill()
    assert len(outcomes.committed) > 200
    assert verdict(outcomes, visible) == []


def test_the_verdict_sees_each_kind_of_fault() -> None:
    outcomes = Outcomes(committed={"a": ["a1", "a2"]}, aborted={"b": ["b1"]}, unknown={"c": ["c1", "c2"]})
    assert verdict(outcomes, ["a1", "a2"]) == []
    assert verdict(outcomes, ["a1", "a2", "c1", "c2"]) == []
    assert verdict(outcomes, ["a1"]) == ["a2 of the committed transaction a is lost"]
    assert verdict(outcomes, ["a1", "a2", "a2"]) == ["a2 is visible 2 times"]
    assert verdict(outcomes, ["a1", "a2", "b1"]) == ["b1 of the aborted transaction b is visible"]
    assert verdict(outcomes, ["a1", "a2", "c2"]) == ["transaction c is torn: 1 of 2 records are visible"]
    assert verdict(outcomes, ["a1", "a2", "x"]) == ["x was never sent"]
