"""Where an admin asks: what it knows of that may be old."""

from __future__ import annotations

from typing import Any

from tests.client.admin.nodes import CUT, Nodes, play
from tests.client.admin.test_asking import PLACES, deleted

from fencepost.protocol.messages import DescribeConfigsRequest, DescribeConfigsResponse
from fencepost.protocol.messages.describe_configs import DescribeConfigsResult


def test_a_partition_that_was_added_since_its_topic_was_looked_up_is_found() -> None:
    """By whoever: an admin may live for as long as a console does."""

    async def scenario(nodes: Nodes) -> None:
        nodes.leaders = {PLACES[0]: 0}
        nodes.answer = lambda _, request: deleted(request, {})
        async with nodes.admin() as admin:
            await admin.delete_records({PLACES[0]: 1})
            nodes.leaders[PLACES[1]] = 1
            assert await admin.delete_records({PLACES[0]: 1, PLACES[1]: 2}) == {PLACES[0]: 1, PLACES[1]: 2}

    play(scenario)


def test_brokers_that_came_since_are_asked_when_those_that_were_there_do_not_answer() -> None:
    def answer(node: int, request: DescribeConfigsRequest) -> Any:
        results = [
            DescribeConfigsResult(error_code=0, resource_type=2, resource_name=resource.resource_name, configs=[])
            for resource in request.resources
        ]
        return DescribeConfigsResponse(results=results) if node == 2 else CUT

    async def scenario(nodes: Nodes) -> None:
        nodes.alive, nodes.answer = [0, 1], answer
        async with nodes.admin() as admin:
            assert len((await admin.describe_cluster()).brokers) == 2
            nodes.alive.append(2)
            assert await admin.describe_topic_configs(["t"]) == {"t": {}}

    play(scenario)
