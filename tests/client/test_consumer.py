"""The consumer against the real broker, on virtual time."""

from __future__ import annotations

import asyncio
from itertools import pairwise
from typing import Any

import pytest
from tests.client.test_producer import producer, simulate

from fencepost.client import Admin, Consumer, Producer, TopicPartition
from fencepost.client.errors import BrokerError, MisuseError
from fencepost.simulation.world import ADDRESS, World

AT, EMPTY = TopicPartition("t", 0), TopicPartition("t", 1)


def test_offsets_for_times_are_of_the_first_record_that_is_not_older() -> None:
    async def scenario(world: World) -> None:
        async with Producer(ADDRESS, runtime=world.runtime("writer")) as writer:
            for timestamp in (1000, 3000, 2000, 5000):
                await (await writer.send("t", b"v", partition=0, timestamp=timestamp))
        async with Consumer(bootstrap_servers=ADDRESS, runtime=world.runtime("reader")) as reader:
            found = [(await reader.offsets_for_times({AT: time}))[AT] for time in (0, 1000, 1001, 2000, 3001, 5001)]
            assert found == [(0, 1000), (0, 1000), (1, 3000), (1, 3000), (3, 5000), None]
            assert await reader.offsets_for_times({AT: 3001, EMPTY: 0}) == {AT: (3, 5000), EMPTY: None}
            assert await reader.offsets_for_times({}) == {}

    simulate(scenario)


async def fill(world: World, *partitions: int, count: int = 20) -> None:
    async with Producer(ADDRESS, runtime=world.runtime("writer")) as writer:
        for number in range(count):
            for partition in partitions:
                await writer.send("t", b"%d" % number, partition=partition)


def test_iterating_and_polling_take_from_one_queue() -> None:
    async def scenario(world: World) -> None:
        await fill(world, 0)
        async with Consumer("t", bootstrap_servers=ADDRESS, runtime=world.runtime("reader")) as reader:
            found = [(await anext(reader)).offset for _ in range(5)]
            found += [record.offset for record in await reader.poll(max_records=5)]
            found += [(await anext(reader)).offset for _ in range(5)]
            assert reader.position(AT) == 15
            found += [record.offset for record in await reader.poll()]
            assert found == list(range(20))

    simulate(scenario)


def test_what_is_paused_is_not_handed_out_by_iterating_either() -> None:
    async def scenario(world: World) -> None:
        await fill(world, 0, 1)
        async with Consumer("t", bootstrap_servers=ADDRESS, runtime=world.runtime("reader")) as reader:
            first = await anext(reader)
            reader.pause([TopicPartition("t", first.partition)])
            assert reader.paused() == [TopicPartition("t", first.partition)]
            others = [await anext(reader) for _ in range(20)]
            assert {record.partition for record in others} == {1 - first.partition}
            reader.resume([TopicPartition("t", first.partition)])
            assert reader.paused() == []
            rest = [await anext(reader) for _ in range(19)]
            assert [record.offset for record in rest] == list(range(1, 20))

    simulate(scenario)


def test_seeking_while_iterating_goes_on_there() -> None:
    async def scenario(world: World) -> None:
        await fill(world, 0)
        async with Consumer("t", bootstrap_servers=ADDRESS, runtime=world.runtime("reader")) as reader:
            for _ in range(10):
                await anext(reader)
            reader.seek(AT, 3)
            assert [(await anext(reader)).offset for _ in range(3)] == [3, 4, 5]

    simulate(scenario)


def test_new_partitions_are_read_from_their_beginning_without_a_group_too() -> None:
    async def scenario(world: World) -> None:
        options: dict[str, Any] = {"metadata_max_age_ms": 1000, "auto_offset_reset": "latest", "fetch_max_wait_ms": 100}
        async with Consumer("t", bootstrap_servers=ADDRESS, runtime=world.runtime("reader"), **options) as reader:
            await reader.poll(100)
            async with Admin(ADDRESS, runtime=world.runtime("admin-2")) as admin:
                await admin.create_partitions("t", 3)
            await fill(world, 2, count=3)
            found = [record.offset for _ in range(30) for record in await reader.poll(100)]
            assert found == [0, 1, 2]

    simulate(scenario)


def test_a_partition_that_was_added_meanwhile_can_be_asked_for_and_read_at_once() -> None:
    async def scenario(world: World) -> None:
        added = TopicPartition("t", 2)
        async with Consumer(bootstrap_servers=ADDRESS, runtime=world.runtime("reader")) as reader:
            assert await reader.end_offsets([AT]) == {AT: 0}
            async with Admin(ADDRESS, runtime=world.runtime("adding")) as admin:
                await admin.create_partitions("t", 3)
            assert await reader.end_offsets([AT, added]) == {AT: 0, added: 0}
            with pytest.raises(BrokerError, match="there is no partition 3"):
                await reader.end_offsets([TopicPartition("t", 3)])
            await fill(world, 2, count=1)
            reader.assign([added])
            assert [record.partition for record in await reader.poll(1000)] == [2]

    simulate(scenario)


