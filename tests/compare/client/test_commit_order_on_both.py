"""Reading in commit order is the same on an Apache Kafka as on Fencepost: markers, epochs, positions with metadata."""

from __future__ import annotations

import asyncio
import random
from contextlib import AsyncExitStack

import pytest
from tests.compare.client.playing import Node, play, take

from fencepost.client import Consumer, OffsetAndMetadata, Producer

pytestmark = [pytest.mark.compare, pytest.mark.usefixtures("level")]


def ordered(node: Node, **options: int) -> Consumer:
    return node.reader(delivery="commit_order", **options)


async def opened(node: Node, name: str) -> Producer:
    """A producer whose transaction is open."""
    writer = await node.writer(transactional_id=f"{node.topic}-{name}").start()
    await writer.init_transactions()
    await writer.begin_transaction()
    return writer


async def send(node: Node, writer: Producer, *values: bytes) -> None:
    for value in values:
        await (await writer.send(node.topic, value, partition=0))


async def until_the_end_is(node: Node, offset: int) -> None:
    """Apache Kafka answers a commit before it writes the marker, so markers may come in another order than commits."""
    async with node.reader(group_id=None, isolation_level="read_uncommitted") as reader:
        while (await reader.end_offsets([node.at(0)]))[node.at(0)] < offset:  # noqa: ASYNC110
            await asyncio.sleep(0.02)


def test_a_forgotten_transaction_delays_nobody_and_positions_are_gone_on_from(node: Node) -> None:
    async def scenario(node: Node) -> None:
        async with AsyncExitStack() as stack:
            writers = [await stack.enter_async_context(await opened(node, f"{n}")) for n in range(4)]
            for step in range(3):
                for n, writer in enumerate(writers):
                    await send(node, writer, b"%d-%d" % (n, step))
            await node.write(b"plain")
            await writers[2].commit_transaction()
            await until_the_end_is(node, 14)
            await writers[3].abort_transaction()
            await writers[1].commit_transaction()
            await until_the_end_is(node, 16)
            async with ordered(node, transaction_buffer_bytes=200) as reader:
                found = [record.value for record in await reader.poll(5000, max_records=3)]
                await reader.commit()
                committed = (await reader.committed([node.at(0)]))[node.at(0)]
                assert found == [b"plain", b"2-0", b"2-1"] and committed is not None
                assert committed._replace(leader_epoch=-1) == OffsetAndMetadata(0, "commit-order/1 13 6")
            async with ordered(node, transaction_buffer_bytes=0) as reader:
                assert await take(reader, 4) == [b"2-2", b"1-0", b"1-1", b"1-2"]
                (forgotten,) = reader.open_transactions()
                assert forgotten.first_offset == 0 and forgotten.on_disk > 0
                for position in (reader.next_offsets(), None):
                    # Whoever writes the output of the loop commits the position with it.
                    await writers[2].begin_transaction()
                    offsets = position or {node.at(0): OffsetAndMetadata(0)}
                    await writers[2].send_offsets_to_transaction(offsets, reader.group_metadata())
                    await (writers[2].commit_transaction() if position else writers[2].abort_transaction())
            async with ordered(node) as reader:
                await writers[0].commit_transaction()
                assert await take(reader, 3) == [b"0-0", b"0-1", b"0-2"]
                assert reader.open_transactions() == []
                assert await reader.poll(500) == []

    play(scenario, node)


def test_a_fenced_producers_transaction_is_dropped(node: Node) -> None:
    async def scenario(node: Node) -> None:
        async with await opened(node, "id") as zombie, node.writer(transactional_id=f"{node.topic}-id") as successor:
            await send(node, zombie, b"lost")
            async with ordered(node) as reader:
                assert await reader.poll(500) == []
                assert len(reader.open_transactions()) == 1
                await successor.init_transactions()
                async with successor.transaction():
                    await send(node, successor, b"kept")
                assert await take(reader, 1) == [b"kept"]
                assert reader.open_transactions() == []

    play(scenario, node)


def test_many_transactions_come_once_and_whole_over_many_lives(node: Node) -> None:
    chance = random.Random(f"many {node.topic.partition('-')[0]}")

    async def scenario(node: Node) -> None:
        committed: list[list[bytes]] = []
        found: list[bytes] = []

        async def load(name: str) -> None:
            async with node.writer(transactional_id=f"{node.topic}-{name}") as writer:
                await writer.init_transactions()
                for number in range(15):
                    values = [b"%s-%d-%d" % (name.encode(), number, n) for n in range(chance.randint(1, 6))]
                    await writer.begin_transaction()
                    await send(node, writer, *values)
                    if chance.random() < 0.3:
                        await writer.abort_transaction()
                    else:
                        await writer.commit_transaction()
                        committed.append(values)

        async with await opened(node, "forgotten") as forgotten, asyncio.TaskGroup() as tasks:
            await send(node, forgotten, b"never")
            loads = [tasks.create_task(load(f"{n}")) for n in range(3)]
            idle = False
            while not idle:
                ended = all(each.done() for each in loads)
                async with ordered(node, transaction_buffer_bytes=chance.choice((0, 300, 10**6))) as reader:
                    here: list[bytes] = []
                    for _ in range(chance.randint(1, 5)):
                        here += [record.value or b"" for record in await reader.poll(300, chance.randint(1, 20))]
                    if chance.random() < 0.8:
                        await reader.commit()
                        found += here
                    idle = ended and not here
        while found:
            whole = next(each for each in committed if each[0] == found[0])
            assert found[: len(whole)] == whole
            del found[: len(whole)]
            committed.remove(whole)
        assert committed == []

    play(scenario, node)
