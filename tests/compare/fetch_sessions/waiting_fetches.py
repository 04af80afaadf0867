"""Random walks of fetches that wait for bytes while transactions end beside them on other connections.

After each step both nodes must have answered the same fetches, and alike; who still waits, waits on both.
"""

from __future__ import annotations

import random
from typing import Any

from tests.compare.nodes import requests
from tests.compare.nodes.connection import CLOSED, wait_until
from tests.compare.nodes.parking import WAITS, Parked
from tests.compare.nodes.plain import NOW
from tests.compare.nodes.requests import Written
from tests.compare.nodes.twins import NOBODY, Twins

from fencepost.protocol.messages import (
    DeleteRecordsRequest,
    DeleteTopicsRequest,
    FetchRequest,
    ListOffsetsRequest,
    ProduceRequest,
)
from fencepost.protocol.messages.delete_records import DeleteRecordsPartition, DeleteRecordsTopic
from fencepost.protocol.messages.fetch import FetchPartition, FetchTopic
from fencepost.protocol.messages.list_offsets import ListOffsetsPartition, ListOffsetsTopic
from fencepost.protocol.messages.produce import PartitionProduceData, TopicProduceData
from fencepost.protocol.records import encode_batch
from fencepost.protocol.types import ProducerIdAndEpoch

WEIGHTS = {"watch": 8, "write": 4, "write_plainly": 3, "end": 5, "init": 1, "delete_records": 0.4, "delete_topic": 0.1}
PARTITIONS = (0, 1)
_LONG_MS, _SHORT_MS = 60_000, 200
_AT_ONCE = 3


class Plain:
    """A batch of nobody's; so many bytes in its only record."""

    def __init__(self, size: int) -> None:
        self.pair, self._size = NOBODY, size

    def batch(self, producer_id: int) -> bytes:  # noqa: ARG002
        return encode_batch([(NOW, None, b"p" * self._size, ())])

    def __repr__(self) -> str:
        return f"a plain record of {self._size} bytes"


def what_counts(answer: Any) -> Any:
    """An answer without the aborted transactions that begin behind its records: to list them is allowed."""
    for topic in answer["responses"]:
        for partition in topic["partitions"]:
            last = max((sum(batch["offsets"]) for batch in partition.get("records", ())), default=-1)
            aborted = partition.pop("aborted_transactions", None) or []
            partition["aborted"] = [one for one in aborted if one["first_offset"] <= last]
    return answer


