"""What one Fetch reads and waits for, a step at a time."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any, cast

import pytest

from fencepost.broker.apis.fetch import _wait
from fencepost.broker.leader.fetch_plan import _check_epoch
from fencepost.broker.network.turns import Deadlines, Turns
from fencepost.protocol.errors import ErrorCode
from fencepost.protocol.steps import Pace, Steps


@pytest.mark.parametrize(
    ("known", "error"),
    [
        (-1, None),
        (0, ErrorCode.FENCED_LEADER_EPOCH),
        (4, ErrorCode.FENCED_LEADER_EPOCH),
        (5, None),
        (6, ErrorCode.UNKNOWN_LEADER_EPOCH),
    ],
)
def test_a_reader_that_knows_another_epoch_is_told_who_is_behind(known: int, error: ErrorCode | None) -> None:
    partition: Any = SimpleNamespace(leader_epoch=5)
    assert _check_epoch(known, cast(Any, partition)) is (error or partition)


class Partitions:
    """Stands for what a Fetch waits for.  Each look takes two steps; a record comes in one of the pauses."""

    def __init__(self) -> None:
        self.written = False
        self.readable: list[Callable[[], None]] = []

    def write(self) -> None:
        self.written = True
        for each in self.readable:
            each()

    def watch(self, readable: Callable[[], None], cancels: list[Callable[[], object]], pace: Pace) -> Steps[None]:
        yield from pace.rest()
        self.readable.append(readable)
        cancels.append(lambda: self.readable.remove(readable))
        yield from pace.rest()

    def enough(self, pace: Pace) -> Steps[bool]:
        yield from pace.rest()
        there = self.written
        yield from pace.rest()
        return there


@pytest.mark.parametrize("at", range(4))
def test_a_record_that_comes_while_partitions_are_looked_at_in_steps_ends_the_wait(at: int) -> None:
    async def run() -> None:
        partitions, turns = Partitions(), Turns()
        node: Any = SimpleNamespace(turns=turns, deadlines=Deadlines(turns))
        steps = _wait(cast(Any, partitions), node, asyncio.get_running_loop().time() + 3600, Pace())
        pauses = 0
        for pause in steps:
            if pause is None:
                if pauses == at:
                    partitions.write()
                pauses += 1
            else:
                assert isinstance(pause, asyncio.Future) and pause.done(), "it waits for what is there"
        assert pauses >= 4
        assert not partitions.readable

    asyncio.run(run())
