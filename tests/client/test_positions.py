"""Positions of a group: stored as they are given, and never beyond what the caller is done with."""

from __future__ import annotations

import asyncio
import random
from dataclasses import replace
from typing import Any, cast

import pytest
from tests.client.test_group import PARTITIONS, PATIENT, SHORT_SESSIONS, member, take, write
from tests.client.test_producer import producer, simulate

from fencepost.broker.network.registry import SERVED, Reply
from fencepost.client import Admin, Consumer, Producer, TopicPartition
from fencepost.client.cluster import Cluster
from fencepost.client.errors import BrokerError, MisuseError, NoOffsetError
from fencepost.client.positions import Positions
from fencepost.client.transactional_id import OffsetAndMetadata
from fencepost.protocol.errors import ErrorCode
from fencepost.protocol.messages.fetch import EpochEndOffset
from fencepost.protocol.types import Isolation
from fencepost.simulation.world import ADDRESS, World

FIRST, SECOND = PARTITIONS
LIST_OFFSETS = 2


def test_a_position_is_found_as_it_was_stored() -> None:
    async def scenario(world: World) -> None:
        stored = {FIRST: OffsetAndMetadata(0, "why", 0), SECOND: OffsetAndMetadata(5, "dès lors", -1)}
        async with member(world, "alone", "t") as reader:
            await reader.commit(stored)
            assert await reader.committed(PARTITIONS) == stored
            in_transaction = {SECOND: OffsetAndMetadata(7, "in a transaction", 0)}
            async with producer(world) as writer:
                await writer.init_transactions()
                async with writer.transaction():
                    await writer.send_offsets_to_transaction(in_transaction, "g")
            assert await reader.committed(PARTITIONS) == stored | in_transaction
            world.kill()
            await world.start()
            assert await reader.committed(PARTITIONS) == stored | in_transaction

    simulate(scenario)


@pytest.mark.parametrize("refused", PARTITIONS)
def test_a_commit_of_which_one_position_is_refused_is_an_error(refused: TopicPartition) -> None:
    async def scenario(world: World) -> None:
        async with member(world, "alone") as reader:
            offsets = {at: OffsetAndMetadata(1, "x" * 11 if at == refused else "") for at in PARTITIONS}
            with pytest.raises(BrokerError) as raised:
                await reader.commit(offsets)
            assert raised.value.code == ErrorCode.OFFSET_METADATA_TOO_LARGE

    simulate(scenario, **{"offset.metadata.max.bytes": 10})


@pytest.mark.parametrize("reset", ["earliest", "latest", "error"])
def test_only_a_partition_without_a_position_is_begun_as_is_said(reset: str) -> None:
    """A position of 0 is one."""

    async def scenario(world: World) -> None:
        for partition in range(2):
            await write(world, [b"%d" % partition] * 3, partition=partition)
        async with member(world, "first") as first:
            await first.commit({FIRST: 0})
        async with member(world, "second", auto_offset_reset=reset) as second:
            if reset == "error":
                with pytest.raises(NoOffsetError):
                    await second.poll(100)
                return
            found = await take(second, 6, 2)
            expected = [(0, 0), (0, 1), (0, 2)] + ([(1, 0), (1, 1), (1, 2)] if reset == "earliest" else [])
            assert sorted((record.partition, record.offset) for record in found) == expected

    simulate(scenario, **SHORT_SESSIONS)


@pytest.mark.parametrize("polled", [True, False])
@pytest.mark.parametrize("reset", ["earliest", "latest", "error"])
def test_partitions_that_are_assigned_may_be_begun_anywhere(reset: str, polled: bool) -> None:
    """Before the first poll too, and after one that found no position."""

    async def scenario(world: World) -> None:
        for partition in range(2):
            await write(world, [b"%d" % partition] * 3, partition=partition)
        async with Consumer(
            bootstrap_servers=ADDRESS, runtime=world.runtime("reader"), auto_offset_reset=reset
        ) as reader:
            reader.assign([FIRST, SECOND])
            if polled and reset == "error":
                with pytest.raises(NoOffsetError, match="seek"):
                    await reader.poll(1000)
            elif polled:
                assert await reader.poll(0) == []
            reader.seek(FIRST, 1)
            reader.seek(SECOND, 2)
            found = await take(reader, 3)
            assert sorted((record.partition, record.offset) for record in found) == [(0, 1), (0, 2), (1, 2)]
            reader.seek(FIRST, 2)
            assert [record.offset for record in await take(reader, 1)] == [2]
            reader.assign([FIRST])
            if reset == "earliest":
                assert [record.offset for record in await take(reader, 3)] == [0, 1, 2]

    simulate(scenario)


