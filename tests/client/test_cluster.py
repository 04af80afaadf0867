"""Finding a broker."""

from __future__ import annotations

import asyncio
import gc
import random
import socket
from functools import partial
from types import SimpleNamespace
from typing import Any

import pytest
from tests.client.test_producer import simulate

from fencepost.broker.network.connection_quotas import ConnectionQuotas
from fencepost.client import Admin, ClosedError, ConnectionLostError, Consumer, TopicPartition
from fencepost.client.cluster import Cluster
from fencepost.client.connection import Features
from fencepost.client.errors import UnreachableError
from fencepost.client.topic_view import TopicView
from fencepost.client.transactional_id import OffsetAndMetadata
from fencepost.protocol.codec import encode_response
from fencepost.protocol.errors import ErrorCode
from fencepost.protocol.messages import ApiVersionsRequest, ApiVersionsResponse, MetadataResponse
from fencepost.protocol.messages.api_versions import ApiVersion, FinalizedFeatureKey
from fencepost.protocol.messages.find_coordinator import GROUP
from fencepost.protocol.messages.metadata import MetadataResponseBroker, MetadataResponseTopic
from fencepost.protocol.types import ZERO_UUID
from fencepost.runtime import Runtime
from fencepost.simulation.loop import VirtualClock, VirtualLoop, run
from fencepost.simulation.network import SimulatedNetwork
from fencepost.simulation.world import ADDRESS, World


@pytest.mark.parametrize("interrupted", [True, False])
def test_asyncio_has_nothing_to_complain_about_when_it_is_closed_while_it_looks_for_a_broker(interrupted: bool) -> None:
    """Connections that are being made, and who waits for them, end with an error that nobody asks for any more."""
    complaints: list[dict[str, Any]] = []

    async def scenario() -> None:
        loop = asyncio.get_running_loop()
        loop.set_exception_handler(lambda _, complaint: complaints.append(complaint))
        with socket.create_server(("127.0.0.1", 0)) as silent:
            cluster = Cluster(f"127.0.0.1:{silent.getsockname()[1]}", client_id="client")
            looking = loop.create_task(cluster.any_connection())
            await asyncio.sleep(0.05)
            if interrupted:
                looking.cancel()
            await cluster.close()
            with pytest.raises(asyncio.CancelledError if interrupted else ClosedError):
                await looking
            del looking
            await asyncio.sleep(0)
            gc.collect()

    asyncio.run(scenario())
    assert complaints == []


def test_asyncio_has_nothing_to_complain_about_when_everything_is_cancelled_while_a_broker_is_looked_for() -> None:
    """As at the end of `asyncio.run`: who was cancelled ends so, though the client was closed by that."""
    complaints: list[dict[str, Any]] = []

    async def ask(port: int) -> None:
        async with Admin(f"127.0.0.1:{port}") as admin:
            await admin.topics()

    async def scenario(port: int) -> None:
        loop = asyncio.get_running_loop()
        loop.set_exception_handler(lambda _, complaint: complaints.append(complaint))
        asking = [loop.create_task(ask(port)) for _ in range(5)]
        await asyncio.sleep(0.05)
        assert not any(task.done() for task in asking)

    with socket.create_server(("127.0.0.1", 0)) as silent:
        asyncio.run(scenario(silent.getsockname()[1]))
    assert complaints == []


async def cluster_of_two(loop: VirtualLoop) -> Cluster:
    """Of nodes 1 and 2, each with its own number as the epoch and the level of its features."""
    network = SimulatedNetwork(random.Random(3))
    for port in (1, 2):
        await network.listen(partial(Node, epoch=port, level=port), "127.0.0.1", port, ConnectionQuotas(9, 9))
    runtime = Runtime(VirtualClock(loop), network, random.Random(3))
    cluster = Cluster("127.0.0.1:1", runtime=runtime)
    cluster.nodes = {port: ("127.0.0.1", port) for port in (1, 2)}
    return cluster


@pytest.mark.parametrize("first", [1, 2])
def test_the_newest_answer_says_what_the_features_are_whichever_node_was_asked_last(first: int) -> None:
    """A node that has not heard of a change yet does not undo it."""

    async def main(loop: VirtualLoop) -> Features:
        cluster = await cluster_of_two(loop)
        await cluster.connection(first)
        await cluster.connection(3 - first)
        await cluster.close()
        return cluster.features

    assert run(main) == Features(2, {"transaction.version": 2})


