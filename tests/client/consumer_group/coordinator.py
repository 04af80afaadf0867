"""A cluster whose coordinator speaks the new group protocol as a test says, on virtual time.

It has what a test needs to see a member from the other side: targets that the test sets, sessions, epochs that are
checked (KIP-848, "Consumer Group Member Epoch"), committed positions with the epoch they came with, and faults.
"""

from __future__ import annotations

import asyncio
import random
import uuid
from collections.abc import Awaitable, Callable
from typing import Any

from tests.client.admin.nodes import BOOTSTRAP, Late, Nodes

from fencepost.client import Consumer, TopicPartition
from fencepost.client.consumer_group.heartbeats import Place, by_topic, places_in
from fencepost.protocol.errors import ErrorCode
from fencepost.protocol.messages import (
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatResponse,
    FetchRequest,
    FetchResponse,
    ListOffsetsRequest,
    ListOffsetsResponse,
    MetadataRequest,
    MetadataResponse,
    OffsetCommitRequest,
    OffsetCommitResponse,
    OffsetFetchRequest,
    OffsetFetchResponse,
)
from fencepost.protocol.messages.consumer_group_heartbeat import Assignment
from fencepost.protocol.messages.list_offsets import ListOffsetsPartitionResponse, ListOffsetsTopicResponse
from fencepost.protocol.messages.offset_commit import OffsetCommitResponsePartition, OffsetCommitResponseTopic
from fencepost.protocol.messages.offset_fetch import (
    OffsetFetchResponseGroup,
    OffsetFetchResponsePartitions,
    OffsetFetchResponseTopics,
)
from fencepost.runtime import Runtime
from fencepost.simulation.loop import VirtualLoop, run

INTERVAL_MS = 1000
PARTITIONS = [TopicPartition("t", n) for n in range(4)]
Refuse = Callable[[ConsumerGroupHeartbeatRequest], Any]


def topic_id(name: str) -> uuid.UUID:
    return uuid.uuid5(uuid.NAMESPACE_OID, name)


def place(at: TopicPartition) -> Place:
    return topic_id(at.topic), at.partition


class Known:
    """A member, as the coordinator knows it."""

    def __init__(self, member_id: str) -> None:
        self.member_id = member_id
        self.epoch = self.previous = 0
        self.topics: list[str] = []
        self.regex: str | None = None
        self.assigned: frozenset[Place] = frozenset()
        """What it may use, or has not given up."""
        self.pending: frozenset[Place] = frozenset()
        """Of that what it is to give up."""
        self.heard_at = 0.0


