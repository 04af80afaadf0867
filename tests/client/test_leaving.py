"""What a consumer commits by itself when it leaves what it read."""

from __future__ import annotations

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
