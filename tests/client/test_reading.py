"""Polling and iterating: what counts as done, what goes on meanwhile, and what a member does besides."""

from __future__ import annotations

import asyncio
from itertools import islice
from typing import Any

import pytest
from tests.client.slow_requests import slowly
from tests.client.test_group import PARTITIONS, SHORT_SESSIONS, member, take, write
from tests.client.test_producer import simulate
from tests.client.test_rebalances import Notes

from fencepost.broker import running_broker
from fencepost.client import Consumer, TopicPartition, blocking
from fencepost.client.errors import ClientError, ClosedError, MisuseError
from fencepost.protocol.messages import LeaveGroupRequest, OffsetCommitRequest
from fencepost.simulation.world import ADDRESS, World

AT = PARTITIONS[0]


async def stored(world: World, at: TopicPartition) -> int | None:
    async with member(world, "look") as look:
        found = (await look.committed([at]))[at]
    return None if found is None else found.offset


def test_records_of_the_poll_before_count_as_done_of_whichever_partition() -> None:
    async def scenario(world: World) -> None:
        for at in PARTITIONS:
            await write(world, [b"0", b"1"], partition=at.partition)
        async with member(world, "reader", auto_commit=True) as reader:
            first = await reader.poll(10_000, max_records=2)
            second = await reader.poll(10_000, max_records=2)
            done, worked_on = (TopicPartition("t", records[0].partition) for records in (first, second))
            assert {done, worked_on} == set(PARTITIONS)
        assert await stored(world, done) == 2
        assert await stored(world, worked_on) in (None, 0), "nobody asked for what follows"

    simulate(scenario, **SHORT_SESSIONS)


def test_what_a_thread_has_taken_counts_as_done_when_it_polls() -> None:
    with running_broker() as broker:
        with blocking.Producer(broker.bootstrap_servers) as writer:
            for _ in range(9):
                writer.send_and_wait("t", b"value", partition=0)
        how: dict[str, Any] = {"bootstrap_servers": broker.bootstrap_servers, "group_id": "g"}
        with blocking.Consumer("t", **how) as reader:
            assert len(list(islice(reader, 9))) == 9
            assert reader.poll(0) == []
        with blocking.Consumer(**how) as look:
            found = look.committed([AT])[AT]
        assert found is not None and found.offset == 9


def test_an_error_is_raised_once_and_reading_goes_on() -> None:
    async def scenario(world: World) -> None:
        await write(world, [b"0", b"1"])
        async with member(world, "reader") as reader:
            assert len(await take(reader, 2)) == 2
            reader._fetcher.error = ClientError("told once")
            with pytest.raises(ClientError, match="told once"):
                await reader.poll(10_000)
            assert await reader.poll(100) == []
            await write(world, [b"2"])
            assert [record.value for record in await reader.poll(10_000)] == [b"2"]

    simulate(scenario, **SHORT_SESSIONS)


def test_records_come_in_while_the_caller_works_on_others() -> None:
    async def scenario(world: World) -> None:
        await write(world, [b"0"])
        async with member(world, "reader") as reader:
            assert len(await take(reader, 1)) == 1
            await write(world, [b"1"])
            await asyncio.sleep(1)
            assert [record.value for record in await reader.poll(0)] == [b"1"]

    simulate(scenario, **SHORT_SESSIONS)


def test_who_iterates_takes_nothing_while_a_poll_is_under_way() -> None:
    async def scenario(world: World) -> None:
        await write(world, [b"0", b"1", b"2"])
        async with member(world, "reader") as reader:
            assert (await anext(reader)).value == b"0"
            reader.pause(PARTITIONS)
            polling = asyncio.ensure_future(reader.poll(10_000))
            await asyncio.sleep(0.1)
            reader.resume(PARTITIONS)
            with pytest.raises(MisuseError, match="one at a time"):
                await anext(reader)
            assert [record.value for record in await polling] == [b"1", b"2"]

    simulate(scenario, **SHORT_SESSIONS)


def test_who_waits_long_in_a_poll_commits_by_itself_meanwhile() -> None:
    async def scenario(world: World) -> None:
        await write(world, [b"0", b"1", b"2"])
        async with member(world, "reader", auto_commit=True, auto_commit_interval_ms=1000) as reader:
            await take(reader, 3)
            polling = asyncio.ensure_future(reader.poll(60_000))
            await asyncio.sleep(3)
            assert await stored(world, AT) == 3
            await write(world, [b"3"])
            assert len(await polling) == 1

    simulate(scenario, **SHORT_SESSIONS)


def test_who_polls_without_waiting_lets_others_go_on() -> None:
    async def scenario(world: World) -> None:
        async with member(world, "reader") as reader:
            await reader.poll(1000)
            gone_on: list[str] = []
            asyncio.get_running_loop().call_soon(gone_on.append, "another")
            assert await reader.poll(0) == []
            assert gone_on == ["another"]

    simulate(scenario, **SHORT_SESSIONS)


async def iterate(reader: Consumer, count: int) -> None:
    """Take so many, one every 100 ms."""
    for _ in range(count):
        await anext(reader)
        await asyncio.sleep(0.1)