class Watch:
    """One walk, on a topic of its own."""

    def __init__(self, twins: Twins, chance: random.Random, prefix: str) -> None:
        self.twins, self.chance = twins, chance
        self.topic = f"{prefix}-t"
        self.names = [f"{prefix}-0", f"{prefix}-1"]
        self._pairs: dict[str, ProducerIdAndEpoch] = {}
        self._sequences: dict[tuple[str, int, ProducerIdAndEpoch], int] = {}
        self._parked: list[Parked] = []
        self.woken = 0

    def go(self, length: int) -> None:
        try:
            self._begin()
            for _ in range(length):
                move = self.chance.choices(list(WEIGHTS), list(WEIGHTS.values()))[0]
                getattr(self, f"_{move}")()
                self._look()
            self._give_up()
        finally:
            for parked in self._parked:
                parked.close()

    def _begin(self) -> None:
        for node in (self.twins.kafka, self.twins.ours):
            node.ask(requests.create_topics({self.topic: 2}, retention_ms="-1"), 5)
            wait_until(lambda node=node: self._ends(node, 0) is not None, 30, f"the leaders of {self.topic}")  # type: ignore[misc]
        for name in self.names:
            self._init(name)

    def _ends(self, node: Any, isolation: int, timestamp: int = -1) -> list[int] | None:
        asked = [ListOffsetsPartition(partition_index=index, timestamp=timestamp) for index in PARTITIONS]
        topics = [ListOffsetsTopic(name=self.topic, partitions=asked)]
        answer = node.ask(ListOffsetsRequest(replica_id=-1, isolation_level=isolation, topics=topics), 6)
        found = sorted(answer.topics[0].partitions, key=lambda one: int(one.partition_index))
        return None if any(one.error_code for one in found) else [one.offset for one in found]

    def _look(self) -> None:
        """First what both say of the ids, when no marker is missing; then which fetches were answered."""
        for found in self.twins.describe(*self.names):
            self._pairs[found["transactional_id"]] = ProducerIdAndEpoch.of(
                found["producer_id"], found["producer_epoch"]
            )
        for parked in list(self._parked):
            if parked.settled() != WAITS:
                self.woken += 1
                self._parked.remove(parked)

    def _give_up(self) -> None:
        """In the end, fetches whose time is up: they get what there is, however little."""
        long = len(self._parked)
        for _ in range(3):
            self._park(_SHORT_MS, self.chance.choice([50, 500, 1 << 20]))
        for parked in self._parked[long:]:
            parked.answered()
            self.woken += 1
            self._parked.remove(parked)

    # Steps

    def _watch(self) -> None:
        if len(self._parked) < _AT_ONCE:
            self._park(_LONG_MS, self.chance.choice([0, 1, 1, 50, 79, 80, 150, 300, 1000, 1 << 20]))

    def _park(self, wait_ms: int, least: int) -> None:
        isolation = self.chance.choice([0, 1, 1])
        ends, stable = self._ends(self.twins.kafka, 0), self._ends(self.twins.kafka, 1)
        if ends is None or stable is None:
            return
        asked = []
        for index in self.chance.choice([(0,), (1,), (0, 1)]):
            end = (ends, stable)[isolation][index]
            near = [end, end, end, stable[index], ends[index], max(end - 1, 0), 0, ends[index] + 1]
            most = self.chance.choice([1 << 20, 1 << 20, 1 << 20, 100, 1])
            asked.append(
                FetchPartition(partition=index, fetch_offset=self.chance.choice(near), partition_max_bytes=most)
            )
        request = FetchRequest(
            max_wait_ms=wait_ms,
            min_bytes=least,
            max_bytes=self.chance.choice([1 << 20, 1 << 20, 90]),
            isolation_level=isolation,
            topics=[FetchTopic(topic=self.topic, partitions=asked)],
        )
        self._parked.append(Parked(self.twins, request, self.chance.choice([4, 6, 11, 12]), what_counts))

    def _produce(self, name: str | None, partition: int, records: Any) -> ProduceRequest:
        data = TopicProduceData(
            name=self.topic, partition_data=[PartitionProduceData(index=partition, records=records)]
        )
        return ProduceRequest(transactional_id=name, acks=-1, timeout_ms=5000, topic_data=[data])

    def _write(self) -> None:
        name, partition = self.chance.choice(self.names), self.chance.choice(PARTITIONS)
        pair = self._pairs[name]
        at = name, partition, pair
        version = 12 if self.twins.level and self.chance.random() < 0.5 else 11
        if version == 11:
            self.twins.ask(requests.add(name, pair, {self.topic: [partition]}), 3)
        records = Written(pair, self._sequences.get(at, 0), NOW)
        answer = self.twins.ask(self._produce(name, partition, records), version)
        if answer != CLOSED and not answer["responses"][0]["partition_responses"][0]["error_code"]:
            self._sequences[at] = self._sequences.get(at, 0) + 1

    def _write_plainly(self) -> None:
        records = Plain(self.chance.choice([1, 20, 200, 900]))
        self.twins.ask(self._produce(None, self.chance.choice(PARTITIONS), records), 11)

    def _end(self) -> None:
        name = self.chance.choice(self.names)
        version = 5 if self.twins.level and self.chance.random() < 0.5 else 4
        self.twins.ask(requests.end(name, self._pairs[name], self.chance.random() < 0.5), version)

    def _init(self, name: str | None = None) -> None:
        self.twins.ask(requests.init(name or self.chance.choice(self.names), timeout_ms=900_000), 4)
        self._look()

    def _delete_records(self) -> None:
        stable = self._ends(self.twins.kafka, 1)
        if stable is not None:
            index = self.chance.choice(PARTITIONS)
            asked = [DeleteRecordsPartition(partition_index=index, offset=self.chance.randint(0, stable[index]))]
            topics = [DeleteRecordsTopic(name=self.topic, partitions=asked)]
            self.twins.ask(DeleteRecordsRequest(topics=topics, timeout_ms=5000), 2)

    def _delete_topic(self) -> None:
        if any(len(parked.request.topics[0].partitions) > 1 for parked in self._parked):
            return  # Apache Kafka deletes one partition after the other
        self.twins.ask(DeleteTopicsRequest(topic_names=[self.topic], timeout_ms=10_000), 5)
        # Apache Kafka answers before its leaders know of it: a fetch that came between would meet one that does.
        for node in (self.twins.kafka, self.twins.ours):
            wait_until(lambda node=node: self._ends(node, 0) is None, 30, f"the end of {self.topic}")  # type: ignore[misc]