def test_what_was_known_of_the_features_counts_no_more_once_they_are_asked_again() -> None:
    """The next node says its own, even if those before it had newer ones, as of another cluster."""

    async def main(loop: VirtualLoop) -> Features:
        cluster = await cluster_of_two(loop)
        await cluster.connection(2)
        cluster.ask_features_again()
        assert cluster.ready_connection(2) is None and cluster.transaction_version == 0
        await cluster.connection(1)
        await cluster.close()
        return cluster.features

    assert run(main) == Features(1, {"transaction.version": 1})


def test_a_coordinator_on_a_node_that_is_not_there_any_more_is_looked_up_again() -> None:
    """Asking it would fail, and its group would wait for the next try."""

    async def main(_: VirtualLoop) -> list[int]:
        cluster, found = Cluster("127.0.0.1:1"), list[int]()

        async def find(kind: int, key: str) -> None:
            cluster._coordinators[kind, key] = 2
            cluster.nodes[2] = ("127.0.0.1", 2)

        cluster._find_coordinator = find  # type: ignore[method-assign]
        cluster.nodes = {1: ("127.0.0.1", 1)}
        cluster._coordinators[GROUP, "g"] = 1
        for nodes in (cluster.nodes, {}):
            cluster.nodes = dict(nodes)
            found.append(await cluster.coordinator(GROUP, "g", cluster.deadline("looking")))
        await cluster.close()
        return found

    assert run(main) == [1, 2]


def test_a_coordinator_is_asked_where_it_is_now() -> None:
    """Its node was started again at another address, and nothing has asked for metadata since."""

    async def scenario(world: World) -> None:
        at = TopicPartition("t", 0)
        reader = Consumer(bootstrap_servers=ADDRESS, group_id="g", runtime=world.runtime("reader"))
        async with reader, asyncio.timeout(5):
            reader.assign([at])
            await reader.poll(100)
            await reader.commit({at: 0})
            reader._cluster.forget_coordinator(GROUP, "g")
            reader._cluster.nodes = {0: ("127.0.0.1", 1)}
            assert await reader.committed([at]) == {at: OffsetAndMetadata(0)}

    simulate(scenario)


def test_who_asks_any_broker_does_not_wait_for_a_silent_one_beside_a_connection_that_is_there() -> None:
    async def main(loop: VirtualLoop) -> float:
        network = SimulatedNetwork(random.Random(3))
        await network.listen(asyncio.Protocol, "127.0.0.1", 1, ConnectionQuotas(9, 9))
        await network.listen(partial(Node, epoch=1, level=2), "127.0.0.1", 2, ConnectionQuotas(9, 9))
        cluster = Cluster("127.0.0.1:1", runtime=Runtime(VirtualClock(loop), network, random.Random(3)))
        cluster.nodes = {port: ("127.0.0.1", port) for port in (1, 2)}
        there = await cluster.connection(2)
        begun = loop.time()
        assert await cluster.any_connection() is there
        await cluster.close()
        return loop.time() - begun

    assert run(main) == 0


def test_who_asks_any_broker_does_not_wait_for_one_that_has_fallen_silent() -> None:
    """It answered once, and leaves what it was asked since without an answer: the others are asked, too."""

    async def main(loop: VirtualLoop) -> tuple[str, float]:
        network = SimulatedNetwork(random.Random(3))
        for port in (1, 2):
            await network.listen(partial(Node, epoch=1, level=2), "127.0.0.1", port, ConnectionQuotas(9, 9))
        cluster = Cluster("127.0.0.1:1", runtime=Runtime(VirtualClock(loop), network, random.Random(3)))
        cluster.nodes = {port: ("127.0.0.1", port) for port in (1, 2)}
        silent = await cluster.connection(2)
        answer = silent.request(ApiVersionsRequest(), 3)
        begun = loop.time()
        found, took = (await cluster.any_connection()).address, loop.time() - begun
        await cluster.close()
        with pytest.raises(ConnectionLostError):
            await answer
        return found, took

    found, took = run(main)
    assert found == "127.0.0.1:1" and took < 1


class Node(asyncio.Protocol):
    """Answers the first request, which is ApiVersions, with what its features are."""

    def __init__(self, epoch: int, level: int) -> None:
        self._answer = ApiVersionsResponse(
            error_code=0,
            api_keys=[ApiVersion(api_key=3, min_version=0, max_version=4)],
            finalized_features_epoch=epoch,
            finalized_features=[
                FinalizedFeatureKey(name="transaction.version", max_version_level=level, min_version_level=level)
            ],
        )

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport

    def data_received(self, data: bytes) -> None:  # noqa: ARG002
        self._transport.write(encode_response(self._answer, 3, 1))