@pytest.mark.parametrize("seed", range(6))
def test_what_is_committed_at_the_end_is_what_the_caller_was_done_with(seed: int) -> None:
    """Done with is what was handed out before the last call that asked for more."""
    chance = random.Random(f"positions {seed}")

    async def scenario(world: World) -> None:
        for partition in range(2):
            await write(world, [b"v"] * 40, partition=partition)
        reader = member(world, "member", auto_commit=True, auto_commit_interval_ms=chance.choice((10, 10**6)))
        done: dict[TopicPartition, int] = dict.fromkeys(PARTITIONS, 0)
        working: dict[TopicPartition, int] = {}
        steps = chance.randint(1, 12)
        for step in range(steps):
            dice = chance.random()
            if dice < (0.7 if step == steps - 1 else 0.2) and reader.assignment():
                at = chance.choice(sorted(working) or PARTITIONS)
                done[at] = chance.randrange(done[at] + 1)
                reader.seek(at, done[at])
                working.pop(at, None)
                continue
            if dice < 0.6:
                found = await reader.poll(1000, max_records=chance.randint(1, 7))
            else:
                found = [await anext(reader)]
            working = {}
            for record in found:
                at = TopicPartition(record.topic, record.partition)
                working.setdefault(at, record.offset)
                assert record.offset == done[at]
                done[at] = record.offset + 1
            await asyncio.sleep(chance.choice((0, 0.05)))
        await reader.close()
        async with member(world, "later") as later:
            committed = await later.committed(PARTITIONS)
        found_positions = {at: 0 if known is None else known.offset for at, known in committed.items()}
        assert found_positions == done | working

    simulate(scenario, **SHORT_SESSIONS)


def test_nothing_is_committed_of_records_that_are_being_worked_on() -> None:
    async def scenario(world: World) -> None:
        await write(world, [b"v"] * 5)
        reader = member(world, "member", auto_commit=True, auto_commit_interval_ms=10**6)
        assert len(await reader.poll(5000, max_records=2)) == 2
        assert len(await reader.poll(5000, max_records=2)) == 2
        await reader.close()
        async with member(world, "later") as later:
            (committed,) = (await later.committed(PARTITIONS[:1])).values()
        assert committed is not None and committed.offset == 2

    simulate(scenario, **SHORT_SESSIONS)


@pytest.mark.parametrize("seed", range(3))
def test_where_members_come_and_go_in_order_nothing_is_processed_twice(seed: int) -> None:
    """Each commits by itself what it was done with before its partitions go to others."""
    chance = random.Random(f"in order {seed}")

    async def scenario(world: World) -> None:
        processed: list[tuple[int, int]] = []
        how: dict[str, Any] = {"auto_commit": True, "auto_commit_interval_ms": 10**6, **PATIENT}
        members: list[tuple[asyncio.Event, asyncio.Task[None]]] = []
        written = 0

        async def poll(reader: Consumer) -> bool:
            found = await reader.poll(200, max_records=chance.randint(1, 5))
            processed.extend((record.partition, record.offset) for record in found)
            return bool(found)

        async def work(reader: Consumer, leave: asyncio.Event) -> None:
            while not leave.is_set():
                await poll(reader)
                await asyncio.sleep(chance.choice((0, 0.02, 0.2)))
            while await poll(reader):
                pass  # what it was handed last is done when it asks for more
            await reader.close()

        def come(name: str) -> None:
            leave = asyncio.Event()
            members.append((leave, asyncio.ensure_future(work(member(world, name, **how), leave))))

        async def go() -> None:
            leave, task = members.pop(0)
            leave.set()
            await task

        for number in range(20):
            dice = chance.random()
            if dice < 0.3 and len(members) < 3:
                come(f"member-{number}")
            elif dice < 0.5 and len(members) > 1:
                await go()
            else:
                for partition in range(2):
                    await write(world, [b"v"] * 4, partition=partition)
                written += 4
            await asyncio.sleep(chance.choice((0, 0.1, 1)))
        come("last")
        await asyncio.sleep(3)
        while members:
            await go()
        assert sorted(processed) == [(partition, n) for partition in range(2) for n in range(written)]

    simulate(scenario, **SHORT_SESSIONS)


