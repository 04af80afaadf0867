"""Leaders and coordinators that move from node to node while clients ask them."""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import Awaitable, Callable
from types import SimpleNamespace
from typing import Any, cast

import pytest

from fencepost.client.cluster import Cluster, TopicView
from fencepost.client.errors import ConnectionLostError, UnsupportedByBrokerError
from fencepost.client.fetcher import Fetcher
from fencepost.client.group import Group
from fencepost.client.group_offsets import GroupOffsets
from fencepost.client.positions import ends_of_epochs, list_offsets
from fencepost.client.transactional_id import TransactionalId
from fencepost.protocol.errors import ErrorCode
from fencepost.protocol.messages import (
    FetchRequest,
    FetchResponse,
    InitProducerIdRequest,
    InitProducerIdResponse,
    ListOffsetsRequest,
    ListOffsetsResponse,
    OffsetFetchRequest,
    OffsetFetchResponse,
    OffsetForLeaderEpochRequest,
    OffsetForLeaderEpochResponse,
)
from fencepost.protocol.messages.fetch import FetchableTopicResponse, PartitionData
from fencepost.protocol.messages.list_offsets import EARLIEST, ListOffsetsPartitionResponse, ListOffsetsTopicResponse
from fencepost.protocol.messages.offset_fetch import OffsetFetchResponsePartition, OffsetFetchResponseTopic
from fencepost.protocol.messages.offset_for_leader_epoch import EpochEndOffset, OffsetForLeaderTopicResult
from fencepost.protocol.records import encode_batch
from fencepost.protocol.types import Isolation, TopicPartition

AT, TOPIC_ID = TopicPartition("t", 0), uuid.UUID(int=7)
LAST = 5


class Patience:
    """Not without end."""

    def __init__(self) -> None:
        self.left = 50

    def at_most(self, _: float) -> Patience:
        return self

    def put_off(self, seconds: float) -> None:
        """It does not pass by time."""

    async def pause(self, because: object) -> None:
        self.left -= 1
        assert self.left, f"asked again and again: {because}"
        await asyncio.sleep(0)

    async def within(self, work: Awaitable[Any]) -> Any:
        return await work


class Moving:
    """A cluster of six nodes.  Who does the work on one of them moves on to the next when it is first asked there."""

    request_timeout_ms = patience_ms = 1000

    def __init__(self, goodbye: Callable[[], None] = lambda: None) -> None:
        self.goodbye = goodbye
        """What a node does that does not do the work any more, beside saying so."""
        self.now = 0
        self.nodes = {number: ("host", number) for number in range(LAST + 1)}
        self.topics: dict[str, TopicView] = {}
        self._coordinators: dict[object, int] = {}

    def deadline(self, *_: object) -> Patience:
        return Patience()

    async def refresh(self, names: list[str]) -> None:
        for name in names:
            self.topics[name] = TopicView(name, TOPIC_ID, {0: self.now})

    async def topic(self, name: str, _: object) -> TopicView:
        if name not in self.topics:
            await self.refresh([name])
        return self.topics[name]

    async def leader_if_any(self, at: TopicPartition, deadline: object) -> int:
        return (await self.topic(at.topic, deadline)).leaders[at.partition]

    def forget_topic(self, name: str) -> None:
        self.topics.pop(name, None)

    async def coordinator(self, kind: int, key: str, _: object) -> int:
        return self._coordinators.setdefault((kind, key), self.now)

    def forget_coordinator(self, kind: int, key: str) -> None:
        self._coordinators.pop((kind, key), None)

    def ready_connection(self, node: int) -> None:
        """None yet to any node."""

    def ready_coordinator(self, *_: object) -> None:
        """Nor to the one who coordinates."""

    async def connection(self, node: int, *_: object) -> Any:
        def request(message: Any, version: int, timeout_ms: int | None) -> Awaitable[Any]:  # noqa: ARG001
            return self.call(node, message)

        return SimpleNamespace(version_of=lambda *_: 13, request=request)

    async def call(self, node: int, message: Any, **_: object) -> Any:
        here = node == LAST
        if not here:
            self.now = max(self.now, node + 1)
            self.goodbye()
        return _answer(message, here)


