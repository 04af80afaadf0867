"""Topics that are read by name and are not there: the others are read, and these once they are made."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any

import pytest
from tests.client.test_group import SHORT_SESSIONS, member, take, write
from tests.client.test_producer import simulate

from fencepost.client import Admin, TopicPartition
from fencepost.client.cluster import Cluster
from fencepost.client.missing_topics import MissingTopics
from fencepost.protocol.messages import MetadataResponse
from fencepost.simulation.world import ADDRESS, World

#: What was handed out is committed before a rebalance, so that nothing comes twice.
COMMITTED: dict[str, Any] = {"auto_commit": True, "metadata_max_age_ms": 300_000}

NONE_IS_MADE = {**SHORT_SESSIONS, "auto.create.topics.enable": False}

STRATEGIES = ["range", "roundrobin", "sticky", "cooperative-sticky"]


@pytest.mark.parametrize("group_id", [None, "g"])
def test_a_topic_that_is_not_there_keeps_nobody_from_the_others(group_id: str | None) -> None:
    async def scenario(world: World) -> None:
        await write(world, [b"1"])
        async with member(world, "reader", "none", "t", group_id=group_id, **COMMITTED) as reader:
            assert [record.value for record in await take(reader, 1, 3)] == [b"1"]
            assert await take(reader, 1, 30) == []
            async with Admin(ADDRESS, runtime=world.runtime("admin")) as admin:
                await admin.create_topic("none", partitions=1)
            await write(world, [b"2"], "none")
            assert [record.value for record in await take(reader, 1, 3)] == [b"2"]
            assert TopicPartition("none", 0) in reader.assignment()

    simulate(scenario, **NONE_IS_MADE)


@pytest.mark.parametrize("group_id", [None, "g"])
def test_nothing_but_topics_that_are_not_there_is_no_error(
    group_id: str | None, caplog: pytest.LogCaptureFixture
) -> None:
    async def scenario(world: World) -> None:
        async with member(world, "reader", "none", group_id=group_id) as reader:
            assert await take(reader, 1, 100) == []
            assert sum("topic 'none' is not there" in record.message for record in caplog.records) == 1
            async with Admin(ADDRESS, runtime=world.runtime("admin")) as admin:
                await admin.create_topic("none", partitions=1)
            await write(world, [b"1"], "none")
            assert [record.value for record in await take(reader, 1, 3)] == [b"1"]

    simulate(scenario, **NONE_IS_MADE)


@pytest.mark.parametrize("strategy", STRATEGIES)
@pytest.mark.parametrize("is_known", [False, True])
def test_members_that_come_and_go_read_on_after_a_topic_was_deleted(strategy: str, is_known: bool) -> None:
    """Whether or not somebody was told that it is gone before."""
    how = {**COMMITTED, "partition_assignment_strategy": strategy, "metadata_max_age_ms": 500 if is_known else 300_000}

    async def scenario(world: World) -> None:
        async with Admin(ADDRESS, runtime=world.runtime("admin")) as admin:
            await admin.create_topic("gone", partitions=2)
            async with member(world, "first", "gone", "t", **how) as first:
                await take(first, 1, 1)
                assert len(first.assignment()) == 4
                await admin.delete_topic("gone")
                await take(first, 1, 2)
                async with member(world, "second", "t", "gone", **how) as second:
                    await asyncio.gather(take(first, 1, 5), take(second, 1, 5))
                    for partition in range(2):
                        await write(world, [b"%d" % partition], partition=partition)
                    shares = await asyncio.gather(take(first, 1, 3), take(second, 1, 3))
                    assert sorted(record.value or b"" for share in shares for record in share) == [b"0", b"1"]
                    await asyncio.gather(first.commit(), second.commit())
                await write(world, [b"2"])
                assert [record.value for record in await take(first, 1, 8)] == [b"2"]
                await first.commit()
                await admin.create_topic("gone", partitions=2)
                await write(world, [b"3"], "gone")
                assert [record.value for record in await take(first, 1, 8)] == [b"3"]

    simulate(scenario, **NONE_IS_MADE)


@pytest.mark.parametrize("strategy", STRATEGIES)
def test_a_topic_deleted_while_it_is_shared_out_stops_nobody(strategy: str) -> None:
    """It was there when it was counted, and is not when its positions are looked up."""

    async def scenario(world: World) -> None:
        async with Admin(ADDRESS, runtime=world.runtime("admin")) as admin:
            for wait in range(1, 12):
                name = f"gone-{wait}"
                await admin.create_topic(name, partitions=1)
                how = {**COMMITTED, "partition_assignment_strategy": strategy, "group_id": name}
                async with member(world, f"reader-{wait}", name, "t", **how) as reader:
                    reading = asyncio.ensure_future(take(reader, wait, 8))
                    await asyncio.sleep(wait / 300)
                    await admin.delete_topic(name)
                    await write(world, [b"%d" % wait])
                    assert [record.value for record in await reading] == [b"%d" % n for n in range(1, wait + 1)]

    simulate(scenario, **NONE_IS_MADE)


@pytest.mark.parametrize("group_id", [None, "g"])
def test_one_that_nobody_leads_when_it_is_found_is_read_once_somebody_does(
    group_id: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    refresh = Cluster.refresh

    async def scenario(world: World) -> None:
        led_from = world.loop.time() + 5

        async def leaderless(self: Cluster, topics: Sequence[str] | None, create: bool = False) -> MetadataResponse:
            answer = await refresh(self, topics, create)
            if "none" in self.topics and world.loop.time() < led_from:
                view = self.topics["none"]
                self.topics["none"] = view._replace(leaders=dict.fromkeys(view.leaders, -1))
            return answer

        monkeypatch.setattr(Cluster, "refresh", leaderless)
        async with member(world, "reader", "none", "t", group_id=group_id, **COMMITTED) as reader:
            assert await take(reader, 1, 2) == []
            async with Admin(ADDRESS, runtime=world.runtime("admin")) as admin:
                await admin.create_topic("none", partitions=1)
            assert await take(reader, 1, 6) == []
            await write(world, [b"1"], "none")
            assert [record.value for record in await take(reader, 1, 3)] == [b"1"]

    simulate(scenario, **NONE_IS_MADE)


def test_an_assigned_partition_of_no_topic_is_read_once_it_is_made(caplog: pytest.LogCaptureFixture) -> None:
    async def scenario(world: World) -> None:
        async with member(world, "reader", group_id=None) as reader:
            await reader.unsubscribe()
            reader.assign([TopicPartition("none", 0), TopicPartition("t", 0)])
            await write(world, [b"1"])
            assert [record.value for record in await take(reader, 1, 3)] == [b"1"]
            assert sum("topic 'none' is not there" in record.message for record in caplog.records) == 1
            async with Admin(ADDRESS, runtime=world.runtime("admin")) as admin:
                await admin.create_topic("none", partitions=1)
            await write(world, [b"2"], "none")
            assert [record.value for record in await take(reader, 1, 3)] == [b"2"]

    simulate(scenario, **NONE_IS_MADE)


@pytest.mark.parametrize("sought", [False, True])
def test_a_partition_that_was_assigned_before_it_was_there_is_read_from_the_beginning_if_it_is_made_anew(
    sought: bool,
) -> None:
    """Whoever does not know which topic it was goes on where it was in that of the same name, and skips records."""
    at = TopicPartition("none", 0)

    async def scenario(world: World) -> None:
        runtime = world.runtime("admin")
        async with member(world, "reader", group_id=None) as reader, Admin(ADDRESS, runtime=runtime) as admin:
            await reader.unsubscribe()
            reader.assign([at])
            if sought:
                reader.seek(at, 0)
            assert await take(reader, 1, 1) == []
            for values in ([b"1", b"2"], [b"3", b"4", b"5"]):
                await admin.create_topic("none", partitions=1)
                await write(world, values, "none")
                assert [record.value for record in await take(reader, len(values), 5)] == values
                await admin.delete_topic("none")

    simulate(scenario, **NONE_IS_MADE)


@pytest.mark.parametrize("group_id", [None, "g"])
def test_a_topic_that_the_broker_makes_is_read_from_the_beginning_in_the_first_generation(
    group_id: str | None, caplog: pytest.LogCaptureFixture
) -> None:
    async def scenario(world: World) -> None:
        async with member(world, "reader", "made", group_id=group_id) as reader:
            assert await take(reader, 1, 2) == []
            assert {at.topic for at in reader.assignment()} == {"made"}
            if group_id is not None:
                assert reader.group_metadata().generation_id == 1
            assert not any("is not there" in record.message for record in caplog.records)

    simulate(scenario, **SHORT_SESSIONS)


def test_a_topic_is_named_again_when_it_is_missed_again(caplog: pytest.LogCaptureFixture) -> None:
    missing = MissingTopics("reader")
    for name in ("a", "b", "a"):
        missing.miss(name)
    missing.found("a")
    missing.miss("a")
    assert [record.message.split(" is not there")[0] for record in caplog.records] == [
        "reader: topic 'a'",
        "reader: topic 'b'",
        "reader: topic 'a'",
    ]