@pytest.mark.parametrize("seed", range(4))
def test_a_position_that_is_not_in_the_log_is_begun_anew_and_no_other(seed: int) -> None:
    """Unless the caller has gone elsewhere before that is found out."""
    chance = random.Random(f"out of range {seed}")

    async def scenario(world: World) -> None:
        for partition in range(2):
            await write(world, [b"v"] * 30, partition=partition)
        reset = chance.choice(("earliest", "latest"))
        reader = member(world, "reader", group_id=None, auto_offset_reset=reset)
        await reader.unsubscribe()
        reader.assign(PARTITIONS)
        following = dict.fromkeys(PARTITIONS, 0 if reset == "earliest" else 30)
        for _ in range(12):
            at = chance.choice(PARTITIONS)
            if chance.random() < 0.6 and reader.assignment():
                following[at] = 0 if reset == "earliest" else 30
                reader.seek(at, chance.randint(31, 99))
                if chance.random() < 0.5:
                    for record in await reader.poll(0, max_records=2):
                        following[TopicPartition(record.topic, record.partition)] = record.offset + 1
                    await asyncio.sleep(chance.choice((0, 0.5)))
                    following[at] = chance.randrange(30)
                    reader.seek(at, following[at])
            for record in await reader.poll(1000, max_records=chance.randint(1, 9)):
                place = TopicPartition(record.topic, record.partition)
                assert record.offset == following[place]
                following[place] += 1
        await reader.close()

    simulate(scenario)


@pytest.mark.parametrize("anew", [True, False])
def test_a_seek_counts_that_is_made_while_a_lost_position_is_looked_up(anew: bool) -> None:
    async def scenario(world: World) -> None:
        at = TopicPartition("t", 0)
        async with (
            Consumer(bootstrap_servers=ADDRESS, runtime=world.runtime("reader"), fetch_max_wait_ms=100) as reader,
            Producer(ADDRESS, runtime=world.runtime("writer")) as writer,
            Admin(ADDRESS, runtime=world.runtime("maker")) as admin,
        ):
            reader.assign([at])
            assert await reader.poll(200) == []
            if anew:
                await admin.delete_topic("t")
                await admin.create_topic("t")
                await reader._cluster.refresh(["t"])
            for number in range(10):
                await (await writer.send("t", b"%d" % number, partition=0))
            if not anew:
                reader.seek(at, 1000)
            while not reader._assignment.preparation.is_under_way:
                await reader.poll(0)
                await asyncio.sleep(0.0001)
            reader.seek(at, 7)
            assert [record.value for record in await reader.poll(1000)] == [b"7", b"8", b"9"]

    simulate(scenario)


def test_going_back_while_a_lost_position_is_looked_up_disturbs_nothing() -> None:
    async def scenario(world: World) -> None:
        await write(world, [b"0"] * 3, partition=0)
        async with member(world, "first") as reader:
            assert len(await take(reader, 3)) == 3
            for number in range(100):
                await reader.poll(number % 7)
                reader.seek_to_committed({FIRST: 1000})
            while not (found := await reader.poll(1000)):
                pass
            assert len(found) == 3

    simulate(scenario, **SHORT_SESSIONS)


@pytest.mark.parametrize("assigns", [True, False])
def test_where_to_go_back_to_is_forgotten_with_what_was_read(assigns: bool) -> None:
    async def scenario(world: World) -> None:
        await write(world, [b"0"] * 3, partition=0)
        async with member(world, "first", auto_offset_reset="latest") as reader:
            await reader.poll(500)
            reader.seek_to_committed({FIRST: 0})
            if assigns:
                await reader.unsubscribe()
            reader.assign([FIRST]) if assigns else reader.subscribe("t")
            assert await reader.poll(500) == []
            await write(world, [b"new"], partition=0)
            assert [record.value for record in await take(reader, 1)] == [b"new"]

    simulate(scenario, **SHORT_SESSIONS)


def test_the_first_and_the_last_record_can_be_gone_to_and_the_lag_is_known() -> None:
    async def scenario(world: World) -> None:
        async with Producer(ADDRESS, runtime=world.runtime("writer")) as writer:
            for number in range(5):
                await writer.send("t", b"%d" % number, partition=0)
        at, empty = TopicPartition("t", 0), TopicPartition("t", 1)
        async with Consumer("t", bootstrap_servers=ADDRESS, runtime=world.runtime("reader")) as reader:
            assert len(await reader.poll(5000, 2)) == 2
            assert await reader.lag() == {at: 3, empty: 0}
            await reader.seek_to_end([at])
            assert await reader.lag([at]) == {at: 0}
            assert await reader.poll(200) == []
            await reader.seek_to_beginning([at, empty])
            assert await reader.lag() == {at: 5, empty: 0}
            assert [record.value for record in await reader.poll(5000)] == [b"%d" % n for n in range(5)]
            with pytest.raises(MisuseError, match="not assigned"):
                await reader.lag([TopicPartition("t", 9)])

    simulate(scenario)


