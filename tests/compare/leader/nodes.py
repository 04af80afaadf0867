"""A bare connection to the leader of some partitions, and what it answers in a form that two nodes can share.

Producer ids become the order in which they were given out, times of the node's own clock become "now", texts become
whether there is one, and record batches are taken apart.
"""

from __future__ import annotations

import socket
import time
from collections.abc import Callable, Sequence
from typing import Any

from tests.compare.coordinator.differential import CLOSED, Node

from fencepost.protocol.batch import crc_matches, headers
from fencepost.protocol.codec import encode_request
from fencepost.protocol.control import read_control_record
from fencepost.protocol.errors import ErrorCode, ProtocolError
from fencepost.protocol.message import Message
from fencepost.protocol.messages import (
    CreateTopicsRequest,
    DescribeProducersRequest,
    DescribeTransactionsRequest,
    FetchRequest,
    FindCoordinatorRequest,
    InitProducerIdRequest,
    ListOffsetsRequest,
    MetadataRequest,
)
from fencepost.protocol.messages.create_topics import CreatableTopic, CreatableTopicConfig
from fencepost.protocol.messages.describe_producers import TopicRequest
from fencepost.protocol.messages.fetch import FetchPartition, FetchTopic
from fencepost.protocol.messages.list_offsets import ListOffsetsPartition, ListOffsetsTopic
from fencepost.protocol.records import decode_batch
from fencepost.protocol.types import ZERO_UUID

PARTITIONS = 2
FOREIGN = 99
"""A producer id that nobody was given."""
_FOREIGN_ID = 123_456_789_012
MUTE = "mute"
SILENT = "silent"
NOW = int(time.time() * 1000) - 3_600_000
"""The time of records: old enough to tell it from the node's own clock, too young for any retention."""
TRANSACTION_TIMEOUT_MS = 900_000
"""Longer than any walk."""
_PATIENCE = 3.0
_PATIENCE_WITH_TOPICS = 60.0
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
_NOT_READY = (
    ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
    ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.NOT_COORDINATOR,
)

Plain = Any
"""Dictionaries, lists, texts and numbers."""


