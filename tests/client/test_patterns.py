"""Topics that are chosen by a pattern, as they come and go."""

from __future__ import annotations

import re

import pytest
from tests.client.test_group import PARTITIONS, SHORT_SESSIONS, member, take, write
from tests.client.test_producer import simulate

from fencepost.client import Admin, Consumer, TopicPartition
from fencepost.client.errors import MisuseError
from fencepost.simulation.world import ADDRESS, World

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