class Coordinator:
    """Answers for the group of a test; the first node of the cluster.  `target` is what each member is to have."""

    def __init__(self, nodes: Nodes) -> None:
        self.nodes = nodes
        self.members: dict[str, Known] = {}
        self.epoch = 0
        """Of the group: whoever has all of its target gets it."""
        self.target: Callable[[Known], list[TopicPartition]] = lambda _: PARTITIONS
        self.ids: Callable[[str], uuid.UUID] = topic_id
        self.refuse: Refuse = lambda _: None
        """What is answered instead of what would be: an error, SILENT, CUT; None: nothing."""
        self.heard: list[ConsumerGroupHeartbeatRequest] = []
        self.times: list[float] = []
        self.committed: dict[tuple[str, int], int] = {}
        self.commits: list[tuple[int, ErrorCode]] = []
        """The member epoch of each commit, and its answer."""
        self.refuse_commit: Callable[[OffsetCommitRequest], Any] = lambda _: None
        self.interval_ms = INTERVAL_MS
        self._runtimes = 0
        nodes.leaders = dict.fromkeys(PARTITIONS, 0)
        nodes.answer = self.answer

    def rebalance(self) -> None:
        """Something has changed for the group."""
        self.epoch += 1

    def member(self, **options: Any) -> Consumer:
        how: dict[str, Any] = {"group_id": "g", "auto_commit": False, "group_protocol": "consumer"}
        how |= {"max_block_ms": 5000, "request_timeout_ms": 1000, "fetch_max_wait_ms": 100}
        self._runtimes += 1
        runtime = Runtime(self.nodes.clock, self.nodes.network, random.Random(self._runtimes))
        return Consumer("t", bootstrap_servers=BOOTSTRAP, runtime=runtime, **(how | options))

    @property
    def only(self) -> Known:
        (known,) = self.members.values()
        return known

    def answer(self, _: int, request: Any) -> Any:
        match request:
            case ConsumerGroupHeartbeatRequest():
                return self._heartbeat(request)
            case OffsetCommitRequest():
                return self._commit(request)
            case OffsetFetchRequest():
                return self._positions(request)
            case ListOffsetsRequest():
                return _beginnings(request)
            case FetchRequest():
                return Late(0.1, FetchResponse(responses=[]))
        raise AssertionError(request)

    def _heartbeat(self, request: ConsumerGroupHeartbeatRequest) -> Any:
        self.heard.append(request)
        self.times.append(self.nodes.loop.time())
        refused = self.refuse(request)
        if isinstance(refused, ErrorCode):
            return ConsumerGroupHeartbeatResponse(error_code=refused, error_message="because")
        if refused is not None:
            return refused
        if request.member_epoch < 0:
            self.members.pop(request.member_id, None)
            self.rebalance()
            return ConsumerGroupHeartbeatResponse(
                error_code=0, member_id=request.member_id, member_epoch=request.member_epoch
            )
        error = self._check(request)
        if error:
            return ConsumerGroupHeartbeatResponse(error_code=error)
        return self._reconciled(self.members[request.member_id], request)

    def _check(self, request: ConsumerGroupHeartbeatRequest) -> ErrorCode:
        if request.member_epoch == 0:
            assert request.topic_partitions == [] and request.rebalance_timeout_ms >= 0, "who joins says everything"
            assert request.subscribed_topic_names is not None
            self.members[request.member_id] = Known(request.member_id)
            self.rebalance()
            return ErrorCode.NONE
        known = self.members.get(request.member_id)
        if known is None:
            return ErrorCode.UNKNOWN_MEMBER_ID
        owned = _owned(request)
        is_repeated = request.member_epoch == known.previous and owned is not None and owned <= known.assigned
        return ErrorCode.NONE if request.member_epoch == known.epoch or is_repeated else ErrorCode.FENCED_MEMBER_EPOCH

    def _reconciled(self, known: Known, request: ConsumerGroupHeartbeatRequest) -> ConsumerGroupHeartbeatResponse:
        known.heard_at = self.nodes.loop.time()
        is_full = request.topic_partitions is not None and request.subscribed_topic_names is not None
        if request.subscribed_topic_names is not None:
            known.topics = request.subscribed_topic_names
        known.regex = known.regex if request.subscribed_topic_regex is None else request.subscribed_topic_regex
        before = known.assigned - known.pending
        owned = _owned(request)
        if owned is not None and not owned & known.pending:
            known.assigned, known.pending = known.assigned - known.pending, frozenset()
        target = frozenset((self.ids(at.topic), at.partition) for at in self.target(known))
        known.pending = known.assigned - target
        if not known.pending:
            held = frozenset().union(*(each.assigned for each in self.members.values() if each is not known))
            known.assigned |= target - held
            if known.epoch != self.epoch:
                known.previous, known.epoch = known.epoch, self.epoch
        now = known.assigned - known.pending
        return ConsumerGroupHeartbeatResponse(
            error_code=0,
            member_id=known.member_id,
            member_epoch=known.epoch,
            heartbeat_interval_ms=self.interval_ms,
            assignment=Assignment(topic_partitions=by_topic(now)) if is_full or now != before else None,
        )

    def _commit(self, request: OffsetCommitRequest) -> Any:
        error = self.refuse_commit(request)
        if error is None:
            known = self.members.get(request.member_id)
            epoch = request.generation_id_or_member_epoch
            is_stale = known is not None and epoch != known.epoch
            error = ErrorCode.UNKNOWN_MEMBER_ID if known is None else ErrorCode.NONE
            error = ErrorCode.STALE_MEMBER_EPOCH if is_stale else error
        if not isinstance(error, ErrorCode):
            return error
        self.commits.append((request.generation_id_or_member_epoch, error))
        topics = []
        for topic in request.topics:
            name = topic.name or next(at.topic for at in PARTITIONS if self.ids(at.topic) == topic.topic_id)
            parts = [
                OffsetCommitResponsePartition(partition_index=part.partition_index, error_code=error)
                for part in topic.partitions
            ]
            topics.append(OffsetCommitResponseTopic(name=name, topic_id=topic.topic_id, partitions=parts))
            if not error:
                self.committed |= {(name, part.partition_index): part.committed_offset for part in topic.partitions}
        return OffsetCommitResponse(topics=topics)

    def _positions(self, request: OffsetFetchRequest) -> OffsetFetchResponse:
        (group,) = request.groups
        known = self.members.get(group.member_id or "")
        error = ErrorCode.NONE
        if group.member_id is not None:
            error = ErrorCode.UNKNOWN_MEMBER_ID if known is None else error
            error = ErrorCode.STALE_MEMBER_EPOCH if known and group.member_epoch != known.epoch else error
        topics = [
            OffsetFetchResponseTopics(
                name=topic.name,
                partitions=[
                    OffsetFetchResponsePartitions(
                        partition_index=number,
                        committed_offset=-1 if error else self.committed.get((topic.name, number), -1),
                        metadata="",
                    )
                    for number in topic.partition_indexes
                ],
            )
            for topic in group.topics or []
        ]
        return OffsetFetchResponse(groups=[OffsetFetchResponseGroup(group_id="g", topics=topics, error_code=error)])


def _owned(request: ConsumerGroupHeartbeatRequest) -> frozenset[Place] | None:
    """What a member says that it has; None: the same as before."""
    if request.topic_partitions is None:
        return None
    return places_in(Assignment(topic_partitions=request.topic_partitions))


def _beginnings(request: ListOffsetsRequest) -> ListOffsetsResponse:
    topics = [
        ListOffsetsTopicResponse(
            name=topic.name,
            partitions=[
                ListOffsetsPartitionResponse(
                    partition_index=part.partition_index,
                    error_code=0,
                    timestamp=-1,
                    offset=0 if part.timestamp == -2 else 100,
                )
                for part in topic.partitions
            ],
        )
        for topic in request.topics
    ]
    return ListOffsetsResponse(topics=topics)


class NodesOfTopics(Nodes):
    """Whose topics have ids of their own, as the coordinator has them."""

    def __init__(self, loop: VirtualLoop) -> None:
        super().__init__(loop, 2)
        self.coordinator = Coordinator(self)

    def respond(self, node: int, request: Any) -> Any:
        answer = super().respond(node, request)
        if isinstance(request, MetadataRequest) and isinstance(answer, MetadataResponse):
            for topic in answer.topics:
                topic.topic_id = self.coordinator.ids(topic.name or "")
        return answer


def play(scenario: Callable[[Coordinator], Awaitable[None]]) -> None:
    """Run a scenario within 1000 virtual seconds; nothing may be left that nobody asked for."""
    complaints: list[Any] = []

    async def main(loop: VirtualLoop) -> None:
        loop.set_exception_handler(lambda _, complaint: complaints.append(complaint))
        nodes = NodesOfTopics(loop)
        await nodes.start()
        async with asyncio.timeout(1000):
            await scenario(nodes.coordinator)

    run(main)
    assert complaints == []