def test_who_iterates_without_ever_waiting_commits_by_itself_all_the_same() -> None:
    async def scenario(world: World) -> None:
        await write(world, [b"value"] * 60)
        async with member(world, "reader", auto_commit=True, auto_commit_interval_ms=1000) as reader:
            await iterate(reader, 30)
            assert (await stored(world, AT) or 0) >= 15

    simulate(scenario, **SHORT_SESSIONS)


def test_who_iterates_without_ever_waiting_lets_others_into_the_group() -> None:
    async def scenario(world: World) -> None:
        for at in PARTITIONS:
            await write(world, [b"value"] * 100, partition=at.partition)
        async with member(world, "first") as first, member(world, "second") as second:
            await anext(first)
            joining = asyncio.ensure_future(second.poll(8000))
            await iterate(first, 60)
            assert len(first.assignment()) == len(second.assignment()) == 1
            await joining

    simulate(scenario, **SHORT_SESSIONS)


@pytest.mark.parametrize("how", ["iterates", "waits in one poll"])
def test_who_asks_for_records_all_the_time_is_not_taken_for_one_who_asks_for_none(how: str) -> None:
    async def scenario(world: World) -> None:
        await write(world, [b"value"] * 60)
        notes = Notes()
        async with member(world, "reader", max_poll_interval_ms=1500) as reader:
            reader.subscribe("t", listener=notes)
            if how == "iterates":
                await iterate(reader, 50)
            else:
                await anext(reader)
                await take(reader, 59)
                assert await reader.poll(5000) == []
            assert notes.told == [("assigned", [0, 1])]

    simulate(scenario, **SHORT_SESSIONS)


def test_a_poll_that_was_cancelled_keeps_nobody_from_the_next() -> None:
    async def scenario(world: World) -> None:
        async with member(world, "reader") as reader:
            await reader.poll(1000)
            with pytest.raises(TimeoutError):
                async with asyncio.timeout(0.1):
                    await reader.poll(10_000)
            await write(world, [b"0"])
            assert [record.value for record in await reader.poll(10_000)] == [b"0"]

    simulate(scenario, **SHORT_SESSIONS)


def test_a_consumer_that_cannot_commit_at_its_end_leaves_its_group_all_the_same(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The commit may take all of max_block_ms; the others would wait for the session to end."""

    async def scenario(world: World) -> None:
        slowly(monkeypatch, OffsetCommitRequest, 3600)
        left = slowly(monkeypatch, LeaveGroupRequest, 0.5)
        how: dict[str, Any] = {"bootstrap_servers": ADDRESS, "group_id": "group", "max_block_ms": 5000}
        reader = Consumer("t", runtime=world.runtime("reader"), **how)
        await reader.poll(3000)
        await reader.close()
        assert len(left) == 1

    simulate(scenario)


@pytest.mark.parametrize("ends", ["close", "unsubscribe"])
def test_a_hook_that_is_under_way_is_cancelled_by_what_ends_the_reading(ends: str) -> None:
    """It would hold up its consumer for ever, and act on partitions that are none of its own any more."""

    async def scenario(world: World) -> None:
        cancelled: list[str] = []

        async def wait(what: str) -> None:
            if what == "assigned":
                try:
                    await asyncio.sleep(3600)
                except asyncio.CancelledError:
                    cancelled.append(what)
                    raise

        listener = Notes(wait)
        reader = Consumer(bootstrap_servers=ADDRESS, group_id="g", runtime=world.runtime("reader"))
        reader.subscribe("t", listener=listener)
        await reader.poll(5000)
        assert listener.told[-1][0] == "assigned" and not cancelled
        await getattr(reader, ends)()
        assert cancelled == ["assigned"]
        await reader.close()

    simulate(scenario)


@pytest.mark.parametrize("how", ["iterated", "polled"])
def test_a_partition_that_is_paused_hands_out_nothing_of_what_is_there_and_then_all_in_order(how: str) -> None:
    async def scenario(world: World) -> None:
        values = [b"%d" % n for n in range(6)]
        await write(world, values, partition=0)
        async with Consumer(bootstrap_servers=ADDRESS, runtime=world.runtime("reader")) as reader:
            reader.assign(PARTITIONS)
            found = [(await anext(reader)).value]
            found += [(await anext(reader)).value]
            reader.pause([AT])
            if how == "polled":
                assert await reader.poll(1000) == []
            else:
                with pytest.raises(TimeoutError):
                    await asyncio.wait_for(anext(reader), 1)
            await write(world, [b"of another"], partition=1)
            assert (await anext(reader)).value == b"of another"
            reader.resume([AT])
            found += [record.value for record in await reader.poll(1000, 2)]
            while len(found) < len(values):
                found.append((await anext(reader)).value)
            assert found == values

    simulate(scenario)


def test_what_is_here_already_is_not_handed_out_after_close() -> None:
    async def scenario(world: World) -> None:
        await write(world, [b"0", b"1"], partition=0)
        reader = Consumer(bootstrap_servers=ADDRESS, runtime=world.runtime("reader"))
        reader.assign([AT])
        assert (await anext(reader)).value == b"0"
        await reader.close()
        with pytest.raises(ClosedError):
            await anext(reader)

    simulate(scenario)
