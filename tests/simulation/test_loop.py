"""Virtual time, and what stands for threads on it."""

from __future__ import annotations

import asyncio
import gc
from collections.abc import AsyncIterator
from concurrent.futures import ThreadPoolExecutor

import pytest

from fencepost.simulation.loop import VirtualLoop, run


def test_time_jumps_to_the_next_timer() -> None:
    async def main(loop: VirtualLoop) -> float:
        await asyncio.sleep(3600)
        return loop.time()

    assert run(main) == 3600


def test_others_go_on_while_a_thread_works() -> None:
    async def main(_: VirtualLoop) -> list[str]:
        order: list[str] = []

        async def elsewhere() -> None:
            order.append(await asyncio.to_thread(lambda: "thread"))

        async def other() -> None:
            for _ in range(3):
                await asyncio.sleep(0)
                order.append("other")

        await asyncio.gather(elsewhere(), other())
        return order

    assert run(main) == ["other", "other", "other", "thread"]


def test_what_a_thread_raises_is_raised_where_it_is_awaited() -> None:
    async def main(_: VirtualLoop) -> None:
        await asyncio.to_thread(int, "no number")

    with pytest.raises(ValueError, match="no number"):
        run(main)


def test_the_result_of_a_thread_may_find_nobody_waiting() -> None:
    async def main(loop: VirtualLoop) -> list[object]:
        complaints: list[object] = []
        loop.set_exception_handler(lambda _, context: complaints.append(context))
        waiting = asyncio.create_task(asyncio.to_thread(lambda: None))
        await asyncio.sleep(0)
        waiting.cancel()
        await asyncio.sleep(1)
        assert waiting.cancelled()
        return complaints

    assert run(main) == []


def test_somebodys_own_pool_is_refused() -> None:
    async def main(loop: VirtualLoop) -> None:
        with ThreadPoolExecutor() as pool:
            await loop.run_in_executor(pool, lambda: None)

    with pytest.raises(AssertionError, match="no pools of threads"):
        run(main)


def test_a_generator_that_nobody_has_any_more_is_closed() -> None:
    """Of asyncio's own accord, as it would be told by another thread."""
    told: list[str] = []

    async def generator() -> AsyncIterator[int]:
        try:
            yield 1
        finally:
            told.append("closed")

    async def main(_: VirtualLoop) -> None:
        async for _number in generator():
            break
        gc.collect()
        await asyncio.sleep(1)

    run(main)
    assert told == ["closed"]
