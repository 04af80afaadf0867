"""Where reading begins in what is assigned, what counts that was said before, and who is told that it is lost."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from types import SimpleNamespace
from typing import Any

import pytest
from tests.client.test_group import PARTITIONS, SHORT_SESSIONS, member, take, write
from tests.client.test_producer import producer, simulate
from tests.client.test_rebalances import COOPERATIVE, EAGER, Notes, settle, throw_out

from fencepost.client import Consumer, RebalanceListener, TopicPartition
from fencepost.client.assignment import Assignment
from fencepost.client.errors import FencedInstanceIdError, MisuseError, TimedOutError
from fencepost.simulation.world import World

FIRST = PARTITIONS[0]


async def assign_again(reader: Consumer) -> None:
    await reader.unsubscribe()
    reader.assign([FIRST])
    reader.seek(FIRST, 2)
    reader.assign([FIRST])


async def subscribe_instead(reader: Consumer) -> None:
    await reader.unsubscribe()
    reader.assign([FIRST])
    reader.seek(FIRST, 2)
    await reader.unsubscribe()
    reader.subscribe("t")


async def subscribe_again(reader: Consumer) -> None:
    await take(reader, 3)
    reader.seek_to_committed({FIRST: 2})
    reader.subscribe("t")


@pytest.mark.parametrize(
    ("change", "group_id"),
    [
        *((assign_again, group_id) for group_id in (None, "g")),
        *((subscribe_instead, group_id) for group_id in (None, "g")),
        (subscribe_again, "g"),
    ],
)
def test_where_to_begin_is_forgotten_with_what_it_was_said_of(
    change: Callable[[Consumer], Awaitable[None]], group_id: str | None
) -> None:
    async def scenario(world: World) -> None:
        await write(world, [b"0", b"1", b"2"])
        async with member(world, "first", group_id=group_id) as reader:
            await change(reader)
            assert [record.value for record in await take(reader, 3)] == [b"0", b"1", b"2"]

    simulate(scenario, **SHORT_SESSIONS)


@pytest.mark.parametrize("how", [EAGER, COOPERATIVE], ids=["eager", "cooperative"])
def test_who_is_replaced_is_told_that_its_partitions_are_lost(how: dict[str, Any]) -> None:
    """Nothing can be committed of them any more."""

    async def scenario(world: World) -> None:
        notes = Notes()
        async with (
            member(world, "first", group_instance_id="i", **how) as first,
            member(world, "second", group_instance_id="i", **how) as second,
        ):
            first.subscribe("t", listener=notes)
            await take(first, 1, 1)
            await take(second, 1, 1)
            await asyncio.sleep(1)
            for _ in range(2):
                with pytest.raises(FencedInstanceIdError):
                    await first.poll(1000)
            assert notes.told == [("assigned", [0, 1]), ("lost", [0, 1])]

    simulate(scenario, **SHORT_SESSIONS)


def test_where_to_begin_was_said_of_the_generation_that_is_over() -> None:
    """Meanwhile another member may have read on: the group's position counts."""

    async def scenario(world: World) -> None:
        for partition in range(2):
            await write(world, [b"%d-%d" % (partition, n) for n in range(3)], partition=partition)
        async with producer(world) as writer, member(world, "first") as first:
            await writer.init_transactions()
            await writer.begin_transaction()
            await writer.send_offsets_to_transaction(dict.fromkeys(PARTITIONS, 2), "g")
            with pytest.raises(TimedOutError):
                await first.poll(60_000)  # the positions that it is given to begin at are in doubt
            for at in PARTITIONS:
                first.seek(at, 0)
            async with member(world, "second") as second:
                joining = asyncio.ensure_future(second.poll(1000))
                await asyncio.sleep(0.3)  # a heartbeat has told of it
                assert await first.poll(500) == []
                await writer.commit_transaction()
                found = [*await joining, *await take(first, 2, 2), *await take(second, 1, 1)]
            assert sorted(record.value or b"" for record in found) == [b"0-2", b"1-2"]

    simulate(scenario, **SHORT_SESSIONS)


