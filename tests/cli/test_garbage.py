"""The garbage collector of a node: how many objects it looks at in one step, and that it finds cycles all the same."""

from __future__ import annotations

import asyncio
import gc
import math
import weakref
from collections.abc import Iterator
from typing import Any

import pytest
from tests.log.log_doubles import run

from fencepost.cli.garbage import LONGEST_SECONDS, LOOK_SECONDS, GarbageCollection

LIVE = 300_000
AT_ONCE = 60_000


class Ring:
    """Refers to itself."""

    def __init__(self) -> None:
        self.ring = self


@pytest.fixture
def looked_at() -> Iterator[list[int]]:
    """How many objects each collection of the oldest generation had before it."""
    found: list[int] = []

    def begun(phase: str, info: dict[str, Any]) -> None:
        if phase == "start" and info["generation"] == 2:
            found.append(len(gc.get_objects()))

    gc.collect()
    gc.callbacks.insert(0, begun)
    yield found
    gc.callbacks.remove(begun)


class Requests:
    def __init__(self, each_time: int, until: float = math.inf) -> None:
        self.count, self._each_time, self._until = 0, each_time, until

    def __call__(self) -> int:
        if asyncio.get_running_loop().time() < self._until:
            self.count += self._each_time
        return self.count


def nothing_under_way() -> bool:
    return False


def test_no_collection_looks_at_more_than_a_few_thousand_objects_however_many_there_are(looked_at: list[int]) -> None:
    async def main() -> None:
        garbage = GarbageCollection(Requests(1), nothing_under_way)
        garbage.start()
        try:
            held = [[number] for number in range(LIVE)]
            assert len(held) == LIVE
            await asyncio.sleep(10 * LOOK_SECONDS)
        finally:
            garbage.stop()

    run(main())
    assert len(looked_at) >= LIVE // AT_ONCE
    assert max(looked_at) <= AT_ONCE


@pytest.mark.parametrize(("each_time", "seconds"), [(0, 0), (1, LONGEST_SECONDS - 2 * LOOK_SECONDS)])
def test_a_cycle_that_was_set_aside_goes_when_nobody_asks_or_after_a_day(
    each_time: int, seconds: int, looked_at: list[int]
) -> None:
    async def main() -> None:
        garbage = GarbageCollection(Requests(each_time), nothing_under_way)
        garbage.start()
        try:
            held = [[number] for number in range(LIVE)]
            ring = Ring()
            gone = weakref.ref(ring)
            gc.collect()  # sets it aside
            del ring
            await asyncio.sleep(seconds)
            gc.collect()
            assert gone() is not None
            await asyncio.sleep(4 * LOOK_SECONDS)
            assert gone() is None
            assert len(held) == LIVE
            complete = len(looked_at)
            await asyncio.sleep(10 * LOOK_SECONDS)
            assert len(looked_at) == complete, "what was looked at once need not be again"
        finally:
            garbage.stop()

    run(main())


def test_of_a_busy_node_everything_is_looked_at_once_a_day_and_no_more_often(looked_at: list[int]) -> None:
    async def main() -> None:
        garbage = GarbageCollection(Requests(1), nothing_under_way)
        garbage.start()
        try:
            gc.collect()  # sets something aside
            await asyncio.sleep(LONGEST_SECONDS - 5 * LOOK_SECONDS)
            before = len(looked_at)
            rounds = []
            for _ in range(20):
                gc.collect()
                await asyncio.sleep(LOOK_SECONDS)
                rounds.append(len(looked_at) - before)
                before = len(looked_at)
            assert sorted(rounds) == [1] * 19 + [3]
        finally:
            garbage.stop()

    run(main())


def test_a_node_that_was_busy_is_idle_once_nobody_has_asked_for_a_while() -> None:
    async def main() -> None:
        until = asyncio.get_running_loop().time() + 3.5 * LOOK_SECONDS
        garbage = GarbageCollection(Requests(1, until), nothing_under_way)
        garbage.start()
        try:
            ring = Ring()
            gone = weakref.ref(ring)
            gc.collect()
            del ring
            await asyncio.sleep(3.8 * LOOK_SECONDS)
            assert gone() is not None
            await asyncio.sleep(LOOK_SECONDS)
            assert gone() is None
        finally:
            garbage.stop()

    run(main())


@pytest.mark.parametrize("looks", [1.5, 3.5])
def test_who_waits_for_an_answer_for_long_does_not_wait_for_a_collection_too(looks: float) -> None:
    """Nor does he just after it, when he asks the next thing."""

    async def main() -> None:
        loop = asyncio.get_running_loop()
        answered = loop.time() + looks * LOOK_SECONDS
        garbage = GarbageCollection(Requests(0), lambda: loop.time() < answered)
        garbage.start()
        try:
            ring = Ring()
            gone = weakref.ref(ring)
            gc.collect()
            del ring
            await asyncio.sleep((looks + 1) * LOOK_SECONDS)
            assert gone() is not None
            await asyncio.sleep(LOOK_SECONDS)
            assert gone() is None
        finally:
            garbage.stop()

    run(main())


def test_a_stop_leaves_the_collector_as_it_was() -> None:
    async def main() -> None:
        before = gc.get_threshold(), len(gc.callbacks), gc.isenabled()
        garbage = GarbageCollection(Requests(0), nothing_under_way)
        garbage.stop()
        garbage.start()
        garbage.stop()
        garbage.stop()
        assert (gc.get_threshold(), len(gc.callbacks), gc.isenabled()) == before
        assert gc.get_freeze_count() == 0

    thresholds = gc.get_threshold()
    gc.set_threshold(701, 11, 9)  # of nobody else
    try:
        run(main())
    finally:
        gc.set_threshold(*thresholds)


def test_a_start_has_garbage_collected_from_then_on() -> None:
    async def main() -> None:
        garbage = GarbageCollection(Requests(0), nothing_under_way)
        gc.disable()
        try:
            garbage.start()
            assert gc.isenabled()
        finally:
            garbage.stop()
            gc.enable()

    run(main())
