"""What readers with fetch sessions (KIP-227) do, and what happens to their topics meanwhile, on one of two nodes."""

from __future__ import annotations

import uuid
from dataclasses import dataclass, field
from typing import Any

from tests.compare.nodes.connection import wait_until
from tests.compare.nodes.leader import Leader
from tests.compare.nodes.plain import NOW

from fencepost.protocol.batch import headers
from fencepost.protocol.errors import ErrorCode
from fencepost.protocol.messages import (
    AddPartitionsToTxnRequest,
    DeleteRecordsRequest,
    DeleteTopicsRequest,
    EndTxnRequest,
    FetchRequest,
    ProduceRequest,
)
from fencepost.protocol.messages.add_partitions_to_txn import AddPartitionsToTxnTopic
from fencepost.protocol.messages.delete_records import DeleteRecordsPartition, DeleteRecordsTopic
from fencepost.protocol.messages.delete_topics import DeleteTopicState
from fencepost.protocol.messages.fetch import FetchPartition, FetchTopic, ForgottenTopic
from fencepost.protocol.messages.produce import PartitionProduceData, TopicProduceData
from fencepost.protocol.records import encode_batch
from fencepost.protocol.types import Epoch, ProducerId

TOPICS = ("a", "b", "c")
PARTITIONS = 2
IDS = ("t", "u")
_NOBODY = uuid.UUID(int=0xFE)
_PATIENCE = 10.0

At = tuple[str, int]


@dataclass(frozen=True)
class Answer:
    """What a node answered, in a form that two nodes can share."""

    error: str = "NONE"
    session: str = "none"
    """Of a fetch: none, same, new, or other (echoed)."""
    parts: tuple[Any, ...] = ()
    """Of a fetch: its partitions in their order."""
    positions: dict[At, int] = field(default_factory=dict)
    """Of a fetch: where a reader goes on."""
    end: int | None = None


class Node:
    """One of the two: its topics of this walk, its transactional ids, and the sessions of its readers."""

    def __init__(self, leader: Leader) -> None:
        self.leader = leader
        self._walk = ""
        self.sessions: dict[int, int] = {}
        self._generations: dict[uuid.UUID, tuple[str, int]] = {}
        self._made: dict[str, int] = {}
        self._sequences: dict[tuple[str, At], int] = {}

    def begin(self, walk: str) -> None:
        """Fresh topics and ids; they are there when this returns."""
        self._walk = walk
        self.sessions, self._generations, self._made, self._sequences = {}, {}, {}, {}
        for topic in TOPICS:
            self.make(topic)
        self.leader.open(walk, [f"{walk}-{of}" for of in IDS], 0)

    def name(self, topic: str) -> str:
        return f"{self._walk}-{topic}"

    def make(self, topic: str) -> None:
        self.leader.make([self.name(topic)])
        made = self._made[topic] = self._made.get(topic, 0) + 1
        self._generations[self.id_of(topic)] = topic, made

    def id_of(self, topic: str) -> uuid.UUID:
        found: uuid.UUID = self.leader.topic_ids.get(self.name(topic), _NOBODY)
        return found

    def called(self, of: Any) -> str:
        """A topic of an answer; one that was made again is told from the one before."""
        if of.topic:
            return str(of.topic).rpartition("-")[2]
        topic, generation = self._generations.get(of.topic_id, ("unknown", 1))
        return topic if generation == self._made[topic if topic in self._made else TOPICS[0]] else f"{topic}'"

    def following(self, of: str, at: At) -> int:
        """The next sequence of a producer in a partition."""
        sequence = self._sequences.get((of, at), 0)
        self._sequences[of, at] = sequence + 1
        return sequence

    def forget_sequences(self, topic: str) -> None:
        self._sequences = {key: value for key, value in self._sequences.items() if key[1][0] != topic}


@dataclass(frozen=True)
class Step:
    def take(self, node: Node) -> Answer:
        raise NotImplementedError


@dataclass(frozen=True)
class Write(Step):
    """One batch, plain or of a transaction."""

    at: At
    count: int
    size: int
    of: str = ""

    def take(self, node: Node) -> Answer:
        leader, (topic, index) = node.leader, self.at
        name = f"{leader.topic}-{self.of}" if self.of else None
        pair, sequence = (-1, -1), -1
        if self.of:
            pair, sequence = (leader.producer_id(IDS.index(self.of)), 0), node.following(self.of, self.at)
            wanted = [AddPartitionsToTxnTopic(name=node.name(topic), partitions=[index])]
            leader.ask(
                AddPartitionsToTxnRequest(
                    transactional_id=f"{leader.topic}-{self.of}",
                    producer_id=pair[0],
                    producer_epoch=pair[1],
                    topics=wanted,
                ),
                3,
            )
        batch = encode_batch(
            [(NOW, b"k", b"v" * self.size, ())] * self.count,
            producer_id=ProducerId(pair[0]),
            producer_epoch=Epoch(pair[1]),
            base_sequence=sequence,
            transactional=bool(self.of),
        )
        data = [PartitionProduceData(index=index, records=batch)]
        request = ProduceRequest(
            transactional_id=name,
            acks=-1,
            timeout_ms=5000,
            topic_data=[TopicProduceData(name=node.name(topic), partition_data=data)],
        )
        found = leader.ask(request, 11).responses[0].partition_responses[0]
        return Answer(ErrorCode(found.error_code).name, end=found.base_offset + self.count)


