"""Brokers and their directories."""

from __future__ import annotations

from typing import Any

import pytest
from tests.client.admin.nodes import FIRST_PORT, Nodes, play

from fencepost.client import BrokerDescription, BrokerError, ClusterDescription, ReplicaInfo, TopicPartition
from fencepost.protocol.errors import ErrorCode
from fencepost.protocol.messages import DescribeLogDirsResponse
from fencepost.protocol.messages.describe_log_dirs import (
    DescribeLogDirsPartition,
    DescribeLogDirsResult,
    DescribeLogDirsTopic,
)


def test_the_cluster_is_described_while_it_has_a_controller_and_while_it_has_none() -> None:
    async def scenario(nodes: Nodes) -> None:
        brokers = [BrokerDescription(node, "127.0.0.1", FIRST_PORT + node, f"rack-{node}") for node in range(3)]
        async with nodes.admin() as admin:
            assert await admin.describe_cluster() == ClusterDescription("the cluster", 0, brokers)
            nodes.controller = -1
            assert await admin.describe_cluster() == ClusterDescription("the cluster", None, brokers)

    play(scenario)


def directories(node: int) -> DescribeLogDirsResponse:
    """A directory that works, though its disk is full, and one that does not."""
    part = DescribeLogDirsPartition(partition_index=node, partition_size=100, offset_lag=2, is_future_key=node == 1)
    topic = DescribeLogDirsTopic(name="t", partitions=[part])
    works = DescribeLogDirsResult(error_code=0, log_dir="/works", topics=[topic], total_bytes=1000, usable_bytes=0)
    broken = DescribeLogDirsResult(error_code=ErrorCode.KAFKA_STORAGE_ERROR, log_dir="/broken", topics=[])
    return DescribeLogDirsResponse(results=[works, broken])


@pytest.mark.parametrize("older", [False, True])
def test_a_directory_that_cannot_be_used_is_told_beside_the_others(older: bool) -> None:
    async def scenario(nodes: Nodes) -> None:
        nodes.answer = lambda node, _: directories(node)
        if older:
            nodes.ranges["DescribeLogDirs"] = (1, 3)
        async with nodes.admin() as admin:
            everywhere = await admin.describe_log_dirs()
            assert list(everywhere) == [0, 1, 2] and list(await admin.describe_log_dirs([2, 1])) == [2, 1]
        for node, (broken, works) in everywhere.items():
            assert (broken.path, broken.error, broken.replicas) == ("/broken", ErrorCode.KAFKA_STORAGE_ERROR, {})
            assert (works.path, works.error) == ("/works", None)
            assert works.replicas == {TopicPartition("t", node): ReplicaInfo(100, 2, node == 1)}
            assert (works.total_bytes, works.usable_bytes) == ((None, None) if older else (1000, 0))
            assert broken.total_bytes is None

    play(scenario)


def test_a_broker_that_tells_nothing_is_named() -> None:
    def answer(node: int, _: Any) -> Any:
        return (
            DescribeLogDirsResponse(error_code=ErrorCode.CLUSTER_AUTHORIZATION_FAILED, results=[])
            if node
            else directories(node)
        )

    async def scenario(nodes: Nodes) -> None:
        nodes.answer = answer
        async with nodes.admin() as admin:
            with pytest.raises(BrokerError, match="broker 1 does not tell its log directories"):
                await admin.describe_log_dirs()

    play(scenario)
