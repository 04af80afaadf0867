"""A deadline is kept by every pause, and tells its own end from time-outs of others."""

from __future__ import annotations

import asyncio
import random
from itertools import pairwise
from typing import Any, cast

import pytest

from fencepost.client.deadline import Deadline
from fencepost.client.errors import TimedOutError
from fencepost.runtime import Runtime
from fencepost.simulation.loop import VirtualClock, VirtualLoop, run


def deadline(loop: VirtualLoop, timeout_ms: float) -> Deadline:
    runtime = Runtime(VirtualClock(loop), cast(Any, None), random.Random(1))
    return Deadline(runtime, timeout_ms, "asking")


@pytest.mark.parametrize("timeout_ms", [0, 5, 300, 1000, 30_000])
def test_no_pause_ends_after_it_and_none_is_long(timeout_ms: int) -> None:
    async def main(loop: VirtualLoop) -> list[float]:
        until, times = deadline(loop, timeout_ms), [loop.time()]

        async def wait() -> None:
            while True:
                await until.pause("nobody is there")
                times.append(loop.time())

        with pytest.raises(TimedOutError) as raised:
            await wait()
        gone = loop.time() - times[0]
        early = f" (given up after {gone * 1000:.0f} ms: too little time is left to try again)"
        told = early if until.left >= 0.1 else ""
        assert str(raised.value) == f"asking did not succeed within {timeout_ms} ms; last: nobody is there{told}"
        return [*times, loop.time()]

    times = run(main)
    assert timeout_ms / 1000 - 0.6 <= times[-1] <= timeout_ms / 1000, "nor is it given up long before"
    assert max(after - before for before, after in pairwise(times)) <= 0.6


def test_who_gives_up_before_the_end_says_when() -> None:
    async def main(loop: VirtualLoop) -> None:
        until = deadline(loop, 1500)
        await asyncio.sleep(1.4925)
        with pytest.raises(TimedOutError, match=r"within 1500 ms; last: it is busy$"):
            await until.pause("it is busy")
        until = deadline(loop, 300)
        for _ in range(4):
            await until.pause("it is busy")
        with pytest.raises(TimedOutError, match=r"within 300 ms; last: it is busy \(given up after \d+ ms: too"):
            await until.pause("it is busy")

    run(main)


def test_a_time_out_of_somebody_else_is_not_its_own() -> None:
    async def theirs() -> None:
        raise TimeoutError("theirs")

    async def main(loop: VirtualLoop) -> None:
        until = deadline(loop, 1000)
        with pytest.raises(TimeoutError, match=r"^theirs$"):
            await until.within(theirs())
        with pytest.raises(TimedOutError, match="asking did not succeed"):
            await until.within(asyncio.sleep(2))
        assert loop.time() == 1

    run(main)


def test_what_is_put_off_passes_no_later_than_what_it_was_made_of() -> None:
    async def main(loop: VirtualLoop) -> None:
        until = deadline(loop, 5000)
        sooner = until.at_most(1000)
        assert (sooner.left, until.left) == (1, 5)
        sooner.put_off(3)
        assert (sooner.left, until.left) == (4, 5)
        sooner.put_off(3)
        assert sooner.left == until.left == 5
        assert until.at_most(5000) is until
        with pytest.raises(TimedOutError, match="asking did not succeed within 1000 ms"):
            await until.at_most(1000).within(asyncio.sleep(2))
        assert loop.time() == 1

    run(main)
