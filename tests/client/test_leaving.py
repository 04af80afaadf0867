"""What a consumer commits by itself when it leaves what it read."""

from __future__ import annotations

import asyncio

import pytest
from tests.client.test_group import PARTITIONS, SHORT_SESSIONS, member, take, write
from tests.client.test_producer import simulate

from fencepost.simulation.world import World

FIRST = PARTITIONS[0]


@pytest.mark.parametrize("is_grouped", [True, False])
def test_who_chooses_something_else_and_closes_has_committed_what_was_read_before(is_grouped: bool) -> None:
    """What is to be read now was never begun; what was read is not to be read again."""

    async def scenario(world: World) -> None:
        await write(world, [b"0", b"1", b"2"])
        async with member(world, "reader", auto_commit=True, auto_commit_interval_ms=60_000) as reader:
            if not is_grouped:
                await reader.unsubscribe()
                reader.assign([FIRST])
            await take(reader, 3)
            assert await reader.poll(0) == []  # those count as done
            if is_grouped:
                reader.subscribe("u")
            else:
                reader.assign([PARTITIONS[1]])
        async with member(world, "other") as other:
            found = (await other.committed([FIRST]))[FIRST]
            assert found is not None and found.offset == 3

    simulate(scenario, **SHORT_SESSIONS)


def test_with_no_time_between_two_commits_each_poll_commits_what_was_handed_out_before() -> None:
    async def scenario(world: World) -> None:
        await write(world, [b"0", b"1", b"2"])
        async with member(world, "reader", auto_commit=True, auto_commit_interval_ms=0) as reader:
            for number in range(3):
                while not await reader.poll(100, max_records=1):
                    pass
                await asyncio.sleep(0.5)  # a commit by itself is waited for by nobody
                found = (await reader.committed([FIRST]))[FIRST]
                assert (0 if found is None else found.offset) == number

    simulate(scenario, **SHORT_SESSIONS)
