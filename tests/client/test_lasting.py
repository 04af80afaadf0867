"""Work that outlives whoever waits for it, and what is said of how it ended where nobody waits any more."""

from __future__ import annotations

import asyncio
import gc
from collections.abc import Callable, Coroutine
from typing import Any

import pytest

from fencepost.client.errors import ClosedError, TimedOutError
from fencepost.client.lasting import Lasting
from fencepost.simulation.loop import VirtualLoop, run


async def _ends_well() -> None:
    await asyncio.sleep(0.001)


async def _fails() -> None:
    await asyncio.sleep(0.001)
    raise ClosedError("it is closed")


async def _fails_for_being_cancelled() -> None:
    """As whoever waits for a connection that is closed meanwhile."""
    try:
        await asyncio.sleep(60)
    except asyncio.CancelledError:
        raise ClosedError("it is closed") from None


async def _is_cancelled() -> None:
    await asyncio.sleep(60)


@pytest.mark.parametrize("work", [_ends_well, _fails, _fails_for_being_cancelled, _is_cancelled])
@pytest.mark.parametrize("has_ended", [False, True])
def test_how_work_ends_that_nobody_wants_any_more_is_nobodys_error(
    work: Callable[[], Coroutine[Any, Any, None]], has_ended: bool
) -> None:
    """asyncio would log that its exception was never retrieved, whenever it is collected."""
    told: list[dict[str, Any]] = []

    async def main() -> None:
        asyncio.get_running_loop().set_exception_handler(lambda _, context: told.append(context))
        lasting = Lasting(work)
        assert not await lasting.done_within(0)
        if has_ended:
            await asyncio.sleep(0.01)
        lasting.cancel()
        assert not lasting.is_under_way
        await asyncio.sleep(0.01)
        gc.collect()

    asyncio.run(main())
    assert told == []


def test_who_waits_is_told_how_it_ended_and_the_next_one_begins_it_anew() -> None:
    begun: list[int] = []

    async def work() -> None:
        begun.append(len(begun))
        await asyncio.sleep(0.01)
        if len(begun) == 1:
            raise ClosedError("it is closed")

    async def main() -> None:
        lasting = Lasting(work)
        assert not await lasting.done_within(0)
        assert lasting.is_under_way
        with pytest.raises(ClosedError):
            await lasting.done_within(None)
        assert await lasting.done_within(None)
        assert not lasting.is_under_way

    asyncio.run(main())
    assert begun == [0, 1]


def test_what_it_raised_is_told_also_to_who_has_no_time_to_wait() -> None:
    """As who cancels each call after a moment: that moment may be over whenever the loop comes round to it."""

    async def main() -> None:
        lasting = Lasting(_fails)
        for _ in range(3):
            with pytest.raises(TimeoutError):
                async with asyncio.timeout(0):
                    await lasting.done_within(1)
        await asyncio.sleep(0.01)
        with pytest.raises(ClosedError):
            async with asyncio.timeout(0):
                await lasting.done_within(1)

    asyncio.run(main())


@pytest.mark.parametrize("seconds", [0.5, 30])
def test_a_time_out_that_passed_while_nobody_waited_is_told_only_to_who_comes_soon(seconds: float) -> None:
    """Who comes much later asks anew: what kept it may be over."""
    begun: list[int] = []

    async def work() -> None:
        begun.append(len(begun))
        await asyncio.sleep(1)
        if len(begun) == 1:
            raise TimedOutError("nobody answered")

    async def main(_: VirtualLoop) -> None:
        lasting = Lasting(work)
        assert not await lasting.done_within(0.1)
        await asyncio.sleep(0.9 + seconds)
        if seconds < 1:
            assert lasting.is_under_way
            with pytest.raises(TimedOutError):
                await lasting.done_within(None)
        else:
            assert not lasting.is_under_way
            assert await lasting.done_within(None)

    run(main)
    assert begun == ([0] if seconds < 1 else [0, 1])


def test_who_never_comes_in_time_is_told_every_other_time_out() -> None:
    """As who polls for a second, and works on records for six: 60 s are always over while he works."""
    told: list[float] = []

    async def main(loop: VirtualLoop) -> None:
        async def work() -> None:
            await asyncio.sleep(60)
            raise TimedOutError("nobody answered")

        lasting = Lasting(work)
        while loop.time() < 600:
            try:
                await lasting.done_within(1)
            except TimedOutError:
                told.append(loop.time())
            await asyncio.sleep(6)

    run(main)
    assert told == [126, 258, 390, 522]


def test_a_time_out_is_told_to_who_asks_in_the_same_turn_of_the_loop() -> None:
    """As who polls without waiting, again and again: he may come between the end and what asyncio calls after it."""
    begun: list[int] = []
    asked: list[bool] = []

    async def main(_: VirtualLoop) -> None:
        await asyncio.sleep(100)
        is_up = asyncio.Event()

        async def work() -> None:
            begun.append(len(begun))
            await is_up.wait()
            raise TimedOutError("nobody answered")

        async def ask() -> None:
            await is_up.wait()
            asked.append(lasting.is_under_way)
            await lasting.done_within(0)

        lasting = Lasting(work)
        await lasting.done_within(0)
        asking = asyncio.ensure_future(ask())
        await asyncio.sleep(1)
        is_up.set()
        with pytest.raises(TimedOutError):
            await asking

    run(main)
    assert asked == [True]
    assert begun == [0]


def test_any_other_end_is_told_however_late_somebody_asks() -> None:
    async def main(_: VirtualLoop) -> None:
        failing, ending = Lasting(_fails), Lasting(_ends_well)
        assert not (await failing.done_within(0) or await ending.done_within(0))
        await asyncio.sleep(1000)
        with pytest.raises(ClosedError):
            await failing.done_within(None)
        assert ending.is_under_way
        assert await ending.done_within(0)

    run(main)
