"""Members of groups against the real broker, on virtual time: what a failed or slow member loses, and what not."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest
from tests.client.slow_requests import slowly
from tests.client.test_producer import producer, simulate

from fencepost.broker.network.registry import SERVED, independent
from fencepost.client import Admin, Consumer, ConsumerRecord, Producer, TopicPartition
from fencepost.client.cluster import Cluster
from fencepost.client.errors import CommitFailedError, FencedInstanceIdError, TimedOutError
from fencepost.client.group import Group
from fencepost.client.group_protocol import member_of
from fencepost.protocol.errors import ErrorCode
from fencepost.protocol.messages import JoinGroupResponse, LeaveGroupRequest
from fencepost.simulation.world import ADDRESS, World

PARTITIONS = [TopicPartition("t", n) for n in range(2)]
QUICK: dict[str, Any] = {
    "session_timeout_ms": 500,
    "heartbeat_interval_ms": 100,
    "rebalance_timeout_ms": 5000,
    "request_timeout_ms": 1000,
    "max_block_ms": 1000,
    "fetch_max_wait_ms": 100,
    "metadata_max_age_ms": 1000,
}
JOIN_GROUP = 11
PATIENT: dict[str, Any] = {"session_timeout_ms": 30_000, "rebalance_timeout_ms": 30_000}
SHORT_SESSIONS = {"group.min.session.timeout.ms": 100}


def member(world: World, name: str, *topics: str, **options: Any) -> Consumer:
    how: dict[str, Any] = {"group_id": "g", "auto_commit": False, **QUICK, **options}
    return Consumer(*(topics or ("t",)), bootstrap_servers=ADDRESS, runtime=world.runtime(name), **how)


async def write(world: World, values: Sequence[bytes], topic: str = "t", partition: int = 0) -> None:
    async with Producer(ADDRESS, runtime=world.runtime(f"writer-{world.loop.time()}")) as writer:
        for value in values:
            await writer.send(topic, value, partition=partition)


async def take(consumer: Consumer, count: int, patience: float = 10) -> list[ConsumerRecord]:
    """So many records, or as many as come."""
    found: list[ConsumerRecord] = []
    give_up = asyncio.get_running_loop().time() + patience
    while len(found) < count and asyncio.get_running_loop().time() < give_up:
        found += await consumer.poll(100)
    return found


def test_a_poll_that_fails_after_a_rebalance_loses_nothing() -> None:
    """A transaction holds the positions of the group for longer than anybody waits."""

    async def scenario(world: World) -> None:
        await write(world, [b"0", b"1", b"2"])
        async with producer(world) as writer, member(world, "first") as first:
            assert len(await take(first, 3)) == 3
            async with member(world, "second") as second:
                await asyncio.gather(take(first, 1, 1), take(second, 1, 1))
                await writer.init_transactions()
                await writer.begin_transaction()
                await writer.send_offsets_to_transaction({PARTITIONS[0]: 1, PARTITIONS[1]: 0}, "g")
            await asyncio.sleep(0.2)  # it hears that the other one is gone
            for _ in range(2):
                assert await first.poll(10) == []
                with pytest.raises(TimedOutError):
                    await first.poll(60_000)
            await writer.commit_transaction()
            assert [record.value for record in await take(first, 2)] == [b"1", b"2"]
            assert first.assignment() == PARTITIONS

    simulate(scenario, **SHORT_SESSIONS)


@pytest.mark.parametrize("patience", [0.002, 0.004, 0.006, 0.009, 0.013, 0.02])
def test_a_poll_that_is_cancelled_reads_neither_nothing_nor_everything(patience: float) -> None:
    async def scenario(world: World) -> None:
        for partition in range(2):
            await write(world, [b"%d" % partition] * 3, partition=partition)
        async with member(world, "first") as first, member(world, "second") as second:
            await take(first, 6)

            async def read(reader: Consumer) -> list[ConsumerRecord]:
                found: list[ConsumerRecord] = []
                for number in range(60):
                    try:
                        async with asyncio.timeout(patience if number < 40 else None):
                            found += await reader.poll(100)
                    except TimeoutError:
                        pass
                return found

            found = await asyncio.gather(read(first), read(second))
            assert len(first.assignment()) == len(second.assignment()) == 1
            assert set(first.assignment()) | set(second.assignment()) == set(PARTITIONS)
            assert all({TopicPartition(each.topic, each.partition) for each in read} for read in found)

    simulate(scenario, **SHORT_SESSIONS)


def test_commits_are_of_the_generation_that_is_followed() -> None:
    """Its next generation is not known to a caller that still works on records of this one."""

    async def scenario(world: World) -> None:
        await write(world, [b"0"])
        async with producer(world) as writer, member(world, "first") as first, member(world, "second") as second:
            await take(first, 1)
            before = first.group_metadata()
            await writer.init_transactions()
            await writer.begin_transaction()
            await writer.send_offsets_to_transaction(dict.fromkeys(PARTITIONS, 0), "g")
            joining = asyncio.ensure_future(second.poll(1000))
            await asyncio.sleep(0.3)
            with pytest.raises(TimedOutError):
                await first.poll(60_000)
            assert first.group_metadata() == before
            with pytest.raises(CommitFailedError):
                await first.commit({PARTITIONS[0]: 1})
            await writer.abort_transaction()
            await asyncio.gather(joining, second.poll(5000), first.poll(5000), return_exceptions=True)
            now = first.group_metadata()
            assert now.generation_id > before.generation_id
            assert first._group is not None
            assert [first._group.as_of_now(who) for who in (before, now)] == [None, now]

    simulate(scenario, **SHORT_SESSIONS)


def test_a_member_that_works_longer_than_its_session_stays_one_while_a_rebalance_waits() -> None:
    async def scenario(world: World) -> None:
        await write(world, [b"0"])
        async with member(world, "first") as first, member(world, "second") as second:
            await take(first, 1)
            before = first.group_metadata()
            joining = asyncio.ensure_future(take(second, 1, patience=5))
            await asyncio.sleep(3)
            await first.commit()
            await first.poll(500)
            assert first.group_metadata().member_id == before.member_id
            assert first.group_metadata().generation_id == before.generation_id + 1
            await joining

    simulate(scenario, **SHORT_SESSIONS)


def test_a_member_outlives_an_outage_that_is_longer_than_its_session() -> None:
    """The node gives everybody a session's time when it is back."""

    async def scenario(world: World) -> None:
        await write(world, [b"0"])
        async with member(world, "first") as first:
            await take(first, 1)
            before = first.group_metadata()
            world.kill()
            await asyncio.sleep(1.5)
            await world.start()
            await asyncio.sleep(3)
            await first.commit()
            await first.poll(500)
            assert first.group_metadata() == before

    simulate(scenario, **SHORT_SESSIONS)


