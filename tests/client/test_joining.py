"""Who joins a group: waits for others as long as they may take, and not for a coordinator that nobody reaches."""

from __future__ import annotations

import asyncio
import logging
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest
from tests.client.test_group import PARTITIONS, PATIENT, QUICK, SHORT_SESSIONS, member, take, write
from tests.client.test_producer import simulate

from fencepost.broker.network.connection_quotas import ConnectionQuotas
from fencepost.broker.network.registry import SERVED
from fencepost.client import Consumer
from fencepost.client.cluster import Cluster
from fencepost.client.errors import TimedOutError
from fencepost.client.group import Group
from fencepost.coordinator.group.classic.group import ClassicGroup
from fencepost.protocol.errors import ErrorCode
from fencepost.simulation.loop import VirtualLoop, run
from fencepost.simulation.world import ADDRESS, PORT, World

JOIN_GROUP = 11


def member_ids(monkeypatch: pytest.MonkeyPatch) -> tuple[list[str], asyncio.Event]:
    """What those who join say that they are, from now on, and when the first one does."""
    handler, asked, is_asked = SERVED[JOIN_GROUP].handler, list[str](), asyncio.Event()

    def noted(request: Any, context: Any, node: Any) -> Any:
        asked.append(request.member_id)
        is_asked.set()
        return handler(request, context, node)

    monkeypatch.setitem(SERVED, JOIN_GROUP, replace(SERVED[JOIN_GROUP], handler=noted))
    return asked, is_asked


class Silent(asyncio.Protocol):
    """Takes everything and answers nothing."""


def test_members_that_come_all_at_once_are_members_once_each() -> None:
    async def scenario(world: World) -> None:
        chance = world.chance("pauses")
        members = [member(world, f"member-{n}", **PATIENT) for n in range(5)]

        async def work(reader: Consumer) -> None:
            await asyncio.sleep(chance.uniform(0, 0.03))
            await take(reader, 1, 2)

        async with asyncio.timeout(10):
            await asyncio.gather(*map(work, members))
        assert world.broker is not None
        known = world.broker.node.groups.known("g")
        assert isinstance(known, ClassicGroup)
        assert sorted(known.members) == sorted(each.group_metadata().member_id for each in members)
        assert sorted(at for each in members for at in each.assignment()) == PARTITIONS
        for each in members:
            await each.close()

    simulate(scenario, **SHORT_SESSIONS)


def test_a_commit_does_not_wait_behind_a_rebalance_that_waits_for_others() -> None:
    async def scenario(world: World) -> None:
        await write(world, [b"0"])
        async with member(world, "first", **PATIENT) as first, member(world, "slow", **PATIENT) as slow:
            assert len(await take(first, 1, 1)) == 1
            await asyncio.gather(take(first, 1, 2), take(slow, 1, 2))
            async with member(world, "third", **PATIENT) as third:
                assert await third.poll(500) == await first.poll(500) == []
                assert first._assignment.preparation.is_under_way
                begun = world.loop.time()
                await first.commit({PARTITIONS[0]: 1})
                assert world.loop.time() - begun < 0.1
                assert first._assignment.preparation.is_under_way

    simulate(scenario)


def test_who_joins_waits_for_the_others_for_longer_than_for_any_answer(monkeypatch: pytest.MonkeyPatch) -> None:
    """They may be at work until the rebalance time-out: to ask again on a new connection would only begin it anew."""
    handler, asked = SERVED[JOIN_GROUP].handler, list[str]()

    def counted(request: Any, context: Any, node: Any) -> Any:
        asked.append(context.client_id)
        return handler(request, context, node)

    async def scenario(world: World) -> None:
        await write(world, [b"0"])
        async with member(world, "first", client_id="first") as first, member(world, "second") as second:
            await take(first, 1)
            monkeypatch.setitem(SERVED, JOIN_GROUP, replace(SERVED[JOIN_GROUP], handler=counted))
            joining = asyncio.ensure_future(second.poll(4000))
            await asyncio.sleep(3 * QUICK["request_timeout_ms"] / 1000)
            await asyncio.gather(first.poll(100), joining)
            assert sorted(first.assignment() + second.assignment()) == PARTITIONS
        assert asked == ["fencepost-consumer"] * 2 + ["first"], "to be given an id, and with it"

    simulate(scenario, **SHORT_SESSIONS)