@dataclass(frozen=True)
class End(Step):
    """The end of a transaction, and its markers."""

    of: str
    commit: bool

    def take(self, node: Node) -> Answer:
        leader = node.leader
        name = f"{leader.topic}-{self.of}"
        request = EndTxnRequest(
            transactional_id=name,
            producer_id=leader.producer_id(IDS.index(self.of)),
            producer_epoch=0,
            committed=self.commit,
        )
        answer = leader.ask(request, 4)
        leader.settled_state(name)
        return Answer(ErrorCode(answer.error_code).name)


@dataclass(frozen=True)
class Delete(Step):
    """DeleteRecords up to an offset."""

    at: At
    before: int

    def take(self, node: Node) -> Answer:
        asked = DeleteRecordsPartition(partition_index=self.at[1], offset=self.before)
        topic = DeleteRecordsTopic(name=node.name(self.at[0]), partitions=[asked])
        found = node.leader.ask(DeleteRecordsRequest(topics=[topic], timeout_ms=5000), 2).topics[0].partitions[0]
        return Answer(ErrorCode(found.error_code).name, end=found.low_watermark)


@dataclass(frozen=True)
class Remove(Step):
    """The end of a topic; it is gone when this returns."""

    topic: str

    def take(self, node: Node) -> Answer:
        name = node.name(self.topic)
        request = DeleteTopicsRequest(topics=[DeleteTopicState(name=name)], timeout_ms=5000)
        answer = node.leader.ask(request, 6)
        wait_until(lambda: node.leader.is_leaderless([name]), _PATIENCE, f"the end of {name}")
        node.forget_sequences(self.topic)
        return Answer(ErrorCode(answer.responses[0].error_code).name)


@dataclass(frozen=True)
class Remake(Step):
    """A topic of the same name as one that was removed."""

    topic: str

    def take(self, node: Node) -> Answer:
        node.make(self.topic)
        return Answer()


@dataclass(frozen=True)
class Read(Step):
    """A fetch of one of the readers, who knows its session; `shift` makes it another one's."""

    reader: int
    version: int
    epoch: int
    asked: tuple[tuple[At, int], ...] = ()
    forgotten: tuple[At, ...] = ()
    isolation: int = 0
    max_bytes: int = 1 << 20
    partition_max: int = 1 << 20
    min_bytes: int = 0
    wait_ms: int = 0
    shift: int = 0

    def take(self, node: Node) -> Answer:
        session = node.sessions.get(self.reader, 0)
        # Beyond the smallest number there is none.
        named = max(session + self.shift, -(2**31)) if self.shift != -(2**31) else self.shift
        answer = node.leader.ask(self._request(node, named), self.version)
        if isinstance(answer, str):
            return Answer(answer)
        told = answer.session_id
        kind = "none" if told == 0 else "same" if told == session else "other" if told == named else "new"
        if kind == "new" or (kind == "none" and answer.error_code == ErrorCode.NONE and not self.shift):
            node.sessions[self.reader] = told
        parts, positions = [], {}
        for topic in answer.responses:
            for found in topic.partitions:
                at = node.called(topic), found.partition_index
                parts.append((at, *_shown(found, node)))
                last = [header.last_offset for _, header in headers(found.records or b"")]
                if last:
                    positions[at] = last[-1] + 1
        return Answer(ErrorCode(answer.error_code).name, kind, tuple(parts), positions)

    def _request(self, node: Node, session: int) -> FetchRequest:
        topics: list[FetchTopic] = []
        for (topic, index), offset in self.asked:
            wanted = FetchPartition(partition=index, fetch_offset=offset, partition_max_bytes=self.partition_max)
            of = FetchTopic(topic=node.name(topic), topic_id=node.id_of(topic), partitions=[wanted])
            topics.append(of)
        return FetchRequest(
            max_wait_ms=self.wait_ms,
            min_bytes=self.min_bytes,
            max_bytes=self.max_bytes,
            isolation_level=self.isolation,
            session_id=session,
            session_epoch=self.epoch,
            topics=topics,
            forgotten_topics_data=[
                ForgottenTopic(topic=node.name(topic), topic_id=node.id_of(topic), partitions=[index])
                for topic, index in self.forgotten
            ],
        )


def _shown(found: Any, node: Node) -> tuple[Any, ...]:
    """A partition of an answer without what readers throw away."""
    batches = [(header.base_offset, header.last_offset) for _, header in headers(found.records or b"")]
    last = batches[-1][1] if batches else -1
    aborted = found.aborted_transactions
    if aborted is not None:
        told = [(node.leader.symbol(entry.producer_id), entry.first_offset) for entry in aborted]
        aborted = sorted(entry for entry in told if entry[1] <= last)
    ends = found.high_watermark, found.last_stable_offset, found.log_start_offset
    return ErrorCode(found.error_code).name, ends, batches, aborted
