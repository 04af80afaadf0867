"""What a program that counts exactly once has committed, on whichever node."""

from __future__ import annotations

import asyncio
from collections import defaultdict

from fencepost.client import Consumer, TopicPartition


async def counted(
    bootstrap: str, topic: str, partitions: int, at_least: int, patience: float
) -> dict[bytes, list[int]]:
    """The counts of each key, in their order, once there are so many records.  `patience`: in seconds."""
    found: dict[bytes, list[int]] = defaultdict(list)
    async with Consumer(bootstrap_servers=bootstrap, auto_offset_reset="earliest") as consumer:
        consumer.assign([TopicPartition(topic, number) for number in range(partitions)])
        give_up = asyncio.get_running_loop().time() + patience
        while sum(map(len, found.values())) < at_least:
            assert asyncio.get_running_loop().time() < give_up, f"{sum(map(len, found.values()))} of {at_least}"
            for record in await consumer.poll(500):
                assert record.key is not None
                assert record.value is not None
                found[record.key].append(int(record.value))
    return found
