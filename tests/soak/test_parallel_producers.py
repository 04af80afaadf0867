"""Many transactional producers at once, nothing awaited before a commit: no error, and every record is there once."""

from __future__ import annotations

import asyncio
from collections import Counter

import pytest
from benchmarks.fencepost_node import fencepost_node

from fencepost.client import Admin, Consumer, Producer

PRODUCERS = 32
TRANSACTIONS = 1000


async def work(bootstrap: str, name: str) -> None:
    async with Producer(bootstrap, transactional_id=name) as producer:
        await producer.init_transactions()
        for number in range(TRANSACTIONS):
            async with producer.transaction():
                for part in range(2):
                    await producer.send("soak", f"{name}-{number}-{part}".encode())


async def run(bootstrap: str) -> Counter[bytes]:
    async with Admin(bootstrap) as admin:
        await admin.create_topic("soak", partitions=8)
    await asyncio.gather(*(work(bootstrap, f"producer-{n}") for n in range(PRODUCERS)))
    seen: Counter[bytes] = Counter()
    async with Consumer("soak", bootstrap_servers=bootstrap) as consumer:
        while records := await consumer.poll(2000, 5000):
            seen.update(record.value or b"" for record in records)
    return seen


@pytest.mark.soak
def test_nothing_is_lost_or_doubled() -> None:
    with fencepost_node() as (bootstrap, _, _):
        seen = asyncio.run(run(bootstrap))
    assert len(seen) == PRODUCERS * TRANSACTIONS * 2
    assert set(seen.values()) == {1}
