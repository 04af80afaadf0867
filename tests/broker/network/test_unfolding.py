"""The memory for what is unfolded: in the order of coming, never more than there is, and nothing is lost of it."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fencepost.broker.network.pacing import HandlerSteps
from fencepost.broker.network.unfolding import Unfolding

LIMIT = 100


class Holder:
    """Claims so much, holds it for some turns, and is cancelled in one of them, or not."""

    def __init__(self, size: int, turns: int, cancelled_in: int | None) -> None:
        self.size, self.turns, self.cancelled_in = size, turns, cancelled_in
        self.holds = False

    async def hold(self, unfolding: Unfolding, order: list[Holder]) -> None:
        await served(unfolding.wait_for(self.size))
        order.append(self)
        self.holds = True
        try:
            for _ in range(self.turns):
                await asyncio.sleep(0)
        finally:
            self.holds = False
            unfolding.give(self.size)


async def served(steps: HandlerSteps[Any]) -> None:
    """As a server does it."""
    try:
        for what in steps:
            assert isinstance(what, Awaitable)
            await what
    finally:
        steps.close()


@given(
    st.lists(
        st.builds(Holder, st.integers(0, 2 * LIMIT), st.integers(0, 3), st.none() | st.integers(0, 8)), max_size=12
    )
)
def test_everybody_has_a_turn_and_nobody_overtakes(holders: list[Holder]) -> None:
    unfolding = Unfolding(LIMIT)
    order: list[Holder] = []

    async def main() -> None:
        tasks = [asyncio.ensure_future(holder.hold(unfolding, order)) for holder in holders]
        for turn in range(200):
            for holder, task in zip(holders, tasks, strict=True):
                if holder.cancelled_in == turn:
                    task.cancel()
            await asyncio.sleep(0)
            held = [holder.size for holder in holders if holder.holds]
            assert sum(held) <= LIMIT or len([size for size in held if size]) == 1
            assert sum(held) <= unfolding.used
        assert all(task.done() for task in tasks)

    asyncio.run(main())
    assert unfolding.used == 0
    assert order == [holder for holder in holders if holder in order]
    assert [holder for holder in holders if holder.cancelled_in is None and holder not in order] == []


def test_whoever_comes_later_takes_nothing_from_those_who_wait() -> None:
    async def main() -> None:
        unfolding = Unfolding(LIMIT)
        assert unfolding.claim(60)
        large = asyncio.ensure_future(served(unfolding.wait_for(50)))
        await asyncio.sleep(0)
        assert not unfolding.claim(10)
        unfolding.give(60)
        await large
        assert unfolding.used == 50
        assert unfolding.claim(50) and not unfolding.claim(1)

    asyncio.run(main())


def test_no_more_is_given_back_than_was_taken() -> None:
    with pytest.raises(AssertionError, match="no more"):
        Unfolding(LIMIT).give(1)