def _answer(message: Any, here: bool) -> Any:
    moved = ErrorCode.NONE if here else ErrorCode.NOT_LEADER_OR_FOLLOWER
    gone = ErrorCode.NONE if here else ErrorCode.NOT_COORDINATOR
    match message:
        case InitProducerIdRequest():
            return InitProducerIdResponse(error_code=gone, producer_id=3, producer_epoch=4)
        case OffsetFetchRequest():
            part = OffsetFetchResponsePartition(partition_index=0, committed_offset=9, metadata="", error_code=0)
            topic = OffsetFetchResponseTopic(name="t", partitions=[part])
            return OffsetFetchResponse(error_code=gone, topics=[topic] if here else [])
        case ListOffsetsRequest():
            told = ListOffsetsPartitionResponse(partition_index=0, error_code=moved, timestamp=-1, offset=9)
            return ListOffsetsResponse(topics=[ListOffsetsTopicResponse(name="t", partitions=[told])])
        case OffsetForLeaderEpochRequest():
            ended = EpochEndOffset(error_code=moved, partition=0, leader_epoch=2, end_offset=9)
            return OffsetForLeaderEpochResponse(topics=[OffsetForLeaderTopicResult(topic="t", partitions=[ended])])
        case FetchRequest():
            records = encode_batch([(0, None, b"v", ())]) if here else b""
            data = PartitionData(partition_index=0, error_code=moved, high_watermark=1, records=records)
            return FetchResponse(responses=[FetchableTopicResponse(topic="t", topic_id=TOPIC_ID, partitions=[data])])
    raise AssertionError(message)


async def claim(cluster: Cluster) -> None:
    assert (await TransactionalId(cluster, "id").init(1000)).producer_id == 3


async def look_up_positions(cluster: Cluster) -> None:
    group = Group(cluster, "g", None, session_timeout_ms=1, rebalance_timeout_ms=1, heartbeat_interval_ms=1)
    position = (await GroupOffsets(group).committed([AT]))[AT]
    assert position is not None and position.offset == 9


async def look_up_offsets(cluster: Cluster) -> None:
    found = await list_offsets(cluster, [AT], EARLIEST, Isolation.READ_COMMITTED)
    assert found == {AT: (9, -1)}


async def look_up_ends_of_epochs(cluster: Cluster) -> None:
    assert await ends_of_epochs(cluster, {AT: 3}) == {AT: 9}


async def read(cluster: Cluster) -> None:
    sizes: dict[str, Any] = {"min_bytes": 1, "max_bytes": 100, "max_partition_bytes": 100}
    fetcher = Fetcher(cluster, Isolation.READ_UNCOMMITTED, max_wait_ms=10, **sizes)
    fetcher.follow({AT: 0}, {"t": TOPIC_ID})
    for _ in range(100):
        fetcher.fetch()
        await fetcher.wait(0.1)
        if taken := fetcher.take(10):
            break
    assert [record.value for record in taken] == [b"v"]
    await fetcher.close()


def hang_up() -> None:
    raise ConnectionLostError("gone")


class Old(Moving):
    """Nodes that do not serve what they are asked."""

    async def call(self, node: int, message: Any, **_: object) -> Any:
        raise UnsupportedByBrokerError(f"node {node} does not serve {message}")


def test_no_record_is_behind_a_leader_epoch_of_a_node_that_does_not_tell() -> None:
    assert asyncio.run(ends_of_epochs(cast(Cluster, Old()), {AT: 3})) == {AT: 2**63 - 1}


@pytest.mark.parametrize("goodbye", [lambda: None, hang_up], ids=["says so", "hangs up"])
@pytest.mark.parametrize("work", [claim, look_up_positions, look_up_offsets, look_up_ends_of_epochs, read])
def test_whoever_asks_goes_after_the_one_who_does_the_work(
    work: Callable[[Cluster], Awaitable[None]], goodbye: Callable[[], None]
) -> None:
    async def scenario() -> None:
        await work(cast(Cluster, Moving(goodbye)))

    asyncio.run(scenario())


@pytest.mark.parametrize(("told", "found"), [(9, {AT: 9}), (0, {AT: 0}), (-1, {})])
def test_a_leader_epoch_may_have_ended_before_the_first_record_and_is_left_out_only_where_nobody_knows(
    told: int, found: dict[TopicPartition, int]
) -> None:
    class Telling(Moving):
        async def call(self, node: int, message: Any, **_: object) -> Any:
            answer = await super().call(max(node, LAST), message)
            answer.topics[0].partitions[0].end_offset = told
            return answer

    assert asyncio.run(ends_of_epochs(cast(Cluster, Telling()), {AT: 3})) == found


def test_offsets_of_a_partition_that_nobody_leads_are_asked_for_until_somebody_does() -> None:
    class Electing(Moving):
        refreshed = 0

        async def refresh(self, names: list[str]) -> None:
            self.refreshed += 1
            await super().refresh(names)

        async def leader_if_any(self, at: TopicPartition, deadline: object) -> Any:
            await self.topic(at.topic, deadline)
            return LAST if self.refreshed > 3 else None

    class Impatient(Patience):
        left = 10

        async def pause(self, because: object) -> None:
            assert "nobody leads" in str(because)
            self.left -= 1
            assert self.left, "nobody is asked again who leads it"

    cluster = cast(Cluster, Electing())
    found = asyncio.run(
        list_offsets(cluster, [AT], EARLIEST, Isolation.READ_COMMITTED, deadline=cast(Any, Impatient()))
    )
    assert found == {AT: (9, -1)}