def test_new_partitions_are_shared_out() -> None:
    async def scenario(world: World) -> None:
        async with member(world, "first") as first, member(world, "second") as second:
            await asyncio.gather(take(first, 1, 3), take(second, 1, 3))
            async with Admin(ADDRESS, runtime=world.runtime("admin-2")) as admin:
                await admin.create_partitions("t", 4)
            for partition in range(2, 4):
                await write(world, [b"new"], partition=partition)
            found = await asyncio.gather(take(first, 2, 5), take(second, 2, 5))
            assert sorted(record.partition for each in found for record in each) == [2, 3]

    simulate(scenario, **SHORT_SESSIONS)


def test_new_partitions_are_shared_out_where_the_leader_was_away_when_they_came() -> None:
    """A static leader that is back finds the group as it left it."""

    async def scenario(world: World) -> None:
        async with member(world, "first", group_instance_id="i") as first:
            await take(first, 1, 1)
        async with Admin(ADDRESS, runtime=world.runtime("admin-2")) as admin:
            await admin.create_partitions("t", 3)
        await write(world, [b"new"], partition=2)
        async with member(world, "again", group_instance_id="i") as again:
            assert [record.value for record in await take(again, 1)] == [b"new"]

    simulate(scenario, **SHORT_SESSIONS)


