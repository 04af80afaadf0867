"""A transaction of 2 GB that is read in commit order: memory stays within its limit, and nothing is held up or lost."""

from __future__ import annotations

import asyncio
import resource
from pathlib import Path

import pytest
from benchmarks.fencepost_node import fencepost_node

from fencepost.client import Admin, Consumer, Producer, TopicPartition

AT = TopicPartition("soak", 0)
SIZE = 100_000
RECORDS = 20_000
LIMIT = 16 * 1024 * 1024
#: What a process may take beside the buffers: what waits to be sent, what is fetched ahead, one batch, and Python.
BESIDE = 64 * 1024 * 1024


def value(number: int) -> bytes:
    return b"%09d" % number + b"." * (SIZE - 9)


async def write_some(large: Producer, numbers: range) -> None:
    for number in numbers:
        await large.send("soak", value(number), partition=0)
    await large.flush()


async def write_little(bootstrap: str, number: int) -> None:
    async with Producer(bootstrap, transactional_id="little") as little:
        await little.init_transactions()
        async with little.transaction():
            await little.send("soak", b"little %d" % number, partition=0)


def resident() -> int:
    """Bytes of this process that are in memory."""
    return int(Path("/proc/self/statm").read_text().split()[1]) * resource.getpagesize()


async def run(bootstrap: str) -> int:
    async with Admin(bootstrap) as admin:
        await admin.create_topic("soak", partitions=1, config={"retention.ms": "-1"})
    options = {"transaction_buffer_bytes": LIMIT, "max_partition_fetch_bytes": 1024 * 1024}
    most = 0
    async with (
        Producer(bootstrap, transactional_id="large", transaction_timeout_ms=900_000) as large,
        Consumer("soak", bootstrap_servers=bootstrap, delivery="commit_order", **options) as reader,  # type: ignore[arg-type]
    ):
        await large.init_transactions()
        await large.begin_transaction()
        begun = resident()
        for number in range(20):
            await write_some(large, range(number * RECORDS // 20, (number + 1) * RECORDS // 20))
            await write_little(bootstrap, number)
            found: list[bytes | None] = []
            while not found:
                found = [record.value for record in await reader.poll(1000)]
                most = max(most, resident() - begun)
            assert found == [b"little %d" % number]
            (open_,) = reader.open_transactions()
            assert open_.in_memory <= LIMIT
        assert open_.in_memory + open_.on_disk > RECORDS * SIZE
        await large.commit_transaction()
        delivered = 0
        while delivered < RECORDS:
            for record in await reader.poll(1000, 10):
                assert record.value == value(delivered)
                delivered += 1
            most = max(most, resident() - begun)
        assert reader.open_transactions() == []
    return most


@pytest.mark.soak
def test_two_gigabytes_are_delivered_in_little_memory() -> None:
    with fencepost_node() as (bootstrap, _, _):
        assert asyncio.run(run(bootstrap)) <= LIMIT + BESIDE
