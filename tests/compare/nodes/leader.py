"""A bare connection to the leader of some partitions, and what it answers in a form that two nodes can share.

Producer ids become the order in which they were given out, times of the node's own clock become "now", texts become
whether there is one, and record batches are taken apart.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Any

from tests.compare.nodes import requests
from tests.compare.nodes.comparison import Plain
from tests.compare.nodes.connection import Connection, is_moving, wait_until
from tests.compare.nodes.plain import Met, batches_of, time_of

from fencepost.protocol.errors import ErrorCode
from fencepost.protocol.message import Message
from fencepost.protocol.messages import (
    DescribeProducersRequest,
    FetchRequest,
    InitProducerIdRequest,
    ListOffsetsRequest,
    MetadataRequest,
)
from fencepost.protocol.messages.describe_producers import TopicRequest
from fencepost.protocol.messages.fetch import FetchPartition, FetchTopic
from fencepost.protocol.messages.list_offsets import ListOffsetsPartition, ListOffsetsTopic
from fencepost.protocol.types import ZERO_UUID

PARTITIONS = 2
FOREIGN = 99
"""A producer id that nobody was given."""
_FOREIGN_ID = 123_456_789_012
SILENT = "silent"
TRANSACTION_TIMEOUT_MS = 900_000
"""Longer than any walk."""
_PATIENCE = 3.0
_PATIENCE_TO_BEGIN = 30.0
_PATIENCE_WITH_TOPICS = 300.0
"""Many of them are made at once."""
_SETTLED_AFTER = 1.5
_DROPPED = ("throttle_time_ms", "node_endpoints", "cluster_id")
_UNORDERED = (
    "active_producers",
    "aborted_transactions",
    "partitions",
    "partition_responses",
    "responses",
    "topics",
    "markers",
)
_TIMES = ("timestamp", "last_timestamp", "log_append_time_ms")


class Leader(Connection):
    """One of the two nodes, as the leader of the partitions of one topic per walk."""

    def __init__(self, bootstrap: str, topic_ids: dict[str, Any] | None = None) -> None:
        super().__init__(bootstrap, _PATIENCE)
        self.topic = ""
        self._producers: Met[int] = Met()
        self.topic_ids = {} if topic_ids is None else topic_ids
        self._stuck: dict[str, Plain] = {}
        """Transactional ids whose markers were waited for in vain."""

    def tell(self, request: Any, version: int) -> str:
        """Send what is not answered; whether the connection outlives it."""
        answer = self.send(request, version) or self.ask(self._producers_request([0]), 0)
        return SILENT if isinstance(answer, Message) else str(answer)

    # Topics and producers

    def make(self, topics: Sequence[str], **configs: str) -> None:
        """Topics of two partitions, and their ids; they are there when this returns."""
        settings = {"retention_ms": "-1", **configs}
        for group in (topics[n : n + 50] for n in range(0, len(topics), 50)):
            wanted = requests.create_topics(dict.fromkeys(group, PARTITIONS), **settings)
            answer = self.ask(wanted, 7, _PATIENCE_WITH_TOPICS)
            assert all(topic.error_code == ErrorCode.NONE for topic in answer.topics), answer
            self.topic_ids.update({topic.name: topic.topic_id for topic in answer.topics})
        wait_until(lambda: not self.is_leaderless(topics), _PATIENCE_WITH_TOPICS, "a leader of each partition")

    def is_leaderless(self, topics: Sequence[str]) -> bool:
        asked = [ListOffsetsPartition(partition_index=index, timestamp=-1) for index in range(PARTITIONS)]
        request = ListOffsetsRequest(
            replica_id=-1, topics=[ListOffsetsTopic(name=topic, partitions=asked) for topic in topics]
        )
        answer = self.ask(request, 6, _PATIENCE_WITH_TOPICS)
        return any(found.error_code for topic in answer.topics for found in topic.partitions)

    def learn(self, topic: str) -> None:
        """The id of a topic that the node made itself."""
        found = self.ask(MetadataRequest(topics=None), 12)
        self.topic_ids.update({of.name: of.topic_id for of in found.topics if of.name == topic})

    def open(self, topic: str, transactional_ids: Sequence[str], idempotent: int) -> None:
        """Begin a walk on a topic: producers 0, 1, ... for the transactional ids, then plain idempotent ones."""
        self.topic, self._producers = topic, Met()
        for name in [*transactional_ids, *[None] * idempotent]:
            request = InitProducerIdRequest(transactional_id=name, transaction_timeout_ms=TRANSACTION_TIMEOUT_MS)
            wait_until(lambda request=request: self._initialized(request), _PATIENCE_TO_BEGIN, "a producer id")  # type: ignore[misc]

    def _initialized(self, request: InitProducerIdRequest) -> bool:
        answer = self.ask(request, 4)
        if answer.error_code == ErrorCode.NONE:
            self.symbol(answer.producer_id)
        return bool(answer.error_code == ErrorCode.NONE)

    def symbol(self, producer_id: int) -> int:
        """A producer id by its order of appearance in this walk; FOREIGN, and -1, stand for themselves."""
        if producer_id == _FOREIGN_ID:
            return FOREIGN
        return -1 if producer_id < 0 else self._producers.number(producer_id)

    def producer_id(self, symbol: int) -> int:
        """The opposite of `symbol`; -1 and lower stand for themselves."""
        return symbol if symbol < 0 else self._producers.real(symbol, _FOREIGN_ID)

    # What it says of itself

    def observe(self, transactional_ids: Sequence[str]) -> Plain:
        """Producers, ends and content of every partition, once no marker is missing."""
        states = [self.settled_state(name) for name in transactional_ids]
        every = range(PARTITIONS)
        producers = self.ask(self._producers_request(every), 0)
        ends = [self._ends(isolation, timestamp) for isolation, timestamp in ((0, -1), (1, -1), (0, -2))]
        starts = ends[2]
        content = self.ask(self._fetch_request(starts), 12)
        return {
            "states": states,
            "producers": plain(producers.topics[0], self),
            "ends": ends,
            "content": plain(content.responses[0] if content.responses else [], self),
        }

    def settled_state(self, name: str) -> Plain:
        """What the coordinator says of a transactional id, once no marker is missing, or for long enough."""
        end = time.monotonic() + _SETTLED_AFTER
        while True:
            found = self.described(name)
            state = found.transaction_state, self.symbol(found.producer_id), found.producer_epoch
            if not is_moving(found) or time.monotonic() > end or self._stuck.get(name) == state:
                self._stuck[name] = state if is_moving(found) else None
                return state
            time.sleep(0.005)

    def _producers_request(self, partitions: Sequence[int]) -> DescribeProducersRequest:
        return DescribeProducersRequest(topics=[TopicRequest(name=self.topic, partition_indexes=list(partitions))])

    def _ends(self, isolation: int, timestamp: int) -> list[int]:
        asked = [ListOffsetsPartition(partition_index=index, timestamp=timestamp) for index in range(PARTITIONS)]
        topic = ListOffsetsTopic(name=self.topic, partitions=asked)
        request = ListOffsetsRequest(replica_id=-1, isolation_level=isolation, topics=[topic])
        found = self.ask(request, 6).topics[0].partitions
        return [one.offset for one in sorted(found, key=lambda one: int(one.partition_index))]

    def _fetch_request(self, starts: Sequence[int]) -> FetchRequest:
        asked = [
            FetchPartition(partition=index, fetch_offset=start, partition_max_bytes=1 << 24)
            for index, start in enumerate(starts)
        ]
        return FetchRequest(
            max_wait_ms=0, min_bytes=0, isolation_level=1, topics=[FetchTopic(topic=self.topic, partitions=asked)]
        )


def plain(value: Any, node: Leader, field: str = "") -> Plain:
    """A part of an answer without what may differ between two nodes that behave alike."""
    if isinstance(value, Message):
        names = [name for name in value.__schema__.fields if name not in _DROPPED]
        found = {name: plain(getattr(value, name), node, name) for name in names}
        return _with_what_counts(found) if "aborted_transactions" in found else found
    if isinstance(value, list):
        entries = [plain(entry, node, field) for entry in value]
        return sorted(entries, key=str) if field in _UNORDERED else entries
    if field == "records":
        return batches_of(value, node.symbol)
    if field == "producer_id":
        return node.symbol(value)
    if field in _TIMES:
        return time_of(value)
    if field == "error_code":
        return ErrorCode(value).name
    if field.endswith("_message"):
        return value is not None
    if field == "session_id":
        return value != 0
    if field == "topic_id":
        return value != ZERO_UUID
    return value


def _with_what_counts(partition: dict[str, Plain]) -> Plain:
    """A fetched partition without the aborted transactions that begin behind its records: to list them is allowed."""
    last = max((sum(batch["offsets"]) for batch in partition["records"] or []), default=-1)
    told = partition["aborted_transactions"] or []
    partition["aborted_transactions"] = [entry for entry in told if entry["first_offset"] <= last]
    return partition