def test_a_static_member_that_comes_back_in_time_is_missed_by_nobody() -> None:
    async def scenario(world: World) -> None:
        first, second = (member(world, name, group_instance_id=name, **PATIENT) for name in ("a", "b"))
        await asyncio.gather(take(first, 1, 1), take(second, 1, 1))
        await asyncio.gather(take(first, 1, 1), take(second, 1, 1))
        share, generation = first.assignment(), second.group_metadata()
        assert len(share) == 1
        await first.close()
        await take(second, 1, 2)
        again = member(world, "again", group_instance_id="a", **PATIENT)
        await asyncio.gather(take(again, 1, 2), take(second, 1, 2))
        assert (again.assignment(), second.group_metadata()) == (share, generation)
        await again.close()
        await second.close()

    simulate(scenario, **SHORT_SESSIONS)


def test_of_two_members_with_one_instance_id_the_first_gives_up() -> None:
    async def scenario(world: World) -> None:
        await write(world, [b"0", b"1"])
        first, second = (member(world, name, group_instance_id="i") for name in ("first", "second"))
        assert len(await take(first, 2)) == 2
        await take(second, 2)
        await asyncio.sleep(1)
        for call in (first.poll, first.commit, first.poll):
            with pytest.raises(FencedInstanceIdError, match="'i' has joined group 'g'"):
                await call()
        generation = second.group_metadata()
        await take(second, 1, 2)
        assert second.group_metadata() == generation
        await first.close()
        await take(second, 1, 2)
        assert second.group_metadata() == generation
        await second.close()

    simulate(scenario, **SHORT_SESSIONS)


def test_a_topic_made_anew_is_read_from_its_beginning_and_no_old_position_is_stored_in_it() -> None:
    async def scenario(world: World) -> None:
        await write(world, [b"old"] * 5)
        async with member(world, "member") as reader:
            assert len(await take(reader, 5)) == 5
            await reader.commit()
            async with Admin(ADDRESS, runtime=world.runtime("admin-2")) as admin:
                await admin.delete_topic("t")
                await admin.create_topic("t", partitions=2)
            await write(world, [b"new %d" % n for n in range(8)])
            await reader.commit()
            assert (await reader.committed(PARTITIONS))[PARTITIONS[0]] is None
            assert [record.value for record in await take(reader, 8)] == [b"new %d" % n for n in range(8)]
            await reader.commit()
            position = (await reader.committed(PARTITIONS))[PARTITIONS[0]]
            assert position is not None
            assert position.offset == 8

    simulate(scenario, **SHORT_SESSIONS)


def test_a_group_with_members_keeps_its_positions_however_long_nothing_comes() -> None:
    """offsets.retention.minutes counts from when a group is empty (KIP-211)."""

    async def scenario(world: World) -> None:
        await write(world, [b"0", b"1"])
        async with member(world, "member") as reader:
            await take(reader, 2)
            await reader.commit()
            await asyncio.sleep(150)
            committed = await reader.committed(PARTITIONS)
            position = committed[PARTITIONS[0]]
            assert position is not None
            assert position.offset == 2
        await asyncio.sleep(30)
        async with member(world, "soon") as soon:
            assert await soon.committed(PARTITIONS) == committed
        await asyncio.sleep(150)
        async with member(world, "later") as later:
            assert (await later.committed(PARTITIONS))[PARTITIONS[0]] is None

    retention = {"offsets.retention.minutes": 1, "offsets.retention.check.interval.ms": 1000}
    simulate(scenario, **SHORT_SESSIONS, **retention)