@pytest.mark.parametrize("how", [EAGER, COOPERATIVE], ids=["eager", "cooperative"])
def test_where_to_begin_without_a_position_is_said_for_once(how: dict[str, Any]) -> None:
    """After the next rebalance it is as auto_offset_reset says."""

    async def scenario(world: World) -> None:
        for partition in range(2):
            await write(world, [b"%d-%d" % (partition, n) for n in range(3)], partition=partition)
        async with member(world, "first", **how) as first:
            await take(first, 6)
            first.seek_to_committed(dict.fromkeys(PARTITIONS, 2))
            assert sorted(record.value or b"" for record in await take(first, 6, 2)) == [b"0-2", b"1-2"]
            await throw_out(world, first)
            assert len(await take(first, 6, 2)) == 6

    simulate(scenario, **SHORT_SESSIONS)


@pytest.mark.parametrize("group_id", [None, "g"])
def test_what_is_assigned_is_the_assignment_before_it_is_read(group_id: str | None) -> None:
    """As the Java client has it."""

    async def scenario(world: World) -> None:
        await write(world, [b"0"])
        async with member(world, "reader", group_id=group_id) as reader:
            await reader.unsubscribe()
            for assigned in (PARTITIONS, [FIRST]):
                reader.assign([*reversed(assigned), FIRST])
                assert reader.assignment() == assigned
                await reader.poll(100)
                assert reader.assignment() == assigned
            await reader.unsubscribe()
            assert reader.assignment() == []

    simulate(scenario)


@pytest.mark.parametrize("group_id", [None, "g"])
def test_position_of_what_is_not_read_yet_is_where_reading_is_to_begin(group_id: str | None) -> None:
    """Before the first poll too: a loop that reads to an end asks for it first."""

    async def scenario(world: World) -> None:
        await write(world, [b"0", b"1", b"2"])
        async with member(world, "first", group_id=group_id) as reader:
            await reader.unsubscribe()
            reader.assign([FIRST])
            with pytest.raises(MisuseError, match=r"t-0 is assigned and not read yet: poll\(\) first"):
                reader.position(FIRST)
            with pytest.raises(MisuseError, match="t-1 is not assigned to this consumer: "):
                reader.position(PARTITIONS[1])
            await reader.seek_to_end([FIRST])
            assert reader.position(FIRST) == 3
            reader.seek(FIRST, 2)
            assert reader.position(FIRST) == 2
            assert [record.value for record in await take(reader, 1)] == [b"2"]
            assert reader.position(FIRST) == 3

    simulate(scenario, **SHORT_SESSIONS)


class Pausing(RebalanceListener):
    """Pauses what it is told is new, as it may."""

    def __init__(self, consumer: Consumer) -> None:
        self._consumer = consumer

    async def on_partitions_assigned(self, partitions: list[TopicPartition]) -> None:
        self._consumer.pause([at for at in partitions if at == FIRST])


async def pause_when_assigned(reader: Consumer) -> None:
    await reader.unsubscribe()
    reader.assign(PARTITIONS)
    reader.pause([FIRST])


async def pause_when_told(reader: Consumer) -> None:
    reader.subscribe("t", listener=Pausing(reader))


async def pause_and_go_back(reader: Consumer) -> None:
    await take(reader, 2)
    reader.pause([FIRST])
    reader.seek_to_committed({FIRST: 0, PARTITIONS[1]: 0})


