"""Reading, transforming and writing in transactions, on the real broker and virtual time."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import pytest
from tests.client.test_group import write
from tests.client.test_lost_positions import elect
from tests.client.test_producer import LEVELS, simulate

from fencepost.client import (
    Admin,
    Consumer,
    ExactlyOnce,
    Producer,
    ProducerFencedError,
    TopicPartition,
    Transaction,
    TransactionTimedOutError,
)
from fencepost.client.errors import ClosedError, MisuseError
from fencepost.client.transactional_id import OffsetAndMetadata
from fencepost.simulation.world import ADDRESS, World

AT = TopicPartition("t", 0)
COUNT = 20
QUICK: dict[str, Any] = {"heartbeat_interval_ms": 100, "session_timeout_ms": 6000, "rebalance_timeout_ms": 3000}


def reader(world: World, name: str = "reader", **options: Any) -> Consumer:
    given: dict[str, Any] = {"group_id": "group", "auto_commit": False, "fetch_max_wait_ms": 50, **QUICK, **options}
    runtime = world.runtime(f"{name}-{world.random.random()}")
    return Consumer("t", bootstrap_servers=ADDRESS, runtime=runtime, **given)


def writer(world: World, name: str = "id", **options: Any) -> Producer:
    given: dict[str, Any] = {"transaction_timeout_ms": 1000, **options}
    runtime = world.runtime(f"{name}-{world.random.random()}")
    return Producer(ADDRESS, transactional_id=name, runtime=runtime, **given)


async def fill(world: World, count: int = COUNT) -> None:
    """In two batches of each partition: a leader epoch counts when two have it."""
    async with Admin(ADDRESS, runtime=world.runtime("admin-2")) as admin:
        await admin.create_topic("out", partitions=1)
    async with Producer(ADDRESS, runtime=world.runtime("filler")) as producer:
        for number in range(count):
            await producer.send("t", b"%d" % number, partition=number % 2)
            if number == count // 2:
                await producer.flush()


async def output(world: World, topic: str = "out") -> list[int]:
    """What readers of committed records are shown, sorted."""
    found: list[int] = []
    runtime = world.runtime(f"judge-{world.random.random()}")
    async with Consumer(topic, bootstrap_servers=ADDRESS, runtime=runtime, fetch_max_wait_ms=50) as judge:
        while records := await judge.poll(1000):
            found += [int(record.value or b"") for record in records]
    return sorted(found)


async def copy(transaction: Transaction) -> None:
    async with transaction:
        for record in transaction.records:
            await transaction.send("out", record.value)


async def copy_all(loop: ExactlyOnce, count: int = COUNT) -> int:
    """Until so many are committed; how many transactions it took."""
    done = transactions = 0
    async for transaction in loop:
        await copy(transaction)
        transactions += 1
        done += len(transaction.records) * transaction.committed
        if done >= count:
            break
    return transactions


@LEVELS
def test_everything_is_copied_once_and_positions_move_with_it(level: int) -> None:
    async def scenario(world: World) -> None:
        await fill(world)
        async with reader(world) as consumer, writer(world) as producer:
            assert await copy_all(ExactlyOnce(consumer, producer, max_records=3)) >= COUNT / 3
            committed = await consumer.committed([AT, TopicPartition("t", 1)])
            told = OffsetAndMetadata(COUNT // 2, leader_epoch=0)  # by which a log that was truncated is known again
            assert list(committed.values()) == [told, told]
        assert await output(world) == list(range(COUNT))

    simulate(scenario, level)


async def abort_by_time_out(transaction: Transaction) -> None:
    async with transaction:
        for record in transaction.records:
            await (await transaction.send("out", record.value))
        await asyncio.sleep(60)


async def time_out_for_ever(loop: ExactlyOnce) -> None:
    async for transaction in loop:
        await abort_by_time_out(transaction)


async def fail_in(transaction: Transaction) -> None:
    async with transaction:
        for record in transaction.records:
            await (await transaction.send("out", record.value))
        raise ZeroDivisionError


async def forget_to_enter(transaction: Transaction) -> None:
    assert transaction.records


async def wait_for_no_time(transaction: Transaction) -> None:
    async with asyncio.timeout(0.1):
        await abort_by_time_out(transaction)


#: what is done with a transaction -> what is raised by that, or by asking for the next one; nothing where it is retried
MISFORTUNES: dict[Callable[[Transaction], Awaitable[None]], type[Exception] | None] = {
    abort_by_time_out: None,
    fail_in: ZeroDivisionError,
    wait_for_no_time: TimeoutError,
    forget_to_enter: MisuseError,
}


@LEVELS
@pytest.mark.parametrize("misfortune", MISFORTUNES, ids=lambda one: one.__name__)
def test_after_a_misfortune_the_same_loop_hands_the_records_out_again(
    misfortune: Callable[[Transaction], Awaitable[None]], level: int
) -> None:
    async def scenario(world: World) -> None:
        await fill(world)
        async with reader(world) as consumer, writer(world) as producer:
            loop = ExactlyOnce(consumer, producer, max_records=6)
            raised: list[BaseException] = []
            done = 0
            for _ in range(3):
                try:
                    transaction = await anext(loop)
                    await misfortune(transaction)
                    assert not transaction.committed
                    transaction = await anext(loop)
                except Exception as error:
                    raised.append(error)
                    transaction = await anext(loop)
                await copy(transaction)
                done += len(transaction.records)
            expected = MISFORTUNES[misfortune]
            assert [type(error) for error in raised] == ([] if expected is None else [expected] * 3)
            await copy_all(loop, COUNT - done)
        assert await output(world) == list(range(COUNT))

    simulate(scenario, level)


def test_a_block_that_is_always_too_long_is_told_in_the_end() -> None:
    async def scenario(world: World) -> None:
        await fill(world)
        async with reader(world) as consumer, writer(world) as producer:
            loop = ExactlyOnce(consumer, producer, retry_timeout_ms=5000)
            with pytest.raises(TransactionTimedOutError, match="four fifths"):
                await time_out_for_ever(loop)
        assert await output(world) == []

    simulate(scenario)


@LEVELS
def test_a_zombie_stops_and_its_successor_goes_on_where_it_was(level: int) -> None:
    async def scenario(world: World) -> None:
        await fill(world)
        async with reader(world) as consumer, writer(world) as zombie:
            loop = ExactlyOnce(consumer, zombie, max_records=5)
            await copy(await anext(loop))
            transaction = await anext(loop)
            async with writer(world) as successor:
                after = ExactlyOnce(consumer, successor, max_records=5)
                await successor.init_transactions()
                with pytest.raises(ProducerFencedError):
                    await copy(transaction)
                with pytest.raises(ProducerFencedError):
                    await anext(loop)
                await copy_all(after, COUNT - 5)
        assert await output(world) == list(range(COUNT))

    simulate(scenario, level)


@LEVELS
def test_who_works_on_through_a_rebalance_commits_nothing_that_others_have(level: int) -> None:
    """Its partitions go to the other one when the rebalance has waited long enough."""

    async def scenario(world: World) -> None:
        await fill(world)
        long = {"transaction_timeout_ms": 60_000}
        async with (
            reader(world) as slow,
            reader(world) as quick,
            writer(world, "slow", **long) as producer,
            writer(world, "quick", **long) as other,
        ):
            transaction = await anext(ExactlyOnce(slow, producer))
            async with transaction:
                for record in transaction.records:
                    await transaction.send("out", record.value)
                loop = ExactlyOnce(quick, other)
                taking_over = asyncio.ensure_future(copy_all(loop))
                await asyncio.sleep(20)
            assert not transaction.committed
            await taking_over
        assert await output(world) == list(range(COUNT))

    simulate(scenario, level)


def test_a_rebalance_waits_for_an_open_transaction() -> None:
    async def scenario(world: World) -> None:
        await fill(world)
        async with reader(world) as first, reader(world) as second, writer(world) as one, writer(world, "other") as two:
            loop = ExactlyOnce(first, one, max_records=4)
            transaction = await anext(loop)
            async with transaction:
                for record in transaction.records:
                    await transaction.send("out", record.value)
                others = ExactlyOnce(second, two)
                asking = asyncio.ensure_future(anext(others))
                await asyncio.sleep(0.5)
                assert second.assignment() == []
            assert transaction.committed
            rest = asyncio.ensure_future(copy_all(loop, 1000))
            handed = await asking
            await copy(handed)
            while len(found := await output(world)) < COUNT:
                assert not rest.done()
            rest.cancel()
            assert found == list(range(COUNT))

    simulate(scenario)


async def close_in(closing: Consumer | Producer, loop: ExactlyOnce) -> None:
    async for transaction in loop:
        async with transaction:
            for record in transaction.records:
                await (await transaction.send("out", record.value))
            await closing.close()


@pytest.mark.parametrize("which", ["consumer", "producer"])
def test_who_closes_in_the_middle_is_told_and_nothing_counts(which: str) -> None:
    async def scenario(world: World) -> None:
        await fill(world)
        async with reader(world) as consumer, writer(world) as producer:
            with pytest.raises(ClosedError):
                await close_in(consumer if which == "consumer" else producer, ExactlyOnce(consumer, producer))
        assert await output(world) == []
        async with reader(world) as consumer, writer(world) as producer:
            await copy_all(ExactlyOnce(consumer, producer))
        assert await output(world) == list(range(COUNT))

    simulate(scenario)


def test_a_cancelled_loop_leaves_nothing_open_and_its_clients_to_their_owner() -> None:
    async def scenario(world: World) -> None:
        await fill(world)
        async with reader(world) as consumer, writer(world, transaction_timeout_ms=60_000) as producer:
            loop = ExactlyOnce(consumer, producer, max_records=6)
            for _ in range(30):
                working = asyncio.ensure_future(copy_all(loop, 1000))
                await asyncio.sleep(world.random.uniform(0, 0.02))
                working.cancel()
                await asyncio.wait([working])
                async with Admin(ADDRESS, runtime=world.runtime(f"admin-{world.random.random()}")) as admin:
                    assert await admin.list_transactions(["Ongoing"]) == {}
            while len(found := await output(world)) < COUNT:
                await copy(await anext(loop))
        assert found == list(range(COUNT))

    simulate(scenario)


def test_what_came_after_the_end_where_reading_began_is_not_lost_to_a_rebalance() -> None:
    """Nothing was committed before it."""

    async def scenario(world: World) -> None:
        latest: dict[str, Any] = {"auto_offset_reset": "latest"}
        async with reader(world, **latest) as first, writer(world, "one") as one:
            loop = ExactlyOnce(first, one, max_records=3)
            asking = asyncio.ensure_future(anext(loop))
            await asyncio.sleep(1)
            await fill(world)
            transaction = await asking
            async with reader(world, "second", **latest) as second, writer(world, "two") as two:
                joining = asyncio.ensure_future(copy_all(ExactlyOnce(second, two), 1000))
                await asyncio.sleep(1)
                with pytest.raises(ZeroDivisionError):
                    await fail_in(transaction)
                rest = asyncio.ensure_future(copy_all(loop, 1000))
                await asyncio.sleep(20)
                assert len(first.assignment()) == len(second.assignment()) == 1
                for task in (joining, rest):
                    task.cancel()
                await asyncio.wait([joining, rest])
        assert await output(world) == list(range(COUNT))

    simulate(scenario)


def test_the_first_records_of_a_group_without_positions_are_not_lost_with_their_reader() -> None:
    """They were there at its first look, and their transaction was not committed."""

    async def scenario(world: World) -> None:
        latest: dict[str, Any] = {"auto_offset_reset": "latest"}
        async with reader(world, **latest) as first, writer(world) as one:
            await first.poll(500)
            await fill(world)
            with pytest.raises(ZeroDivisionError):
                await fail_in(await anext(ExactlyOnce(first, one, max_records=3)))
        async with reader(world, "second", **latest) as second, writer(world) as two, asyncio.timeout(20):
            await copy_all(ExactlyOnce(second, two))
        assert await output(world) == list(range(COUNT))

    simulate(scenario)


@pytest.mark.parametrize("strategy", ["range", "cooperative-sticky"])
def test_what_was_collected_is_not_lost_where_another_partition_is_begun_again(strategy: str) -> None:
    """Its log was truncated, and written anew, while more records were waited for."""

    async def scenario(world: World) -> None:
        await fill(world, 0)
        for number in range(6):
            await write(world, [b"%d" % number])
        await write(world, [b"8"], partition=1)
        how = {"partition_assignment_strategy": strategy}
        async with reader(world, **how) as consumer, writer(world) as producer, asyncio.timeout(60):
            copying = asyncio.ensure_future(copy_all(ExactlyOnce(consumer, producer, linger_ms=3000), 9))
            await asyncio.sleep(2)
            elect(world, 3)
            await write(world, [b"6", b"7"])
            await copying
        assert await output(world) == list(range(9))

    simulate(scenario)


def test_what_a_commit_in_doubt_did_not_touch_is_gone_on_with_where_it_was() -> None:
    """The group has no position of the other partition, and that was begun at its end."""

    async def scenario(world: World) -> None:
        async with reader(world, auto_offset_reset="latest") as consumer, writer(world) as producer:
            await consumer.poll(500)
            await fill(world)
            loop = ExactlyOnce(consumer, producer, max_records=3)
            transaction = await anext(loop)
            working = asyncio.ensure_future(copy(transaction))
            commit = producer.commit_transaction

            async def interrupted() -> None:
                working.cancel()
                await commit()

            producer.commit_transaction = interrupted  # type: ignore[method-assign]
            await asyncio.wait([working])
            producer.commit_transaction = commit  # type: ignore[method-assign]
            assert working.cancelled() and len({record.partition for record in transaction.records}) == 1
            while len(found := await output(world)) < COUNT:
                await copy(await anext(loop))
        assert found == list(range(COUNT))

    simulate(scenario)


def test_a_bad_record_can_go_elsewhere_in_the_same_transaction() -> None:
    async def scenario(world: World) -> None:
        await fill(world)
        async with reader(world) as consumer, writer(world) as producer:
            done = 0
            async for transaction in ExactlyOnce(consumer, producer):
                async with transaction:
                    for record in transaction.records:
                        try:
                            number = int(record.value or b"")
                            await transaction.send("out", b"%d" % (number * (number - 7) // (number - 7)))
                        except ZeroDivisionError:
                            await transaction.send("bad", record.value)
                done += len(transaction.records)
                if done == COUNT:
                    break
        assert await output(world) == [number for number in range(COUNT) if number != 7]
        assert await output(world, "bad") == [7]

    simulate(scenario)