def test_a_member_whose_close_is_interrupted_leaves_all_the_same() -> None:
    """The others need not wait until its session is over."""

    async def scenario(world: World) -> None:
        await write(world, [b"0"])
        first = member(world, "first", auto_commit=True, **PATIENT)
        await take(first, 1)
        async with member(world, "second", **PATIENT) as second:
            closing = asyncio.ensure_future(first.close())
            await asyncio.sleep(0)
            closing.cancel()
            await asyncio.gather(closing, return_exceptions=True)
            async with asyncio.timeout(5):
                await take(second, 2, 1)
            assert second.assignment() == PARTITIONS

    simulate(scenario, **SHORT_SESSIONS)


def test_a_member_whose_last_commit_fails_says_no_more_that_it_lives(caplog: pytest.LogCaptureFixture) -> None:
    async def scenario(world: World) -> None:
        await write(world, [b"0"])
        first = member(world, "first", auto_commit=True)
        await take(first, 1)
        world.kill()
        await first.close()
        caplog.clear()
        await asyncio.sleep(100)
        assert not caplog.records
        await world.start()

    simulate(scenario, **SHORT_SESSIONS)


def test_who_polls_while_its_member_says_goodbye_is_handed_nothing_that_others_may_have(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """It was not asked for anything for too long; what it has fetched is given up before it says so."""

    async def scenario(world: World) -> None:
        await write(world, [b"0", b"1"])
        async with member(world, "first", max_poll_interval_ms=500, session_timeout_ms=30_000) as first:
            assert [record.value for record in await first.poll(5000, max_records=1)] == [b"0"]
            slowly(monkeypatch, LeaveGroupRequest, 1)
            await asyncio.sleep(1)
            assert await first.poll(0) == []
            assert first.assignment() == []

    simulate(scenario, **SHORT_SESSIONS)


def test_what_another_generation_could_not_commit_has_nobody_join_again() -> None:
    async def scenario(world: World) -> None:
        async with member(world, "first") as first:
            await take(first, 1, 0.5)
            now = first.group_metadata()
            assert first._group is not None and not first._group.must_join
            first._group.commit_was_refused(now._replace(generation_id=now.generation_id - 1))
            assert not first._group.must_join
            first._group.commit_was_refused(now)
            assert first._group.must_join

    simulate(scenario, **SHORT_SESSIONS)


def test_who_is_not_let_in_does_not_ask_as_fast_as_it_is_answered(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[str] = []

    def refused(request: Any, *_: Any) -> Any:
        asked.append(request.member_id)
        return independent(
            JoinGroupResponse(error_code=ErrorCode.UNKNOWN_MEMBER_ID, leader="", member_id="", members=[])
        )

    async def scenario(world: World) -> None:
        async with member(world, "first") as first:
            monkeypatch.setitem(SERVED, JOIN_GROUP, replace(SERVED[JOIN_GROUP], handler=refused))
            await first.poll(5000)
            assert 5 < len(asked) < 30, "half a second lies between two tries in the end"
            monkeypatch.undo()

    simulate(scenario, **SHORT_SESSIONS)


def test_who_has_lost_its_place_claims_nothing_of_what_it_had() -> None:
    """By now it may be another member's: whoever shares out would take both at their word."""

    async def main() -> list[list[TopicPartition]]:
        cluster = Cluster(ADDRESS)
        times: dict[str, Any] = dict.fromkeys(
            ("session_timeout_ms", "rebalance_timeout_ms", "heartbeat_interval_ms"), 1
        )
        group = Group(cluster, "g", None, strategies=["sticky"], **times)
        group._had = PARTITIONS
        claims = []
        for _ in range(2):
            (protocol,) = group._protocols(["t"], [])
            claims.append(sorted(member_of("sticky", protocol.metadata, None).owned))
            group._lose_place()
        return claims

    assert asyncio.run(main()) == [PARTITIONS, []]