@pytest.mark.parametrize(
    ("pause", "how"),
    [
        (pause_when_assigned, {"group_id": None}),
        (pause_when_assigned, EAGER),
        (pause_when_told, EAGER),
        (pause_when_told, COOPERATIVE),
        (pause_and_go_back, EAGER),
        (pause_and_go_back, COOPERATIVE),
    ],
)
def test_what_is_paused_before_it_is_read_stays_so(
    pause: Callable[[Consumer], Awaitable[None]], how: dict[str, Any]
) -> None:
    """In on_partitions_assigned too, where a partition is about to be read."""

    async def scenario(world: World) -> None:
        for partition in range(2):
            await write(world, [b"%d" % partition], partition=partition)
        async with member(world, "first", **how) as reader:
            await pause(reader)
            assert [record.value for record in await take(reader, 2, 2)] == [b"1"]
            assert reader.paused() == [FIRST]
            reader.resume([FIRST])
            assert [record.value for record in await take(reader, 1)] == [b"0"]

    simulate(scenario, **SHORT_SESSIONS)


def test_a_pause_before_the_first_poll_can_be_taken_back() -> None:
    async def scenario(world: World) -> None:
        await write(world, [b"0"])
        async with member(world, "first", group_id=None) as reader:
            await reader.unsubscribe()
            for _ in range(2):
                reader.assign([FIRST])
                reader.pause([FIRST])
                assert reader.paused() == [FIRST]
            reader.resume([FIRST])
            assert reader.paused() == []
            assert [record.value for record in await take(reader, 1)] == [b"0"]
            reader.pause([FIRST])
            reader.assign([FIRST])
            assert reader.paused() == []

    simulate(scenario, **SHORT_SESSIONS)


async def pause_and_assign_again(reader: Consumer) -> None:
    await pause_when_assigned(reader)
    reader.assign(PARTITIONS)


async def pause_and_unsubscribe(reader: Consumer) -> None:
    await pause_when_assigned(reader)
    await reader.unsubscribe()
    assert reader.paused() == []
    reader.subscribe("t")


async def pause_and_subscribe_again(reader: Consumer) -> None:
    await pause_and_go_back(reader)
    reader.subscribe("t")


@pytest.mark.parametrize(
    ("change", "how"),
    [
        (pause_and_assign_again, EAGER),
        (pause_and_assign_again, COOPERATIVE),
        (pause_and_unsubscribe, EAGER),
        (pause_and_unsubscribe, COOPERATIVE),
        (pause_and_subscribe_again, EAGER),
    ],
)
def test_what_was_paused_is_forgotten_with_the_assignment_that_it_was_said_of(
    change: Callable[[Consumer], Awaitable[None]], how: dict[str, Any]
) -> None:
    async def scenario(world: World) -> None:
        for partition in range(2):
            await write(world, [b"%d" % partition], partition=partition)
        async with member(world, "first", **how) as reader:
            await change(reader)
            assert reader.paused() == []
            assert len(await take(reader, 2)) == 2

    simulate(scenario, **SHORT_SESSIONS)


async def pause_what_is_read(reader: Consumer) -> None:
    await take(reader, 2)
    reader.pause([FIRST])
    reader.seek(FIRST, 0)
    reader.seek(PARTITIONS[1], 0)


@pytest.mark.parametrize("pause", [pause_what_is_read, pause_and_go_back])
def test_what_is_kept_when_other_topics_are_subscribed_to_stays_paused(
    pause: Callable[[Consumer], Awaitable[None]],
) -> None:
    """Whether it is being read just then, or about to be read again: nothing of it is given up."""

    async def scenario(world: World) -> None:
        for partition in range(2):
            await write(world, [b"%d" % partition], partition=partition)
        async with member(world, "first", **COOPERATIVE) as reader:
            await pause(reader)
            reader.subscribe("t", "u")
            assert reader.paused() == [FIRST]
            assert [record.value for record in await take(reader, 2, 5)] == [b"1"]
            assert reader.paused() == [FIRST]
            reader.resume([FIRST])
            assert [record.value for record in await take(reader, 1)] == [b"0"]

    simulate(scenario, **SHORT_SESSIONS)


