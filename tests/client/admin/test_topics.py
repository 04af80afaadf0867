"""Topics are made, or were there already, and any other refusal is told; how many partitions one has is asked anew."""

from __future__ import annotations

from typing import Any

import pytest
from tests.client.admin.nodes import Nodes, play
from tests.client.test_producer import simulate

from fencepost.client import Admin, NewTopic, PartlyRefusedError
from fencepost.client.errors import BrokerError
from fencepost.protocol.errors import ErrorCode
from fencepost.protocol.messages import CreateTopicsRequest, CreateTopicsResponse
from fencepost.protocol.messages.create_topics import CreatableTopicResult
from fencepost.protocol.types import TopicPartition
from fencepost.simulation.world import ADDRESS, World


@pytest.mark.parametrize("exist_ok", [False, True])
@pytest.mark.parametrize(
    "error", [ErrorCode.TOPIC_ALREADY_EXISTS, ErrorCode.INVALID_REPLICATION_FACTOR, ErrorCode.POLICY_VIOLATION]
)
def test_only_a_topic_that_is_there_may_be_there(error: ErrorCode, exist_ok: bool) -> None:
    def answer(_: int, request: Any) -> Any:
        return CreateTopicsResponse(
            topics=[CreatableTopicResult(name=topic.name, error_code=error) for topic in request.topics]
        )

    async def scenario(nodes: Nodes) -> None:
        nodes.answer, nodes.leaders = answer, {TopicPartition("orders", 0): 1}
        async with nodes.admin() as admin:
            if exist_ok and error is ErrorCode.TOPIC_ALREADY_EXISTS:
                await admin.create_topic("orders", exist_ok=exist_ok)
            else:
                with pytest.raises(BrokerError) as refused:
                    await admin.create_topic("orders", exist_ok=exist_ok)
                assert refused.value.code == error

    play(scenario)


def test_nothing_is_known_any_more_of_a_topic_that_was_deleted() -> None:
    """What is made under its name has another id, and perhaps other partitions."""

    async def scenario(world: World) -> None:
        async with Admin(ADDRESS, runtime=world.runtime("admin")) as admin:
            await admin.create_topic("orders", partitions=3)
            assert await admin.partitions("orders") == 3
            await admin.delete_topics(["orders"])
            assert "orders" not in admin._cluster.topics

    simulate(scenario)


def test_a_topic_that_has_grown_is_counted_anew() -> None:
    async def scenario(nodes: Nodes) -> None:
        async with nodes.admin() as admin:
            for count in (1, 3):
                nodes.leaders = {TopicPartition("orders", number): 0 for number in range(count)}
                assert await admin.partitions("orders") == count

    play(scenario)


def test_who_asks_how_many_partitions_a_topic_has_makes_none() -> None:
    """A broker may make what somebody only asks about (auto.create.topics.enable)."""

    async def scenario(world: World) -> None:
        async with Admin(ADDRESS, runtime=world.runtime("looking")) as admin:
            with pytest.raises(BrokerError, match="UNKNOWN_TOPIC_OR_PARTITION"):
                await admin.partitions("mistyped")
            assert "mistyped" not in await admin.topics()

    simulate(scenario)


def test_what_was_made_has_leaders_though_others_were_refused_and_these_are_not_waited_for() -> None:
    errors = {"refused": ErrorCode.POLICY_VIOLATION}

    def answer(_: int, request: CreateTopicsRequest) -> Any:
        asked = [topic.name for topic in request.topics]
        return CreateTopicsResponse(
            topics=[CreatableTopicResult(name=name, error_code=errors.get(name, 0)) for name in asked]
        )

    async def scenario(nodes: Nodes) -> None:
        orders = TopicPartition("orders", 0)
        nodes.answer, nodes.leaders = answer, {orders: -1}
        nodes.loop.call_later(1, nodes.leaders.__setitem__, orders, 1)
        async with nodes.admin() as admin:
            with pytest.raises(PartlyRefusedError) as told:
                await admin.create_topics([NewTopic("orders"), NewTopic("refused")])
            assert (list(told.value.done), list(told.value.refused)) == (["orders"], ["refused"])
            assert 1 <= nodes.loop.time() < 2

    play(scenario)


@pytest.mark.parametrize("numbers", [{}, {"partitions": 2, "replication_factor": 3}])
def test_where_replicas_are_named_there_are_as_many_partitions_as_these_are_of(numbers: dict[str, Any]) -> None:
    """Brokers refuse the numbers beside them."""
    topic = NewTopic("orders", **numbers, replicas={0: [1, 2], 1: [2, 0]})

    async def scenario(nodes: Nodes) -> None:
        nodes.leaders = {TopicPartition("orders", number): number for number in range(2)}
        nodes.answer = lambda *_: CreateTopicsResponse(topics=[CreatableTopicResult(name="orders", error_code=0)])
        async with nodes.admin() as admin:
            await admin.create_topics([topic])
        ((_, request),) = nodes.requests(CreateTopicsRequest)
        (asked,) = request.topics
        assert (asked.num_partitions, asked.replication_factor) == (-1, -1)
        assert [(each.partition_index, each.broker_ids) for each in asked.assignments] == [(0, [1, 2]), (1, [2, 0])]

    play(scenario)


def test_the_partitions_of_a_topic_are_told_in_their_order() -> None:
    async def scenario(nodes: Nodes) -> None:
        nodes.leaders = {TopicPartition("orders", number): 0 for number in (2, 0, 1)}
        async with nodes.admin() as admin:
            found = (await admin.describe_topics(["orders"]))["orders"]
        assert [part.partition for part in found.partitions] == [0, 1, 2]

    play(scenario)
