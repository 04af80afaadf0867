"""What a consumer says to nodes in its fetch sessions, and that it reads everything whatever becomes of them."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Any, NamedTuple

import pytest
from tests.client.test_producer import simulate

from fencepost.broker.leader.fetch_plan import FetchPlan
from fencepost.broker.network.registry import SERVED
from fencepost.client import Admin, BrokerError, Consumer, Producer, TopicPartition
from fencepost.protocol.errors import ErrorCode
from fencepost.simulation.world import ADDRESS, PORT, World

FETCH = 1
A, B = TopicPartition("t", 0), TopicPartition("t", 1)


class Said(NamedTuple):
    """What a Fetch said."""

    version: int
    session_id: int
    epoch: int
    named: list[tuple[int, int]]
    """Partition and offset."""
    forgotten: list[int]


@contextmanager
def noted(last: int = SERVED[FETCH].last, refuse: Callable[[Said], bool] = lambda _: False) -> Iterator[list[Said]]:
    """Every Fetch while this lasts, at a node that serves it up to version `last`; not answered if `refuse` says so."""
    said: list[Said] = []
    handler = SERVED[FETCH].handler

    def note(request: Any, context: Any, node: Any) -> Any:
        named = [(each.partition, each.fetch_offset) for topic in request.topics for each in topic.partitions]
        forgotten = [number for topic in request.forgotten_topics_data for number in topic.partitions]
        said.append(Said(context.version, request.session_id, request.session_epoch, named, forgotten))
        return asyncio.sleep(3600) if refuse(said[-1]) else handler(request, context, node)

    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(SERVED, FETCH, replace(SERVED[FETCH], handler=note, last=last))
        yield said


def sessions(world: World) -> Any:
    assert world.broker is not None
    return world.broker.node.fetch_sessions


def reader(world: World, **options: Any) -> Consumer:
    quick = {"fetch_max_wait_ms": 50, "request_timeout_ms": 2000} | options
    return Consumer(bootstrap_servers=ADDRESS, runtime=world.runtime("reader"), **quick)


async def write(world: World, *places: TopicPartition) -> None:
    async with Producer(ADDRESS, runtime=world.runtime(f"writer {world.loop.time()}")) as writer:
        for at in places:
            await (await writer.send(at.topic, b"%f" % world.loop.time(), partition=at.partition))


def test_after_the_first_request_only_what_has_changed_is_said() -> None:
    async def scenario(world: World) -> None:
        with noted() as said:
            async with reader(world) as consumer:
                consumer.assign([A, B])
                assert await consumer.poll(200) == []
                (session_id,) = sessions(world)._sessions
                assert said[0][1:] == (0, 0, [(0, 0), (1, 0)], [])
                assert {each[1:] for each in map(str_of, said[1:])} == {(session_id, "[]", "[]")}
                assert [each.epoch for each in said] == list(range(len(said)))
                said.clear()
                await write(world, B)
                assert len(await consumer.poll(1000)) == 1
                assert await consumer.poll(200) == []
                consumer.pause([A])
                assert await consumer.poll(200) == []
                consumer.resume([A])
                consumer.seek(B, 0)
                assert len(await consumer.poll(1000)) == 1
                assert await consumer.poll(200) == []
        changes = [(each.named, each.forgotten) for each in said if each.epoch > 0 and (each.named or each.forgotten)]
        assert changes == [([(1, 1)], []), ([], [0]), ([(0, 0), (1, 0)], []), ([(1, 1)], [])]
        assert {each.session_id for each in said} == {session_id}

    simulate(scenario)


def str_of(said: Said) -> tuple[int, int, str, str]:
    return said.version, said.session_id, str(said.named), str(said.forgotten)


@pytest.mark.parametrize("waits", [True, False])
def test_a_session_ends_with_its_consumer(waits: bool) -> None:
    """At once, also where a fetch still waits for records."""

    async def scenario(world: World) -> None:
        consumer = reader(world, fetch_max_wait_ms=5000 if waits else 1)
        consumer.assign([A, B])
        await write(world, A)
        assert len(await consumer.poll(1000)) == 1
        await asyncio.sleep(1)
        assert len(sessions(world)) == 1
        begun = world.loop.time()
        await consumer.close()
        assert world.loop.time() - begun < 0.2
        assert len(sessions(world)) == 0
        await consumer.close()

    simulate(scenario)


@pytest.mark.parametrize("timeout_ms", [0, 100, None])
def test_a_node_that_says_nothing_does_not_hold_up_a_consumer_that_is_closed(timeout_ms: int | None) -> None:
    async def scenario(world: World) -> None:
        with noted(refuse=lambda each: each.epoch < 0) as said:
            consumer = reader(world)
            consumer.assign([A])
            await consumer.poll(200)
            begun = world.loop.time()
            await consumer.close(timeout_ms)
            assert world.loop.time() - begun < (0.6 if timeout_ms is None else timeout_ms / 1000 + 0.1)
            assert timeout_ms == 0 or [each.epoch for each in said if each.epoch < 0] == [-1]

    simulate(scenario)


def test_a_node_that_is_gone_does_not_hold_up_a_consumer_that_is_closed() -> None:
    async def scenario(world: World) -> None:
        consumer = reader(world)
        consumer.assign([A])
        await consumer.poll(200)
        await world.stop()
        begun = world.loop.time()
        await consumer.close()
        assert world.loop.time() - begun < 0.1
        await world.start()

    simulate(scenario)


async def evict(world: World) -> None:
    sessions(world)._sessions.clear()


async def cut(world: World) -> None:
    world.network.break_connections(PORT)


async def restart(world: World) -> None:
    await world.stop()
    await world.start()


async def move_on(world: World) -> None:
    """Somebody else uses an epoch."""
    for session in sessions(world)._sessions.values():
        session.epoch += 1


async def make_anew(world: World) -> None:
    async with Admin(ADDRESS, runtime=world.runtime("admin again")) as admin:
        await admin.delete_topic("t")
        await admin.create_topic("t", partitions=2)


@pytest.mark.parametrize("lose", [evict, cut, restart, move_on, make_anew])
@pytest.mark.parametrize("last", [SERVED[FETCH].last, 12, 7, 6], ids=lambda last: f"v{last}")
@pytest.mark.parametrize("busy", [True, False])
def test_everything_is_read_once_whatever_becomes_of_a_session(
    lose: Callable[[World], Awaitable[None]], last: int, busy: bool
) -> None:
    async def scenario(world: World) -> None:
        with noted(last) as said:
            async with reader(world, metadata_max_age_ms=200) as consumer:
                consumer.assign([A, B])
                for number in range(4):
                    await write(world, A, B, A)
                    found = list[Any]()
                    while len(found) < 3:
                        found += await consumer.poll(5000, max_records=1 if busy else 500)
                    assert len(found) == 3, f"the {number}. time"
                    await lose(world)
                    assert await consumer.poll(500) == []
                assert await consumer.poll(1000) == []
        assert {each.version for each in said} == {last}
        if last < 7:
            assert {(each.session_id, each.epoch) for each in said} == {(0, -1)}
        else:
            assert sum(each.epoch == 0 for each in said) == (1 if lose is make_anew else 5)
            assert sum(each.epoch == -1 for each in said) == 1

    simulate(scenario)


def test_over_another_connection_a_session_begins_anew_and_the_former_is_freed() -> None:
    """Whoever is at its other end may be another node, or know nothing of the last request."""

    async def scenario(world: World) -> None:
        with noted() as said:
            async with reader(world) as consumer:
                consumer.assign([A, B])
                await consumer.poll(200)
                (former,) = sessions(world)._sessions
                said.clear()
                await cut(world)
                await consumer.poll(500)
                assert said[0][1:] == (former, 0, [(0, 0), (1, 0)], [])
                assert all(each.epoch for each in said[1:])
                assert len(sessions(world)) == 1 and former not in sessions(world)._sessions

    simulate(scenario)


def test_a_partition_that_cannot_be_read_keeps_nobody_from_the_others(monkeypatch: pytest.MonkeyPatch) -> None:
    place = FetchPlan._place

    def refused(self: FetchPlan, asked: Any, topic: str) -> Any:
        return ErrorCode.TOPIC_AUTHORIZATION_FAILED if asked.key[1] == A.partition else place(self, asked, topic)

    async def scenario(world: World) -> None:
        monkeypatch.setattr(FetchPlan, "_place", refused)
        await write(world, B)
        async with reader(world) as consumer:
            consumer.assign([A, B])
            found, told = list[Any](), set[int]()
            for _ in range(10):
                try:
                    found += await consumer.poll(1000)
                except BrokerError as error:
                    told.add(error.code)
                else:
                    await write(world, B)
            assert len(found) >= 3
            assert told == {ErrorCode.TOPIC_AUTHORIZATION_FAILED}

    simulate(scenario)


def test_who_is_given_no_session_reads_without() -> None:
    async def scenario(world: World) -> None:
        with noted() as said:
            async with reader(world) as consumer:
                consumer.assign([A, B])
                await write(world, A, B)
                found = list[Any]()
                while len(found) < 2:
                    found += await consumer.poll(1000)
                assert await consumer.poll(300) == []
        assert {(each.session_id, each.epoch) for each in said} == {(0, 0)}

    simulate(scenario, **{"max.incremental.fetch.session.cache.slots": 0})


def test_a_node_has_the_time_to_answer_beside_that_for_which_it_waits_for_records() -> None:
    """Else an idle reader would begin anew again and again."""

    async def scenario(world: World) -> None:
        with noted() as said:
            async with reader(world, request_timeout_ms=1000, fetch_max_wait_ms=3000) as consumer:
                consumer.assign([A])
                assert await consumer.poll(5500) == []
                assert [each.epoch for each in said] == [0, 1]

    simulate(scenario)


def test_over_another_connection_a_session_does_not_go_on_although_every_request_was_answered() -> None:
    """A node that was started again may have given its number to somebody else."""

    async def scenario(world: World) -> None:
        with noted() as said:
            async with reader(world) as consumer:
                consumer.assign([A])
                await consumer.poll(200)
                consumer.pause([A])
                await consumer.poll(200)
                said.clear()
                await restart(world)
                await consumer.poll(200)
                consumer.resume([A])
                assert await consumer.poll(500) == []
                assert [(each.epoch, each.named) for each in said[:2]] == [(0, [(0, 0)]), (1, [])]

    simulate(scenario)
