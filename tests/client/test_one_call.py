"""One call at a time: who comes meanwhile is refused, and whoever waits for its end is told, and all who do."""

from __future__ import annotations

import asyncio
from itertools import product

import pytest

from fencepost.client.errors import MisuseError
from fencepost.client.one_call import OneCall


def test_a_second_call_is_refused_and_one_after_the_first_is_not() -> None:
    call = OneCall()
    refused = pytest.raises(MisuseError, match=r"abort\(\) was called while commit\(\) is under way")
    with call.alone("commit"), refused, call.alone("abort"):
        pass
    with pytest.raises(KeyError), call.alone("commit"):
        raise KeyError
    with call.alone("abort"):
        pass


@pytest.mark.parametrize(("waiting", "calls", "turns"), list(product([1, 2, 3], [1, 2, 3], [0, 1, 2])))
def test_all_who_wait_for_the_end_are_told_whatever_follows_at_once(waiting: int, calls: int, turns: int) -> None:
    """An abort follows on a commit that failed, in the same turn of the event loop."""

    async def scenario() -> None:
        call = OneCall()

        async def go_through() -> None:
            for number in range(calls):
                with call.alone(f"call {number}"):
                    for _ in range(3):
                        await asyncio.sleep(0)
                if number < calls - 1:
                    for _ in range(turns):
                        await asyncio.sleep(0)

        going = asyncio.create_task(go_through())
        await asyncio.sleep(0)
        ends = [asyncio.create_task(call.ended()) for _ in range(waiting)]
        if waiting == 3:
            ends[0].cancel()
        _, late = await asyncio.wait([going, *ends], timeout=1)
        assert not late

    asyncio.run(scenario())


def test_whoever_waits_for_the_end_of_each_call_is_told_of_each() -> None:
    async def scenario() -> None:
        call = OneCall()
        for number in range(3):

            async def be(number: int = number) -> None:
                with call.alone(f"call {number}"):
                    await asyncio.sleep(0)

            being = asyncio.create_task(be())
            await asyncio.sleep(0)
            async with asyncio.timeout(5):
                await call.ended()
            await being

    asyncio.run(scenario())
