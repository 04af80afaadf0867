"""What is said where the log does not have the offset any more that was to be read next."""

from __future__ import annotations

import asyncio

import pytest
from tests.client.test_group import QUICK, take, write
from tests.client.test_producer import simulate

from fencepost.client import Admin, Consumer, NoOffsetError, TopicPartition
from fencepost.client.gone_offsets import GoneOffsets
from fencepost.simulation.loop import VirtualLoop, run
from fencepost.simulation.world import ADDRESS, World

AT = TopicPartition("t", 0)


@pytest.mark.parametrize(("reset", "offset"), [("earliest", 6), ("latest", 8), ("error", None)])
def test_whoever_is_passed_by_retention_is_told_where_reading_would_have_gone_on_and_where_it_does(
    reset: str, offset: int | None, caplog: pytest.LogCaptureFixture
) -> None:
    """What was between may never have been read: that is no silent matter."""

    async def scenario(world: World) -> None:
        await write(world, [b"%d" % number for number in range(8)])
        runtime = world.runtime("reader")
        async with Consumer(bootstrap_servers=ADDRESS, runtime=runtime, auto_offset_reset=reset, **QUICK) as reader:
            reader.assign([AT])
            reader.seek(AT, 3)
            assert [record.offset for record in await reader.poll(1000, 1)] == [3]
            async with Admin(ADDRESS, runtime=world.runtime("admin")) as admin:
                await admin.delete_records({AT: 6})
            reader.seek(AT, 4)
            if offset is None:
                with pytest.raises(NoOffsetError, match=r"the log of t-0 does not have offset 4.*seek\(\) to where"):
                    await take(reader, 1)
                reader.seek(AT, 7)
            elif reset == "latest":
                assert await reader.poll(1000) == []
                await write(world, [b"8"])
            (record, *_) = await take(reader, 1)
            assert record.offset == (7 if offset is None else offset)

    simulate(scenario)
    told = [message for message in caplog.messages if "does not have offset 4" in message]
    assert [f"it goes on at {offset}" in message for message in told] == [True] * (offset is not None)


def test_whoever_is_slower_than_retention_is_told_so_once_a_minute_of_each_partition(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async def main(_: VirtualLoop) -> None:
        gone = GoneOffsets(in_commit_order=False)
        for number in range(7):
            for at in AT, TopicPartition("t", 1):
                gone.say_where_reading_goes_on(at, number, number + 10)
            await asyncio.sleep(10.1)

    run(main)
    told = [(message[:3], "and 5 times since" in message) for message in caplog.messages]
    assert told == [("t-0", False), ("t-1", False), ("t-0", True), ("t-1", True)]