def test_what_was_known_of_a_topic_is_forgotten_when_it_is_not_there_any_more() -> None:
    async def scenario(world: World) -> None:
        async with Admin(ADDRESS, runtime=world.runtime("another")) as admin:
            await admin.create_topic("u")
            cluster = Cluster(ADDRESS, runtime=world.runtime("reader"))
            await cluster.refresh(None)
            await admin.delete_topic("u")
            await cluster.refresh(["t", "u"])
            assert set(cluster.topics) == {"t"}
            await cluster.close()

    simulate(scenario)


def test_there_is_what_the_newest_metadata_tells_and_nothing_else(monkeypatch: pytest.MonkeyPatch) -> None:
    def answer(brokers: list[int], topics: dict[str, ErrorCode]) -> MetadataResponse:
        return MetadataResponse(
            brokers=[MetadataResponseBroker(node_id=number, host="host", port=number) for number in brokers],
            topics=[
                MetadataResponseTopic(name=name, error_code=error, is_internal=name.startswith("_"), partitions=[])
                for name, error in topics.items()
            ],
        )

    async def main() -> None:
        cluster, answers = Cluster("host:1", client_id="client"), list[MetadataResponse]()

        async def request(*_: object) -> MetadataResponse:
            return answers.pop()

        async def any_connection() -> Any:
            return SimpleNamespace(version_of=lambda *_: 12, request=request)

        monkeypatch.setattr(cluster, "any_connection", any_connection)
        fails = {"b": ErrorCode.LEADER_NOT_AVAILABLE, "c": ErrorCode.TOPIC_AUTHORIZATION_FAILED}
        for brokers, topics, there in (
            ([1, 2], {"a": ErrorCode.NONE, "b": ErrorCode.NONE, "_own": ErrorCode.NONE}, {"a", "b"}),
            ([2, 3], {"a": ErrorCode.NONE, **fails}, {"a"}),
        ):
            answers.append(answer(brokers, topics))
            await cluster.refresh(None)
            assert cluster.nodes == {number: ("host", number) for number in brokers}
            assert cluster.names == frozenset(there)
            assert set(cluster.topics) - {"_own"} == there

    asyncio.run(main())


def test_the_controller_is_looked_up_again_where_the_one_that_was_does_not_answer(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    asked: list[int] = []

    async def main() -> int:
        cluster = Cluster("host:1", client_id="client")
        cluster.nodes, cluster.controller_id = {number: ("host", number) for number in (1, 2)}, 1

        async def refresh(_: object) -> None:
            cluster.controller_id = 2

        async def call(node: int, _: object) -> int:
            asked.append(node)
            if node == 1:
                raise ConnectionLostError("it is gone")
            return node

        monkeypatch.setattr(cluster, "refresh", refresh)
        monkeypatch.setattr(cluster, "call", call)
        found: int = await cluster.call_controller(object(), deadline=cluster.deadline("asking", 5000))
        return found

    assert asyncio.run(main()) == 2
    assert asked == [1, 2]


def test_metadata_is_looked_up_at_its_age_sooner_after_a_failure_and_no_more_once_it_is_closed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    asked: list[float] = []

    async def main(loop: VirtualLoop) -> None:
        cluster = Cluster("host:1", client_id="client")
        cluster.topics["t"] = TopicView("t", ZERO_UUID, {0: 1})

        async def refresh(_: object) -> None:
            asked.append(loop.time())
            if len(asked) == 2:
                raise UnreachableError("nobody answers")

        monkeypatch.setattr(cluster, "refresh", refresh)
        cluster.refresh_every(60_000)
        await asyncio.sleep(200)
        await cluster.close()
        await asyncio.sleep(200)
        assert asyncio.all_tasks() == {asyncio.current_task()}

    run(main)
    assert asked == [60, 120, 125, 185]


def test_a_partition_that_was_added_is_looked_up_until_it_has_a_leader(monkeypatch: pytest.MonkeyPatch) -> None:
    async def main(_: VirtualLoop) -> int:
        cluster = Cluster("host:1", client_id="client")
        cluster.nodes = {7: ("host", 1)}
        cluster.topics["t"] = TopicView("t", ZERO_UUID, {0: 7})
        answers = [{0: 7, 1: -1}, {0: 7, 1: 7}]

        async def refresh(_: object, __: bool) -> MetadataResponse:
            cluster.topics["t"] = TopicView("t", ZERO_UUID, answers.pop(0))
            return MetadataResponse(brokers=[], topics=[])

        monkeypatch.setattr(cluster, "refresh", refresh)
        return await cluster.leader(TopicPartition("t", 1), cluster.deadline("asking", 5000))

    assert run(main) == 7