def test_partitions_take_turns_however_much_each_of_them_has() -> None:
    async def scenario(world: World) -> None:
        await fill(world, 0, 1, count=40)
        async with Consumer("t", bootstrap_servers=ADDRESS, runtime=world.runtime("reader")) as reader:
            await reader.poll(1000, max_records=1)
            turns = [{record.partition for record in await reader.poll(max_records=3)} for _ in range(8)]
            assert all(first | second == {0, 1} for first, second in pairwise(turns))

    simulate(scenario)


def test_the_end_of_committed_records_is_before_an_open_transaction() -> None:
    """And whoever has read to it stands there, behind markers and what was aborted."""

    async def scenario(world: World) -> None:
        async with producer(world) as writer:
            await writer.init_transactions()
            for commits in (True, False):
                await writer.begin_transaction()
                await (await writer.send("t", b"v", partition=0))
                await (writer.commit_transaction() if commits else writer.abort_transaction())
            await writer.begin_transaction()
            await (await writer.send("t", b"open", partition=0))
            ends = {}
            for level in ("read_committed", "read_uncommitted"):
                runtime = world.runtime(level)
                async with Consumer(bootstrap_servers=ADDRESS, isolation_level=level, runtime=runtime) as reader:
                    ends[level] = (await reader.end_offsets([AT]))[AT]
                    reader.assign([AT])
                    for _ in range(4):
                        await reader.poll(200)
                    assert reader.position(AT) == ends[level]
                    assert await reader.beginning_offsets([AT]) == {AT: 0}
            assert ends == {"read_committed": 4, "read_uncommitted": 5}
            await writer.abort_transaction()

    simulate(scenario)


@pytest.mark.parametrize("reset", ["earliest", "latest"])
@pytest.mark.parametrize("committed", [None, 2])
def test_it_goes_on_where_the_group_is_or_where_it_is_told(reset: str, committed: int | None) -> None:
    async def scenario(world: World) -> None:
        options: dict[str, Any] = {"group_id": "group", "auto_commit": False, "auto_offset_reset": reset}
        runtime = world.runtime("reader")
        async with Consumer("t", bootstrap_servers=ADDRESS, runtime=runtime, **options) as reader:
            await reader.poll(100)
            await fill(world, 0, count=4)
            assert [record.offset for record in await reader.poll()] == [0, 1, 2, 3]
            if committed is not None:
                await reader.commit({AT: committed})
            await fill(world, 0, count=2)
            for otherwise in ({AT: 1}, None):
                reader.seek_to_committed(otherwise)
                reader.seek_to_committed({AT: 0})  # the first one counts, until somebody polls
                begins = committed if committed is not None else 1
                if otherwise is None and committed is None:
                    begins = 6 if reset == "latest" else 0
                found = [(await anext(reader)).offset for _ in range(begins, 6)]
                assert found == list(range(begins, 6))
            assert await reader.poll(100) == []

    simulate(scenario)


def test_a_second_task_that_polls_is_refused() -> None:
    """What one was handed the other would commit."""

    async def scenario(world: World) -> None:
        async with Consumer("t", bootstrap_servers=ADDRESS, runtime=world.runtime("reader")) as reader:
            first = asyncio.create_task(reader.poll(5000))
            await asyncio.sleep(1)
            for call in (reader.poll, reader.__anext__):
                with pytest.raises(MisuseError, match="another task is in poll"):
                    await call()
            await fill(world, 0, count=1)
            assert [record.offset for record in await first] == [0]
            await fill(world, 0, count=1)
            assert (await anext(reader)).offset == 1

    simulate(scenario)


def test_the_lag_of_no_partitions_is_of_none() -> None:
    async def scenario(world: World) -> None:
        async with Consumer("t", bootstrap_servers=ADDRESS, runtime=world.runtime("reader")) as reader:
            await reader.poll(100)
            assert await reader.lag([]) == {} and set(await reader.lag()) >= {AT}
        async with Consumer(bootstrap_servers=ADDRESS, runtime=world.runtime("begins")) as reader:
            reader.assign([AT])
            assert await reader.lag() == {}, "nothing is read yet"

    simulate(scenario)


@pytest.mark.parametrize("by", ["poll", "poll_batch"])
def test_the_position_is_behind_what_nobody_is_shown(by: str) -> None:
    async def scenario(world: World) -> None:
        async with producer(world) as writer, Consumer(bootstrap_servers=ADDRESS, runtime=world.runtime("c")) as reader:
            await writer.init_transactions()
            reader.assign([AT, EMPTY])
            for before in range(2):
                await writer.begin_transaction()
                for number in range(3):
                    await (await writer.send("t", b"%d" % number, partition=0))
                await writer.abort_transaction()
                await asyncio.sleep(0.5)
                for _ in range(5):
                    assert not await getattr(reader, by)(200)
                assert reader.position(AT) == 4 * (before + 1)
                assert await reader.lag() == {AT: 0, EMPTY: 0}

    simulate(scenario)