def test_who_joins_waits_for_longer_than_the_others_may_be_at_work() -> None:
    """Whoever has not come by the rebalance time-out is gone on without, by an answer that comes later than that."""

    async def scenario(world: World) -> None:
        await write(world, [b"0"])
        async with member(world, "first") as first, member(world, "second") as second:
            await take(first, 1)
            begun = world.loop.time()
            await second.poll(10)
            while not second.assignment():
                await second.poll(100_000)
            assert second.assignment() == PARTITIONS
            assert world.loop.time() - begun > QUICK["rebalance_timeout_ms"] / 1000

    simulate(scenario, **SHORT_SESSIONS)


@pytest.mark.parametrize("version", [3, 4, 9])
def test_a_coordinator_that_names_nobody_is_waited_for_no_longer_than_any_other(
    version: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nobody else is waited for before a member has its id; but before KIP-394 it joins at once, and they are."""
    asked: list[float] = []

    async def scenario(world: World) -> None:
        async def never(*_: Any) -> Any:
            asked.append(world.loop.time())
            await asyncio.Event().wait()

        served = replace(SERVED[JOIN_GROUP], handler=never, last=version)
        monkeypatch.setitem(SERVED, JOIN_GROUP, served)
        async with member(world, "first") as first:
            with pytest.raises(TimedOutError, match="joining group 'g' did not succeed within"):
                await first.poll(500_000)
        if version >= 4:
            assert world.loop.time() - asked[0] <= QUICK["max_block_ms"] / 1000 + 0.1
        else:
            assert world.loop.time() - asked[0] > QUICK["rebalance_timeout_ms"] / 1000

    simulate(scenario, **SHORT_SESSIONS)


@pytest.mark.parametrize("broker", ["dead", "silent"])
def test_nobody_tries_to_join_for_longer_than_max_block_ms_where_no_coordinator_is_reached(broker: str) -> None:
    """The rebalance that others may be at work in has not begun."""

    async def scenario(world: World) -> None:
        await write(world, [b"0"])
        async with member(world, "first") as first:
            await take(first, 1)
            await first.unsubscribe()
            world.kill()
            if broker == "silent":
                await world.network.listen(
                    Silent, ADDRESS.split(":")[0], PORT, ConnectionQuotas(most=10, most_per_ip=10)
                )
            first.subscribe("t")
            begun = world.loop.time()
            with pytest.raises(TimedOutError, match=r"joining group 'g' did not succeed within 1000 ms; last: "):
                await first.poll(60_000)
            assert world.loop.time() - begun <= QUICK["max_block_ms"] / 1000 + 0.001
            if broker == "dead":
                await world.start()
                assert len(await take(first, 1)) == 1

    simulate(scenario, **SHORT_SESSIONS)


def test_what_others_are_waited_for_does_not_count_as_time_without_a_coordinator() -> None:
    """It is asked again after an outage that comes late in a rebalance."""

    async def scenario(world: World) -> None:
        await write(world, [b"0"])
        async with member(world, "first") as first, member(world, "second") as second:
            await take(first, 1)
            joining = asyncio.ensure_future(second.poll(20_000))
            await asyncio.sleep(3 * QUICK["max_block_ms"] / 1000)
            world.kill()
            await asyncio.sleep(QUICK["max_block_ms"] / 2000)
            await world.start()
            await take(first, 99)
            joining.cancel()
            assert len(second.assignment()) == 1
            assert sorted(first.assignment() + second.assignment()) == PARTITIONS

    simulate(scenario, **SHORT_SESSIONS)


@pytest.mark.parametrize("then", ["subscribe", "unsubscribe", "close"])
def test_whoever_stops_joining_before_the_coordinator_has_named_it_leaves_nobody_to_be_waited_for(
    then: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The coordinator keeps a place for the id that it gives (KIP-394): that id is used, or leaves."""

    async def scenario(world: World) -> None:
        asked, is_asked = member_ids(monkeypatch)
        async with member(world, "first", **PATIENT) as first, member(world, "second", **PATIENT) as second:
            polling = asyncio.ensure_future(first.poll(60_000))
            await is_asked.wait()
            if then == "subscribe":
                first.subscribe("t")
            else:
                polling.cancel()
                await getattr(first, then)()
            begun = world.loop.time()
            await second.poll(10)
            while not second.assignment():
                await second.poll(100)
            assert world.loop.time() - begun < 10, "less than a session"
            assert world.broker is not None
            known = world.broker.node.groups.known("g")
            assert isinstance(known, ClassicGroup)
            assert len(known.members) == (2 if then == "subscribe" else 1)
            assert not known.pending_members
            polling.cancel()
        assert asked.count("") == 2, "each asks for one id"

    simulate(scenario)


def test_whoever_leaves_before_the_coordinator_is_reached_joins_no_more() -> None:
    async def main(_: VirtualLoop) -> list[str]:
        asked, is_reached = list[str](), asyncio.Event()

        async def ask(request: Any, *_: object, **__: object) -> Any:
            await is_reached.wait()
            asked.append(type(request).__name__)
            return SimpleNamespace(member_id="named", error_code=ErrorCode.MEMBER_ID_REQUIRED)

        times: dict[str, Any] = dict.fromkeys(
            ("session_timeout_ms", "rebalance_timeout_ms", "heartbeat_interval_ms"), 1
        )
        group = Group(Cluster(ADDRESS), "g", None, **times)
        group.requests.ask = ask  # type: ignore[method-assign]
        joining = asyncio.ensure_future(group.join(["t"]))
        await asyncio.sleep(1)
        joining.cancel()
        await group.leave()
        is_reached.set()
        await asyncio.sleep(1)
        return asked

    assert run(main) == []


def test_whoever_asked_for_its_id_and_has_it_joins_for_the_topics_that_it_reads_now(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async def scenario(world: World) -> None:
        asked, is_asked = member_ids(monkeypatch)
        await write(world, [b"0"], "u")
        async with member(world, "first", **PATIENT) as first:
            polling = asyncio.ensure_future(first.poll(60_000))
            await is_asked.wait()
            first.subscribe("u")
            assert [record.topic for record in await polling] == ["u"]
            assert {at.topic for at in first.assignment()} == {"u"}
            assert asked == ["", first.group_metadata().member_id]

    simulate(scenario)


def test_who_has_left_joins_as_somebody_new(monkeypatch: pytest.MonkeyPatch) -> None:
    """Who it was is known to the coordinator no more: to come as that would be refused, and cost a pause."""

    async def scenario(world: World) -> None:
        asked, _ = member_ids(monkeypatch)
        ids = []
        async with member(world, "first") as first:
            for _ in range(2):
                first.subscribe("t")
                await take(first, 1, 1)
                ids.append(first.group_metadata().member_id)
                await first.unsubscribe()
        assert asked == ["", ids[0], "", ids[1]]

    simulate(scenario, **SHORT_SESSIONS)


def test_a_member_whose_heartbeats_nobody_answers_says_so_once_a_minute(caplog: pytest.LogCaptureFixture) -> None:
    async def scenario(world: World) -> None:
        async with member(world, "member") as reader:
            await take(reader, 1, 1)
            world.kill()
            for _ in range(150):
                await asyncio.sleep(1)
            await world.start()

    with caplog.at_level(logging.WARNING):
        simulate(scenario, **SHORT_SESSIONS)
    said = [message for message in caplog.messages if "no heartbeat" in message]
    assert len(said) == 3
    assert "times since this was last said" in said[1]


def test_a_time_out_that_nobody_waited_for_is_not_told_long_after_it_passed() -> None:
    """As where records are worked on for minutes, and the broker is back before the next poll."""

    async def scenario(world: World) -> None:
        await write(world, [b"0"])
        async with member(world, "member") as reader:
            world.kill()
            assert await reader.poll(10) == []
            await asyncio.sleep(100)
            await world.start()
            assert [record.value for record in await reader.poll(5000)] == [b"0"]

    simulate(scenario, **SHORT_SESSIONS)
