"""Long work in steps gives what it would give at once, and nobody waits for all of it."""

from __future__ import annotations

import random
from typing import Any

import pytest

from fencepost.protocol.steps import ITEM, STEP, Pace, Steps, cost_of_id, each, elsewhere, finish, in_order


def in_so_many(steps: Steps[Any]) -> tuple[Any, int]:
    """The result, and how many interruptions there were."""
    interruptions = 0
    while True:
        try:
            next(steps)
        except StopIteration as done:
            return done.value, interruptions
        interruptions += 1


@pytest.mark.parametrize("count", [0, 1, 2, STEP - 1, STEP, STEP + 1, 3 * STEP + 7])
def test_what_is_sorted_in_steps_is_sorted(count: int) -> None:
    chance = random.Random(count)
    items = [(f"t{chance.randrange(50)}", chance.randrange(count)) for _ in range(count)]
    pace = Pace()
    found, interruptions = in_so_many(in_order(items, pace))
    assert found == sorted(items)
    assert interruptions == pace.pauses
    assert interruptions >= (2 * (count // STEP) - 1 if count > STEP else 0)


@pytest.mark.parametrize("count", [0, 1, STEP // ITEM, 10 * STEP // ITEM])
def test_each_is_answered_in_its_place_and_in_steps(count: int) -> None:
    found, interruptions = in_so_many(each(range(count), lambda number: number * 2, Pace()))
    assert found == [number * 2 for number in range(count)]
    assert interruptions == count * ITEM // STEP


def test_what_fails_elsewhere_fails_where_it_was_asked_for() -> None:
    def work() -> int:
        raise ValueError("elsewhere")

    def steps() -> Steps[str]:
        try:
            yield from elsewhere(work)
        except ValueError as error:
            return str(error)
        return "went on"

    assert finish(steps()) == "elsewhere"


def test_the_longest_id_is_a_step_of_its_own_and_a_usual_one_is_an_item() -> None:
    """32,767 letters take a millisecond or more: the partition of an id depends on all of them."""
    assert cost_of_id("x" * 32_767) >= STEP
    assert cost_of_id("orders") == ITEM


@pytest.mark.parametrize("units", [5, 10, 11, 10 * STEP])
def test_a_new_step_is_as_long_however_long_the_last_one_was(units: int) -> None:
    pace = Pace(10)
    _, pauses = in_so_many(pace.spend(units))
    assert (pauses, pace.pauses) == ((1, 1) if units >= 10 else (0, 0))
    assert pace.left == (STEP if units >= 10 else 10 - units)


def test_of_the_room_that_is_held_what_is_needed_no_more_is_given_back() -> None:
    class Given:
        def __init__(self) -> None:
            self.sizes: list[int] = []

        def give(self, size: int) -> None:
            self.sizes.append(size)

    room: Any = Given()
    pace = Pace(room=room)
    pace.held = 100
    for size, held in ((100, 100), (200, 100), (30, 30), (30, 30), (50, 30), (0, 0), (0, 0)):
        pace.hold(size)
        assert pace.held == held == 100 - sum(room.sizes)
    assert room.sizes == [70, 30]