class Leader(Node):
    """One of the two nodes, as the leader of the partitions of one topic per walk."""

    def __init__(self, bootstrap: str, topic_ids: dict[str, Any] | None = None) -> None:
        super().__init__(bootstrap)
        self.topic = ""
        self.topic_ids = {} if topic_ids is None else topic_ids
        self._stuck: dict[str, Plain] = {}
        """Transactional ids whose markers were waited for in vain."""

    def ask(self, request: Any, version: int, patience: float = _PATIENCE) -> Any:
        """The answer; CLOSED or MUTE if there is none within so many seconds."""
        if self._socket is None:
            self._socket = socket.create_connection(self._address, 30)
            self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._socket.settimeout(patience)
        try:
            answer = super().ask(request, version)
        except (TimeoutError, BrokenPipeError) as error:
            self.hang_up()
            return MUTE if isinstance(error, TimeoutError) else CLOSED
        return CLOSED if answer is None else answer

    def tell(self, request: Any, version: int) -> str:
        """Send what is not answered; whether the connection outlives it."""
        if self._socket is None:
            self._socket = socket.create_connection(self._address, 30)
        self._socket.sendall(encode_request(request, version, 1, "differential"))
        answer = self.ask(self._producers_request([0]), 0)
        return SILENT if isinstance(answer, Message) else str(answer)

    # Topics and producers

    def make(self, topics: Sequence[str], **configs: str) -> None:
        """Topics of two partitions, and their ids; they are there when this returns."""
        settings = {"retention_ms": "-1", **configs}
        made = [CreatableTopicConfig(name=name.replace("_", "."), value=value) for name, value in settings.items()]
        wanted = [
            CreatableTopic(name=topic, num_partitions=PARTITIONS, replication_factor=1, assignments=[], configs=made)
            for topic in topics
        ]
        for group in (wanted[n : n + 50] for n in range(0, len(wanted), 50)):
            answer = self.ask(CreateTopicsRequest(topics=group, timeout_ms=30_000), 7, _PATIENCE_WITH_TOPICS)
            assert all(topic.error_code == ErrorCode.NONE for topic in answer.topics), answer
            self.topic_ids.update({topic.name: topic.topic_id for topic in answer.topics})
        self.retry(lambda: self._leaderless(topics))

    def _leaderless(self, topics: Sequence[str]) -> bool:
        asked = [ListOffsetsPartition(partition_index=index, timestamp=-1) for index in range(PARTITIONS)]
        request = ListOffsetsRequest(
            replica_id=-1, topics=[ListOffsetsTopic(name=topic, partitions=asked) for topic in topics]
        )
        answer = self.ask(request, 6)
        return any(found.error_code for topic in answer.topics for found in topic.partitions)

    def learn(self, topic: str) -> None:
        """The id of a topic that the node made itself."""
        found = self.ask(MetadataRequest(topics=None), 12)
        self.topic_ids.update({of.name: of.topic_id for of in found.topics if of.name == topic})

    def open(self, topic: str, transactional_ids: Sequence[str], idempotent: int) -> None:
        """Begin a walk on a topic: producers 0, 1, ... for the transactional ids, then plain idempotent ones."""
        self.begin(topic)
        self.topic = topic
        for name in [*transactional_ids, *[None] * idempotent]:
            if name is not None:
                self.retry(lambda name=name: self._coordinator_of(name))
            request = InitProducerIdRequest(transactional_id=name, transaction_timeout_ms=TRANSACTION_TIMEOUT_MS)
            self.retry(lambda request=request: self._initialized(request))

    def _coordinator_of(self, name: str) -> int:
        answer = self.ask(FindCoordinatorRequest(key_type=1, coordinator_keys=[name]), 4)
        return int(answer.coordinators[0].error_code)

    def _initialized(self, request: InitProducerIdRequest) -> int:
        answer = self.ask(request, 4)
        if answer.error_code == ErrorCode.NONE:
            self.symbol(answer.producer_id)
        return int(answer.error_code)

    def symbol(self, producer_id: int) -> int:
        return FOREIGN if producer_id == _FOREIGN_ID else super().symbol(producer_id)

    def producer_id(self, symbol: int) -> int:
        """The opposite of `symbol`; -1 and lower stand for themselves."""
        return symbol if symbol < 0 else self._ids[symbol] if symbol < len(self._ids) else _FOREIGN_ID

    # What it says of itself

    def observe(self, transactional_ids: Sequence[str]) -> Plain:
        """Producers, ends and content of every partition, once no marker is missing."""
        states = [self._settled_state(name) for name in transactional_ids]
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

    def _settled_state(self, name: str) -> Plain:
        end = time.monotonic() + _SETTLED_AFTER
        while True:
            found = self.ask(DescribeTransactionsRequest(transactional_ids=[name]), 0).transaction_states[0]
            moving = found.error_code in _NOT_READY or found.transaction_state.startswith("Prepare")
            state = found.transaction_state, self.symbol(found.producer_id), found.producer_epoch
            if not moving or time.monotonic() > end or self._stuck.get(name) == state:
                self._stuck[name] = state if moving else None
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
        return _time(value)
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


def _time(timestamp: int) -> Plain:
    return (
        "now" if abs(time.time() * 1000 - timestamp) < 1_800_000 else timestamp - NOW if timestamp >= 0 else timestamp
    )


def batches_of(records: Any, symbol: Callable[[int], int]) -> Plain:
    """The whole batches of a fetched partition; Apache Kafka may cut the last one off, which readers skip."""
    if records is None:
        return None
    found = []
    for at, header in headers(records):
        batch = {
            "offsets": (header.base_offset, header.last_offset_delta),
            "leader": header.partition_leader_epoch,
            "attributes": header.attributes,
            "times": (_time(header.base_timestamp), _time(header.max_timestamp)),
            "producer": (symbol(header.producer_id), header.producer_epoch, header.base_sequence),
            "size": header.size,
            "intact": crc_matches(records, at, header),
            "records": _records_of(records, at, header),
        }
        found.append(batch)
    return found


def _records_of(records: Any, at: int, header: Any) -> Plain:
    try:
        if header.is_control:
            return read_control_record(records, at, header)
        return [
            (record.offset, _time(record.timestamp), record.key, (record.value or b"")[:8], list(record.headers))
            for record in decode_batch(records, at, header)
        ]
    except ProtocolError as error:
        return str(error)
