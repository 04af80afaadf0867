"""Topics that are chosen by a pattern, as they come and go."""

from __future__ import annotations

import re
from dataclasses import replace
from typing import Any

import pytest
from tests.client.test_group import PARTITIONS, SHORT_SESSIONS, member, take, write
from tests.client.test_producer import simulate

from fencepost.broker.network.registry import SERVED
from fencepost.client import Admin, Consumer, OffsetAndMetadata, TopicPartition
from fencepost.client.errors import MisuseError
from fencepost.protocol.errors import ErrorCode
from fencepost.simulation.world import ADDRESS, World

METADATA = 3

# Patterns


@pytest.mark.parametrize("group_id", [None, "g"])
def test_topics_come_and_go_as_their_names_fit(group_id: str | None) -> None:
    async def scenario(world: World) -> None:
        async with (
            Admin(ADDRESS, runtime=world.runtime("admin")) as admin,
            member(world, "reader", group_id=group_id) as reader,
        ):
            reader.subscribe(pattern="new-.|t")
            assert await take(reader, 1, 1) == []
            assert reader.assignment() == PARTITIONS
            await admin.create_topic("new-1", partitions=1)
            await admin.create_topic("new-22", partitions=1)
            await write(world, [b"first"], "new-1")
            assert [record.value for record in await take(reader, 1, 5)] == [b"first"]
            assert reader.assignment() == [TopicPartition("new-1", 0), *PARTITIONS]
            await admin.delete_topic("new-1")
            await take(reader, 1, 5)
            assert reader.assignment() == PARTITIONS
            assert "new-1" not in await admin.topics()

    simulate(scenario, **SHORT_SESSIONS)


@pytest.mark.parametrize("group_id", [None, "g"])
@pytest.mark.parametrize("again", ["seek_to_committed", "subscribe"])
def test_a_topic_that_is_gone_keeps_nobody_from_the_others_before_that_is_noticed(
    again: str, group_id: str | None
) -> None:
    async def scenario(world: World) -> None:
        async with (
            Admin(ADDRESS, runtime=world.runtime("admin")) as admin,
            member(world, "reader", group_id=group_id) as reader,
        ):
            await admin.create_topic("gone", partitions=1)
            reader.subscribe(pattern="t|gone")
            assert await take(reader, 1, 2) == []
            assert reader.assignment() == [TopicPartition("gone", 0), *PARTITIONS]
            await admin.delete_topic("gone")
            if again == "subscribe":
                reader.subscribe(pattern="gone|t")
            else:
                reader.seek_to_committed()
            await write(world, [b"1"])
            assert [record.value for record in await take(reader, 1, 5)] == [b"1"]
            if group_id is not None:
                await reader.commit()
            assert await take(reader, 1, 5) == []
            assert reader.assignment() == PARTITIONS
            await admin.create_topic("gone", partitions=1)
            await write(world, [b"2"], "gone")
            assert [record.value for record in await take(reader, 1, 5)] == [b"2"]

    simulate(scenario, **SHORT_SESSIONS)


@pytest.mark.parametrize("turned", range(3))
@pytest.mark.parametrize("strategy", ["range", "cooperative-sticky"])
def test_a_topic_made_anew_with_fewer_partitions_stops_nobody(strategy: str, turned: int) -> None:
    """The positions in those that there are no more have nowhere to go, when they are given up."""

    async def scenario(world: World) -> None:
        async with (
            Admin(ADDRESS, runtime=world.runtime("admin")) as admin,
            member(world, "reader", partition_assignment_strategy=strategy, auto_commit=True) as reader,
        ):
            await admin.create_topic("fewer", partitions=3)
            reader.subscribe(pattern="fewer|t")
            assert await take(reader, 1, 2) == []
            for _ in range(turned):  # which of them is read first changes
                for number in range(3):
                    await write(world, [b"old"], "fewer", partition=number)
                await take(reader, 3)
            await admin.delete_topic("fewer")
            await admin.create_topic("fewer", partitions=1)
            for value in (b"1", b"2"):
                await write(world, [value], "fewer", partition=0)
                await write(world, [value])
                assert [record.value for record in await take(reader, 2, 10)] == [value] * 2
                assert await take(reader, 1, 5) == []
            assert reader.assignment() == [TopicPartition("fewer", 0), *PARTITIONS]

    simulate(scenario, **SHORT_SESSIONS)


POSITIONS = {"offset_order": OffsetAndMetadata(1), "commit_order": OffsetAndMetadata(0, "commit-order/1 1")}


@pytest.mark.parametrize("delivery", POSITIONS)
def test_a_topic_that_a_broker_does_not_know_for_a_while_is_read_where_the_group_was(
    delivery: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As one that has not heard of the newest metadata."""
    handler, is_known = SERVED[METADATA].handler, [True]

    def handled(request: Any, *rest: Any) -> Any:
        reply: Any = handler(request, *rest)
        for topic in reply.response.topics if not is_known[0] else ():
            topic.error_code, topic.partitions = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, []
        return reply

    async def scenario(world: World) -> None:
        monkeypatch.setitem(SERVED, METADATA, replace(SERVED[METADATA], handler=handled))
        await write(world, [b"0", b"1", b"2"])
        await write(world, [b"without a position"], partition=1)
        async with member(world, "reader", delivery=delivery, metadata_max_age_ms=60_000) as reader:
            reader.subscribe(pattern="t")
            assert len(await take(reader, 4)) == 4
            await reader.commit({PARTITIONS[0]: POSITIONS[delivery]})
            is_known[0] = False
            reader.seek_to_committed()
            assert await take(reader, 1, 2) == []
            is_known[0] = True
            assert sorted(record.value or b"" for record in await take(reader, 3)) == [
                b"1",
                b"2",
                b"without a position",
            ]

    simulate(scenario, **SHORT_SESSIONS)


def test_the_brokers_own_topics_fit_no_pattern() -> None:
    async def scenario(world: World) -> None:
        async with member(world, "reader") as reader, Admin(ADDRESS, runtime=world.runtime("admin")) as admin:
            reader.subscribe(pattern=re.compile(".*"))
            await take(reader, 1, 4)
            assert reader.assignment() == PARTITIONS
            assert "__consumer_offsets" in await admin.topics()

    simulate(scenario, **SHORT_SESSIONS)


def test_a_pattern_that_fits_nothing_yet_is_no_error() -> None:
    async def scenario(world: World) -> None:
        async with member(world, "reader", group_id=None) as reader:
            reader.subscribe(pattern="later")
            assert await reader.poll(200) == []
            async with Admin(ADDRESS, runtime=world.runtime("admin")) as admin:
                await admin.create_topic("later", partitions=1)
            await write(world, [b"1"], "later")
            assert [record.value for record in await take(reader, 1, 5)] == [b"1"]

    simulate(scenario, **SHORT_SESSIONS)


def test_a_pattern_that_is_none_is_refused_and_so_is_one_beside_topics() -> None:
    reader = Consumer(bootstrap_servers=ADDRESS)
    with pytest.raises(ValueError, match=r"pattern='\(': it is no regular expression"):
        reader.subscribe(pattern="(")
    with pytest.raises(TypeError, match="pattern=5: it must be a str"):
        reader.subscribe(pattern=5)  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="must be a str"):
        reader.subscribe(pattern=re.compile(b"t"))  # type: ignore[arg-type]
    with pytest.raises(MisuseError, match="not both"):
        reader.subscribe("t", pattern="t")
