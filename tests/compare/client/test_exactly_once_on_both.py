"""Loops that read, transform and write exactly once do so on an Apache Kafka as on Fencepost."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.compare.client.playing import Node, play, take
from tests.compare.nodes.two_nodes import TwoNodes, two_nodes
from tests.crash.ledger_workers import SESSION_MS, storm

from fencepost.client import ExactlyOnce, ProducerFencedError, Transaction

pytestmark = pytest.mark.compare

COUNT = 12


@pytest.fixture(scope="module")
def both() -> Iterator[TwoNodes]:
    quick = {"group.initial.rebalance.delay.ms": "0", "group.min.session.timeout.ms": str(SESSION_MS)}
    with two_nodes(quick) as nodes:
        yield nodes


async def copy(transaction: Transaction, topic: str, error: BaseException | None = None) -> None:
    async with transaction:
        for record in transaction.records:
            await (await transaction.send(topic, record.value, partition=1))
        if error is not None:
            raise error


@pytest.mark.usefixtures("level")
def test_what_was_aborted_is_handed_out_again_and_counts_once(node: Node) -> None:
    """By the block's error, by its time, and by a rebalance that it did not hear of."""

    async def scenario(node: Node) -> None:
        out = f"{node.topic}-out"
        async with node.admin() as admin:
            await admin.create_topic(out, partitions=2)
        await node.write(*(b"%02d" % number for number in range(COUNT)))
        writer = node.writer(transactional_id=f"{node.topic}-id", transaction_timeout_ms=3000)
        async with node.reader(session_timeout_ms=SESSION_MS, rebalance_timeout_ms=2000) as reader, writer:
            loop = ExactlyOnce(reader, writer, max_records=4)
            with pytest.raises(ZeroDivisionError):
                await copy(await anext(loop), out, ZeroDivisionError())
            await copy(await anext(loop), out)
            late = await anext(loop)
            async with late:
                await asyncio.sleep(10)
            assert not late.committed
            outdated = await anext(loop)
            async with node.reader(session_timeout_ms=SESSION_MS, rebalance_timeout_ms=2000) as other:
                async with outdated:
                    await outdated.send(out, b"never", partition=1)
                    joining = asyncio.ensure_future(other.poll(2500))
                    await asyncio.sleep(2.3)  # the rebalance waits no longer
                assert not outdated.committed
                joining.cancel()
            done = 4
            while done < COUNT:
                transaction = await anext(loop)
                await copy(transaction, out)
                done += len(transaction.records) * transaction.committed
            (found,) = (await reader.committed([node.at(0)])).values()
            assert found is not None and found.offset == COUNT
        output = node.reader(group_id=None)
        output.subscribe(out)
        async with output:
            assert await take(output, COUNT) == [b"%02d" % number for number in range(COUNT)]
            assert await output.poll(1000) == []

    play(scenario, node)


@pytest.mark.usefixtures("level")
def test_a_zombie_is_told_and_its_successor_goes_on(node: Node) -> None:
    async def scenario(node: Node) -> None:
        await node.write(b"0", b"1")
        name = f"{node.topic}-id"
        async with node.reader() as reader, node.writer(transactional_id=name) as zombie:
            transaction = await anext(ExactlyOnce(reader, zombie, max_records=1))
            async with node.writer(transactional_id=name) as successor:
                await successor.init_transactions()
                with pytest.raises(ProducerFencedError):
                    await copy(transaction, node.topic)
                await copy(await anext(ExactlyOnce(reader, successor, max_records=2)), node.topic)
        async with node.reader(group_id=None) as reader:
            assert sorted(await take(reader, 4)) == [b"0", b"0", b"1", b"1"]

    play(scenario, node)


@pytest.mark.usefixtures("level")
def test_three_workers_that_are_killed_lose_and_double_nothing(node: Node, tmp_path: Path) -> None:
    log = tmp_path / "workers.log"
    assert asyncio.run(storm(node.address, f"{node.topic}-", log, kills=10, count=1500, seed=3)) == []
