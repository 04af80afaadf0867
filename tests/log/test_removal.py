"""Files that are due to be removed go a few at a time, and none after it was said to leave them."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from functools import partial
from itertools import pairwise
from pathlib import Path
from random import Random
from types import SimpleNamespace
from typing import cast

import pytest

from fencepost.log.disk import DiskFull
from fencepost.log.removal import Removals, mark, remove_marked
from fencepost.log.segment import SUFFIXES, Segment
from fencepost.log.space import Space
from fencepost.protocol.types import Milliseconds, Offset
from fencepost.simulation.disk import SimulatedDisk
from fencepost.simulation.loop import VirtualLoop, run

MANY = 1000


class NoClock:
    def now(self) -> Milliseconds:
        return Milliseconds(0)


def removals() -> Removals:
    disk = SimulatedDisk(Random(1))
    return Removals(disk, Space(disk, Path("/data"), NoClock()))


async def in_turns(of: Removals, removed: list[int], interrupt: Callable[[], None] = lambda: None) -> list[int]:
    """Have many due at one moment; how many were gone in each turn of the event loop until all were."""
    for number in range(MANY):
        of.after(Milliseconds(1), partial(removed.append, number))
    loop = asyncio.get_running_loop()
    due = loop.time() + 0.01
    while loop.time() < due:
        pass  # so that the event loop finds all of them due at once
    counts = []
    for turn in range(10 * MANY):
        counts.append(len(removed))
        if turn == 50:
            interrupt()
        await asyncio.sleep(0)
    return counts


def test_those_that_are_due_together_go_a_few_in_a_turn() -> None:
    removed: list[int] = []
    counts = asyncio.run(in_turns(removals(), removed))
    assert removed == list(range(MANY))
    assert max(later - sooner for sooner, later in pairwise(counts)) <= 8


@pytest.mark.parametrize("hurry", [False, True])
def test_those_that_wait_for_their_turn_are_left_or_hurried(hurry: bool) -> None:
    removed: list[int] = []
    of = removals()
    counts = asyncio.run(in_turns(of, removed, of.hurry if hurry else of.give_up))
    assert counts[50] < MANY, "some were left by then"
    assert removed == list(range(MANY if hurry else counts[50]))


def test_what_is_left_to_the_next_start_leaves_no_timer() -> None:
    removed: list[int] = []
    failures: list[object] = []

    async def main(loop: VirtualLoop) -> None:
        loop.set_exception_handler(lambda _, context: failures.append(context))
        of = removals()
        of.after(Milliseconds(1000), partial(removed.append, 1))
        of.give_up()
        await asyncio.sleep(2)

    run(main)
    assert (removed, failures) == ([], [])


def test_where_the_space_is_needed_a_checkpoint_is_still_waited_for_and_nothing_forgotten() -> None:
    removed: list[int] = []
    of = removals()

    async def main() -> None:
        of.hold()
        of.now(partial(removed.append, 1))
        of.after(Milliseconds(1000), partial(removed.append, 2))
        of.hurry()
        assert removed == []
        of.let_go()
        await asyncio.sleep(0.01)

    asyncio.run(main())
    assert removed == [1, 2]


def test_nothing_goes_while_a_checkpoint_is_under_way_and_one_failure_is_its_own() -> None:
    removed: list[int] = []
    of = removals()

    def fail() -> None:
        raise OSError("somebody has it open")

    async def main() -> None:
        of.hold()
        of.after(Milliseconds(0), fail)
        await in_turns(of, removed)
        assert removed == []
        of.let_go()
        counts = []
        for _ in range(MANY):
            counts.append(len(removed))
            await asyncio.sleep(0)
        assert max(later - sooner for sooner, later in pairwise(counts)) <= 8

    asyncio.run(main())
    assert removed == list(range(MANY))


def test_a_start_removes_every_file_of_a_segment_that_was_marked_and_no_other() -> None:
    disk, directory = SimulatedDisk(Random(1)), Path("/data/t-0")
    disk.make_directory(directory)
    names = [f"{base:020d}{suffix}" for base in (0, 7) for suffix in (*SUFFIXES, ".snapshot", ".window")]
    for name in names:
        disk.open(directory / name).pwrite(b"x", 0)
    assert len(mark(disk, directory, Offset(0))) == len(names) / 2
    remove_marked(disk, directory)
    assert sorted(disk.list(directory)) == sorted(name for name in names if name.startswith(f"{7:020d}"))


def test_a_segment_is_marked_also_on_a_disk_that_has_no_room_for_another_name() -> None:
    """What frees space must be possible there."""
    disk, directory = SimulatedDisk(Random(1)), Path("/data/t-0")
    disk.make_directory(directory)
    segment, failures, rename = Segment(disk, directory, Offset(0), 1, 4096), [DiskFull(28, "it is full")], disk.rename

    def may_rename(old: Path, new: Path) -> None:
        if failures:
            raise failures.pop()
        rename(old, new)

    def attempt(action: Callable[[], object]) -> object:
        try:
            return action()
        except DiskFull:
            return action()

    async def main() -> None:
        disk.rename = may_rename  # type: ignore[method-assign]
        of = Removals(disk, cast(Space, SimpleNamespace(is_short=False, attempt=attempt)))
        of.take_segment(directory, segment, Milliseconds(60_000), lambda: True)
        of.give_up()

    asyncio.run(main())
    assert failures == [] and all(name.endswith(".deleted") for name in disk.list(directory))


@pytest.mark.parametrize("is_short", [True, False])
def test_where_space_is_short_nothing_is_kept_for_a_while(is_short: bool) -> None:
    removed: list[int] = []

    async def main() -> list[int]:
        of = Removals(SimulatedDisk(Random(1)), cast(Space, SimpleNamespace(is_short=is_short)))
        of.after(Milliseconds(60_000), partial(removed.append, 1))
        at_once = list(removed)
        of.give_up()
        return at_once

    assert asyncio.run(main()) == [1] * is_short


def test_what_was_held_is_removed_once_however_often_checkpoints_are_made() -> None:
    async def main() -> None:
        of, removed = removals(), list[int]()
        for number in range(3):
            of.hold()
            of.now(partial(removed.append, number))
            of.let_go()
            await asyncio.sleep(0)
            await asyncio.sleep(0)
            assert removed == list(range(number + 1))

    asyncio.run(main())
