"""Scenarios of Fencepost's own clients on one node, with a topic of its own each."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any

from fencepost.client import Admin, Consumer, Producer, TopicPartition
from fencepost.client.records import ConsumerRecord

PATIENCE = 60.0

Scenario = Callable[["Node"], Awaitable[None]]


class Node:
    """One node, with a topic of its own for each scenario."""

    def __init__(self, address: str, topic: str) -> None:
        self.address, self.topic = address, topic
        self.group = f"{topic}-readers"

    def at(self, partition: int) -> TopicPartition:
        return TopicPartition(self.topic, partition)

    def admin(self) -> Admin:
        return Admin(self.address)

    def reader(self, **options: Any) -> Consumer:
        """In the group; it commits only what it is told to."""
        quick: dict[str, Any] = {"heartbeat_interval_ms": 100, "fetch_max_wait_ms": 100, "metadata_max_age_ms": 500}
        given = quick | {"group_id": self.group, "auto_commit": False}
        return Consumer(self.topic, bootstrap_servers=self.address, **(given | options))

    def writer(self, **options: Any) -> Producer:
        return Producer(self.address, **({"metadata_max_age_ms": 500} | options))

    async def write(self, *values: bytes, partition: int = 0) -> None:
        async with self.writer() as writer:
            for value in values:
                await (await writer.send(self.topic, value, partition=partition))


def play(scenario: Scenario, node: Node, partitions: int = 2) -> None:
    """With a topic that is there."""

    async def all_of_it() -> None:
        async with asyncio.timeout(PATIENCE):
            async with node.admin() as admin:
                await admin.create_topic(node.topic, partitions=partitions)
            await scenario(node)

    asyncio.run(all_of_it())


async def take(reader: Consumer, count: int) -> list[bytes]:
    """So many records, as they come; what there is too much is seen as well."""
    found: list[ConsumerRecord] = []
    while len(found) < count:
        found += await reader.poll(500)
    return [record.value or b"" for record in found]


@asynccontextmanager
async def reading(*readers: Consumer) -> AsyncIterator[list[bytes]]:
    """What all of them read while the block lasts, each by itself: whoever joins a group waits for the others."""
    found: list[bytes] = []

    async def read(reader: Consumer) -> None:
        while True:
            found.extend(record.value or b"" for record in await reader.poll(100))

    async with asyncio.TaskGroup() as group:
        tasks = [group.create_task(read(reader)) for reader in readers]
        yield found
        for task in tasks:
            task.cancel()


async def until(holds: Callable[[], bool]) -> None:
    """Look again and again; how long is for `play` to say."""
    while not holds():  # noqa: ASYNC110 - readers have no events
        await asyncio.sleep(0.02)