def test_where_a_log_has_lost_its_end_there_is_no_lag(monkeypatch: pytest.MonkeyPatch) -> None:
    """A position behind the end is mended when it is fetched from: until then nothing is left to be read, not less."""
    places = Positions(cast(Cluster, None), "earliest", Isolation.READ_COMMITTED, in_commit_order=False)

    async def ends(*_: object, **__: object) -> dict[TopicPartition, int]:
        return {FIRST: 3, SECOND: 7}

    monkeypatch.setattr(places, "ends", ends)
    assert asyncio.run(places.lag({FIRST: 5, SECOND: 5})) == {FIRST: 0, SECOND: 2}


RETRIABLE = [ErrorCode.OFFSET_NOT_AVAILABLE, ErrorCode.LEADER_NOT_AVAILABLE, ErrorCode.NOT_LEADER_OR_FOLLOWER]


@pytest.mark.parametrize("error", RETRIABLE)
@pytest.mark.parametrize("refused", [[FIRST], [SECOND], [FIRST, SECOND]])
def test_an_offset_that_cannot_be_told_yet_is_asked_for_again(
    refused: list[TopicPartition], error: ErrorCode, monkeypatch: pytest.MonkeyPatch
) -> None:
    handler, answers = SERVED[LIST_OFFSETS].handler, list[Any]()

    def handled(request: Any, context: Any, node: Any) -> Any:
        reply = handler(request, context, node)
        assert isinstance(reply, Reply)
        if len(answers) < 2:
            for topic in reply.response.topics:
                for part in topic.partitions:
                    if (topic.name, part.partition_index) in refused:
                        part.error_code, part.offset, part.timestamp = error, -1, -1
        answers.append(reply.response)
        return reply

    async def scenario(world: World) -> None:
        for partition in range(2):
            await write(world, [b""] * (3 + partition), partition=partition)
        async with member(world, "alone") as reader:
            monkeypatch.setitem(SERVED, LIST_OFFSETS, replace(SERVED[LIST_OFFSETS], handler=handled))
            assert await reader.end_offsets(PARTITIONS) == {FIRST: 3, SECOND: 4}
        assert len(answers) == 3

    simulate(scenario)


def test_offsets_are_told_while_a_fetch_waits_for_records() -> None:
    async def scenario(world: World) -> None:
        await write(world, [b"0"], partition=0)
        runtime = world.runtime("patient")
        async with Consumer(bootstrap_servers=ADDRESS, runtime=runtime, fetch_max_wait_ms=60_000) as reader:
            reader.assign(PARTITIONS)
            await take(reader, 1)
            waiting = asyncio.ensure_future(reader.poll(30_000))
            await asyncio.sleep(1)
            assert await reader.end_offsets(PARTITIONS) == {FIRST: 1, SECOND: 0}
            assert await reader.lag() == dict.fromkeys(PARTITIONS, 0)
            assert not waiting.done(), "they were told behind the records"
            await write(world, [b"1"], partition=0)
            assert len(await waiting) == 1

    simulate(scenario)


@pytest.mark.parametrize("reset", ["earliest", "error"])
@pytest.mark.parametrize("in_commit_order", [True, False])
def test_a_log_that_parts_where_reading_stands_has_lost_nothing_that_was_read(
    reset: str, in_commit_order: bool
) -> None:
    async def scenario(world: World) -> None:
        cluster = Cluster(ADDRESS, runtime=world.runtime("reader"))
        places = Positions(cluster, reset, Isolation.READ_UNCOMMITTED, in_commit_order)
        stood = OffsetAndMetadata(5, "", 3)
        there = EpochEndOffset(epoch=2, end_offset=5)
        goes_on = stood if in_commit_order else stood._replace(leader_epoch=2)
        assert places.where_it_parted(FIRST, stood, there) == goes_on
        await cluster.close()

    simulate(scenario)


def test_the_first_record_of_all_may_be_the_one_that_is_young_enough() -> None:
    async def scenario(world: World) -> None:
        await write(world, [b"0", b"1"])
        async with member(world, "alone", group_id=None) as reader:
            found = await reader.offsets_for_times({FIRST: 1, SECOND: 1})
            assert {at: each and each[0] for at, each in found.items()} == {FIRST: 0, SECOND: None}

    simulate(scenario)
