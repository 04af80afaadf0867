"""Topics are made, or were there already, and any other refusal is told; how many partitions one has is asked anew."""

from __future__ import annotations

from typing import Any

import pytest
from tests.client.admin.nodes import Nodes, play

from fencepost.client.errors import BrokerError
from fencepost.protocol.errors import ErrorCode
from fencepost.protocol.messages import CreateTopicsResponse
from fencepost.protocol.messages.create_topics import CreatableTopicResult
from fencepost.protocol.types import TopicPartition


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


def test_a_topic_that_has_grown_is_counted_anew() -> None:
    async def scenario(nodes: Nodes) -> None:
        async with nodes.admin() as admin:
            for count in (1, 3):
                nodes.leaders = {TopicPartition("orders", number): 0 for number in range(count)}
                assert await admin.partitions("orders") == count

    play(scenario)