@pytest.mark.parametrize("how", [EAGER, COOPERATIVE], ids=["eager", "cooperative"])
def test_what_was_paused_is_handed_out_once_a_rebalance_has_shared_it_out_anew(how: dict[str, Any]) -> None:
    """Before anything of it was read, too; and what somebody else has now is not said to be paused here."""

    async def scenario(world: World) -> None:
        for partition in range(2):
            await write(world, [b"%d" % partition], partition=partition)
        async with member(world, "first", **how) as first:
            await pause_and_go_back(first)
            await throw_out(world, first)
            await asyncio.sleep(3)  # it hears of it
            assert len(await take(first, 2)) == 2
            first.pause(PARTITIONS)
            first.seek_to_committed()
            async with member(world, "second", **how) as second:
                joins = asyncio.ensure_future(take(second, 2, 5))
                await asyncio.sleep(3)
                await take(first, 2, 2)
                await joins
                await settle(first, second)
                assert set(first.paused()) <= set(first.assignment())
                assert second.paused() == []

    simulate(scenario, **SHORT_SESSIONS)


@pytest.mark.parametrize("moved", ["to what is read", "back to what is about to be read"])
def test_what_is_paused_is_told_in_another_thread_while_it_begins_to_be_read(moved: str) -> None:
    class Read:
        """Is looked at just before the event loop's thread moves it."""

        def __init__(self, is_paused: bool) -> None:
            self.is_paused = is_paused

        @property
        def paused(self) -> bool:
            was = self.is_paused
            while meanwhile:
                meanwhile.pop()()
            return was

        @paused.setter
        def paused(self, now: bool) -> None:
            self.is_paused = now

    goes_back = moved != "to what is read"
    fetcher: Any = SimpleNamespace(followed={FIRST: Read(goes_back)}, settle=lambda: None, follow=lambda *_: None)
    nobody: Any = None
    assignment = Assignment(nobody, fetcher, nobody, None, nobody)
    meanwhile: list[Callable[[], None]] = []
    assignment.is_started = True
    if goes_back:
        meanwhile.append(lambda: assignment.begin_at_committed({}))
    else:
        assignment._to_pause = {FIRST}
        meanwhile.append(assignment._pause_what_is_read_now)
    assert assignment.paused() == [FIRST]


def test_where_to_begin_was_said_of_one_beginning() -> None:
    """Who then goes back to what is committed begins there."""

    async def scenario(world: World) -> None:
        await write(world, [b"0", b"1", b"2"])
        async with member(world, "reader") as reader:
            await reader.unsubscribe()
            reader.assign([FIRST])
            reader.seek(FIRST, 2)
            assert [record.value for record in await take(reader, 1)] == [b"2"]
            await reader.commit({FIRST: 1})
            reader.seek_to_committed()
            assert [record.value for record in await take(reader, 2)] == [b"1", b"2"]

    simulate(scenario, **SHORT_SESSIONS)


def test_a_seek_counts_more_than_what_was_to_be_gone_back_to() -> None:
    async def scenario(world: World) -> None:
        await write(world, [b"0", b"1", b"2"])
        async with member(world, "reader") as reader:
            await take(reader, 3)
            reader.seek_to_committed({FIRST: 0})
            reader.seek(FIRST, 2)
            assert [record.value for record in await take(reader, 3, 2)] == [b"2"]

    simulate(scenario, **SHORT_SESSIONS)


def test_who_subscribes_without_a_listener_has_none() -> None:
    async def scenario(world: World) -> None:
        notes = Notes()
        async with member(world, "reader") as reader:
            reader.subscribe("t", listener=notes)
            await take(reader, 1, 1)
            reader.subscribe("t")
            await take(reader, 1, 1)
            assert reader.assignment() == PARTITIONS
        assert notes.told == [("assigned", [0, 1])]

    simulate(scenario, **SHORT_SESSIONS)
