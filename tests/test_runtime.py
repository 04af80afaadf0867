"""Long work is done in slices: the event loop goes round between two of them, whosever they are."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any

import pytest

from fencepost.runtime import Slices, Work, at_once
from fencepost.simulation.loop import VirtualLoop, run


def on_virtual_time(scenario: Callable[[], Coroutine[Any, Any, None]]) -> None:
    run(lambda _: scenario())


class Turns:
    """Notes at every step in which round of the event loop it was done."""

    def __init__(self) -> None:
        self.round = 0
        self.steps: list[tuple[str, int]] = []
        self._going = True

    async def count(self) -> None:
        while self._going:
            self.round += 1
            await asyncio.sleep(0)

    def stop(self) -> None:
        self._going = False

    def work(self, name: str, steps: int) -> Work[str]:
        for _ in range(steps):
            self.steps.append((name, self.round))
            yield
        return f"{name} is done"

    def most_in_a_round(self) -> int:
        rounds = [number for _, number in self.steps]
        return max(rounds.count(number) for number in rounds)


@pytest.mark.parametrize("works", [1, 2, 5])
def test_the_loop_goes_round_between_slices_however_many_work(works: int) -> None:
    async def scenario() -> None:
        turns, slices = Turns(), Slices(steps=10)
        counting = asyncio.ensure_future(turns.count())
        names = [f"w{n}" for n in range(works)]
        done = await asyncio.gather(*(slices.run(turns.work(name, 95)) for name in names))
        turns.stop()
        await counting
        assert done == [f"{name} is done" for name in names]
        assert len(turns.steps) == 95 * works
        # Twice: a round sees the end of a slice and the whole of the next one.
        assert turns.most_in_a_round() <= 20
        assert turns.round >= 95 * works // 20

    on_virtual_time(scenario)


def test_a_slice_is_used_up_before_others_have_their_turn() -> None:
    """A round of the event loop for each step would be all that a large answer takes."""

    async def scenario() -> None:
        turns = Turns()
        counting = asyncio.ensure_future(turns.count())
        await Slices(steps=10).run(turns.work("w", 95))
        turns.stop()
        await counting
        assert turns.most_in_a_round() >= 10

    on_virtual_time(scenario)


def test_everybody_gets_on() -> None:
    """Whoever begins later does not wait for all of the work that has begun before."""

    async def scenario() -> None:
        turns, slices = Turns(), Slices(steps=10)
        long = asyncio.ensure_future(slices.run(turns.work("long", 1000)))
        await asyncio.sleep(0)
        await slices.run(turns.work("short", 10))
        assert len(turns.steps) < 60
        await long

    on_virtual_time(scenario)


def test_many_short_works_of_one_task_are_one_long_one() -> None:
    async def scenario() -> None:
        turns, slices = Turns(), Slices(steps=10)
        counting = asyncio.ensure_future(turns.count())
        for number in range(100):
            await slices.run(turns.work(str(number), 1))
            await slices.pause()
        turns.stop()
        await counting
        assert turns.most_in_a_round() <= 10

    on_virtual_time(scenario)


def test_a_slice_ends_when_its_time_is_over() -> None:
    def main(loop: VirtualLoop) -> Coroutine[Any, Any, None]:
        def slow() -> Work[None]:
            for _ in range(20):
                turns.steps.append(("slow", turns.round))
                loop.advance(0.004)
                yield

        async def scenario() -> None:
            counting = asyncio.ensure_future(turns.count())
            await Slices(seconds=0.005).run(slow())
            turns.stop()
            await counting

        turns = Turns()

        async def checked() -> None:
            await scenario()
            assert turns.most_in_a_round() <= 2

        return checked()

    run(main)


def test_what_the_work_raises_comes_out() -> None:
    def failing() -> Work[None]:
        yield
        raise LookupError("it")

    async def scenario() -> None:
        with pytest.raises(LookupError):
            await Slices().run(failing())

    on_virtual_time(scenario)
    with pytest.raises(LookupError):
        at_once(failing())


@pytest.mark.parametrize("steps_before", [0, 1, 15])
def test_nothing_is_done_after_the_close(steps_before: int) -> None:
    async def scenario() -> None:
        turns, slices = Turns(), Slices(steps=1)
        closed: list[bool] = []

        def work() -> Work[None]:
            try:
                yield from turns.work("w", 30)
            finally:
                closed.append(True)

        task = asyncio.ensure_future(slices.run(work()))
        while len(turns.steps) < steps_before:  # noqa: ASYNC110 - one round at a time
            await asyncio.sleep(0)
        slices.close()
        slices.close()
        done = len(turns.steps)
        with pytest.raises(asyncio.CancelledError):
            await task
        assert len(turns.steps) == done
        assert closed == ([True] if done else []), "the work is told"
        with pytest.raises(asyncio.CancelledError):
            await slices.run(turns.work("late", 1))

    on_virtual_time(scenario)


def test_a_cancelled_work_does_not_hold_up_the_others() -> None:
    async def scenario() -> None:
        turns, slices = Turns(), Slices(steps=1)
        tasks = [asyncio.ensure_future(slices.run(turns.work(str(n), 5))) for n in range(3)]
        await asyncio.sleep(0)
        tasks[0].cancel()
        assert await tasks[1] == "1 is done"
        assert await tasks[2] == "2 is done"

    on_virtual_time(scenario)


def test_at_once_does_it_all() -> None:
    turns = Turns()
    assert at_once(turns.work("w", 3)) == "w is done"
    assert len(turns.steps) == 3
