"""Reading in commit order from the real broker, on virtual time: transactions, groups, restarts, retention, options."""

from __future__ import annotations

import asyncio
import random
from typing import Any

import pytest
from tests.client.test_group import PARTITIONS, SHORT_SESSIONS, member, take, write
from tests.client.test_producer import simulate

from fencepost.client import (
    Consumer,
    ConsumerRecord,
    OffsetAndMetadata,
    Producer,
)
from fencepost.simulation.world import ADDRESS, World

AT = PARTITIONS[0]
PATIENT_WRITER: dict[str, Any] = {"transaction_timeout_ms": 300_000}


def reader(world: World, name: str = "reader", **options: Any) -> Consumer:
    """In a group; it commits only what it is told to."""
    return member(world, name, delivery="commit_order", **options)


def writer(world: World, name: str = "id") -> Producer:
    runtime = world.runtime(f"{name}-{world.random.random()}")
    return Producer(ADDRESS, transactional_id=name, runtime=runtime, **PATIENT_WRITER)


async def begin(world: World, name: str, *values: bytes, partition: int = 0) -> Producer:
    """A producer whose transaction is open, with these records."""
    started = await writer(world, name).start()
    await started.init_transactions()
    await started.begin_transaction()
    await send(started, *values, partition=partition)
    return started


async def send(started: Producer, *values: bytes, partition: int = 0) -> None:
    for value in values:
        await (await started.send("t", value, partition=partition))


async def commit(world: World, name: str, *values: bytes, partition: int = 0) -> None:
    """A transaction of its own with these records."""
    async with await begin(world, name, *values, partition=partition) as started:
        await started.commit_transaction()


def values(records: list[ConsumerRecord]) -> list[bytes]:
    return [record.value or b"" for record in records]


@pytest.mark.promise("2014.commit-order")
def test_a_forgotten_transaction_delays_nobody_and_is_delivered_if_it_ends_after_all() -> None:
    async def scenario(world: World) -> None:
        async with reader(world) as ordered, await begin(world, "forgotten", b"f0") as forgotten:
            await commit(world, "other", b"o0", b"o1")
            await send(forgotten, b"f1")
            await write(world, [b"plain"])
            assert values(await take(ordered, 3)) == [b"o0", b"o1", b"plain"]
            (found,) = ordered.open_transactions()
            assert (found.partition, found.first_offset) == (AT, 0) and found.in_memory > 0 == found.on_disk
            assert found.open_for_ms >= 0 and found.producer_id >= 0 and found.producer_epoch >= 0
            assert ordered.position(AT) == 0 and (await ordered.end_offsets([AT]))[AT] == 6
            async with member(world, "usual", group_id=None) as usual:
                assert await usual.poll(1000) == []
            await forgotten.commit_transaction()
            assert values(await take(ordered, 2)) == [b"f0", b"f1"]
            assert ordered.open_transactions() == [] and ordered.next_offsets()[AT] == OffsetAndMetadata(7)

    simulate(scenario, **SHORT_SESSIONS)


@pytest.mark.parametrize("iterates", [True, False])
def test_transactions_come_whole_in_the_order_of_their_commits(iterates: bool) -> None:
    async def scenario(world: World) -> None:
        opened = [await begin(world, f"id-{n}", b"%d-0" % n) for n in range(5)]
        for step in (1, 2):
            for n, each in enumerate(opened):
                await send(each, b"%d-%d" % (n, step))
        for n in (3, 0, 4, 1):
            await (opened[n].abort_transaction() if n == 4 else opened[n].commit_transaction())
        async with reader(world, auto_commit=True, auto_commit_interval_ms=10) as ordered:
            found = [await anext(ordered) for _ in range(9)] if iterates else await take(ordered, 9)
            assert values(found) == [b"%d-%d" % (n, step) for n in (3, 0, 1) for step in range(3)]
            assert [each.first_offset for each in ordered.open_transactions()] == [2]
            assert await ordered.poll(0) == []  # so all of that is done
        async with reader(world, "after") as ordered:
            assert (await ordered.committed([AT]))[AT] == OffsetAndMetadata(2, "commit-order/1 19")
            await opened[2].commit_transaction()
            assert values(await take(ordered, 4, 2)) == [b"2-0", b"2-1", b"2-2"]
        for each in opened:
            await each.close()

    simulate(scenario, **SHORT_SESSIONS)


async def load(world: World, chance: random.Random, name: str, count: int, sent: dict[int, list[list[bytes]]]) -> None:
    """Transactions in both partitions, one after the other; `sent`: those that were committed, by partition."""
    async with writer(world, name) as started:
        await started.init_transactions()
        for number in range(count):
            await started.begin_transaction()
            mine: dict[int, list[bytes]] = {0: [], 1: []}
            for n in range(chance.randint(1, 6)):
                partition = chance.randrange(2)
                mine[partition].append(b"%s-%d-%d" % (name.encode(), number, n))
                await started.send("t", mine[partition][-1], partition=partition)
                await asyncio.sleep(chance.choice((0, 0.02)))
            if chance.random() < 0.3:
                await started.abort_transaction()
            else:
                await started.commit_transaction()
                for partition, found in mine.items():
                    if found:
                        sent[partition].append(found)


def check(found: list[ConsumerRecord], sent: dict[int, list[list[bytes]]]) -> None:
    """Each transaction once, in one piece."""
    for partition, transactions in sent.items():
        rest = [record.value or b"" for record in found if record.partition == partition]
        by_first = {each[0]: each for each in transactions}
        while rest:
            whole = by_first.pop(rest[0])
            assert rest[: len(whole)] == whole
            del rest[: len(whole)]
        assert by_first == {}


@pytest.mark.promise("2014.offset-pair", "2014.inside-transaction", "2014.spill")
@pytest.mark.parametrize("seed", range(8))
def test_a_consumer_that_is_killed_at_any_step_loses_and_doubles_nothing(seed: int) -> None:
    """It works on what it is given, then commits; of what it did after its last commit it forgets everything."""
    chance = random.Random(f"killed {seed}")

    async def scenario(world: World) -> None:
        sent: dict[int, list[list[bytes]]] = {0: [], 1: []}
        done: list[ConsumerRecord] = []
        async with await begin(world, "forgotten", b"f"), asyncio.TaskGroup() as tasks:
            loads = [tasks.create_task(load(world, chance, f"id-{n}", 12, sent)) for n in range(3)]
            life = idle = 0
            while idle < 3:
                life += 1
                options = {"transaction_buffer_bytes": chance.choice((0, 300, 10**6)), "max_partition_fetch_bytes": 300}
                ordered = reader(world, f"life-{life}", **options)
                working: list[ConsumerRecord] = []
                for _ in range(chance.randint(1, 8)):
                    working += await ordered.poll(500, max_records=chance.randint(1, 7))
                    if chance.random() < 0.3:
                        await ordered.commit()
                        done += working
                        working = []
                killed = chance.choice(("before the commit", "after it", "in it"))
                if killed != "before the commit":
                    committing = asyncio.ensure_future(ordered.commit())
                    if killed == "in it":
                        await asyncio.sleep(0)
                        committing.cancel()
                        await asyncio.gather(committing, return_exceptions=True)
                        committed = await ordered.committed(PARTITIONS)
                        if committed == ordered.next_offsets():
                            done += working
                    else:
                        await committing
                        done += working
                idle = idle + 1 if all(each.done() for each in loads) and not working else 0
                await ordered.close()
        check([record for record in done if record.value != b"f"], sent)
        assert all(sent.values())

    simulate(scenario, **SHORT_SESSIONS)
