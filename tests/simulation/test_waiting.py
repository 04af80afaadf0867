"""Waiting for several at once: what each gave or raised, in their order; nobody is left behind by a cancelled one."""

from __future__ import annotations

import asyncio

import pytest

from fencepost.simulation import loop
from fencepost.simulation.waiting import all_of, outcomes_of


async def _after(seconds: float, value: int) -> int:
    await asyncio.sleep(seconds)
    if value < 0:
        raise ValueError(value)
    return value


def test_all_that_was_given_comes_in_its_order() -> None:
    async def main(_: loop.VirtualLoop) -> None:
        assert await all_of() == []
        assert await all_of(_after(2, 1), _after(1, 2)) == [1, 2]

    loop.run(main)


def test_the_first_failure_is_raised_at_once() -> None:
    async def main(world: loop.VirtualLoop) -> None:
        with pytest.raises(ValueError, match="-3"):
            await all_of(_after(100, 1), _after(5, -2), _after(1, -3))
        assert world.time() == 1

    loop.run(main)


def test_outcomes_are_waited_for_to_the_end() -> None:
    async def main(world: loop.VirtualLoop) -> None:
        gone = asyncio.ensure_future(_after(100, 1))
        gone.cancel()
        told = await outcomes_of(_after(1, -2), _after(5, 1), gone)
        assert [type(each) for each in told] == [ValueError, int, asyncio.CancelledError]
        assert world.time() == 5

    loop.run(main)


def test_whoever_is_cancelled_cancels_them_all() -> None:
    async def main(_: loop.VirtualLoop) -> None:
        waited_for = [asyncio.ensure_future(_after(100, 1)) for _ in range(2)]
        waiting = asyncio.ensure_future(outcomes_of(*waited_for))
        await asyncio.sleep(1)
        waiting.cancel()
        await asyncio.sleep(1)
        assert waiting.cancelled()
        assert all(each.cancelled() for each in waited_for)

    loop.run(main)
