"""What one Fetch reads and waits for, a step at a time."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any, cast

import pytest

from fencepost.broker.apis.fetch import _wait
from fencepost.broker.leader.fetch_plan import FetchPlan, _check_epoch
from fencepost.broker.network.turns import Deadlines, Turns
from fencepost.log.partition import Refused
from fencepost.protocol.errors import ErrorCode
from fencepost.protocol.messages.fetch import EpochEndOffset, FetchPartition
from fencepost.protocol.steps import Pace, Steps
from fencepost.protocol.types import Isolation


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


class Shortened:
    """Stands for a partition whose log starts at 1.  Leader epoch 3 ended at 2, and 5 followed."""

    log_start_offset, high_watermark, last_stable_offset = 1, 4, 4

    def end_offset_for_epoch(self, epoch: int) -> tuple[int, int]:
        assert epoch == 4
        return 3, 2

    def read(self, offset: int, *_: object, **__: object) -> Refused:
        assert offset < self.log_start_offset
        return Refused(ErrorCode.OFFSET_OUT_OF_RANGE)


@pytest.mark.parametrize(("offset", "parted"), [(0, False), (1, True), (2, True), (3, True)])
def test_a_reader_before_the_start_is_told_that_and_one_behind_it_where_it_parted(offset: int, parted: bool) -> None:
    """What is gone cannot be compared."""
    plan = FetchPlan.__new__(FetchPlan)
    plan.isolation = Isolation.READ_UNCOMMITTED
    wanted = FetchPartition(partition=0, fetch_offset=offset, last_fetched_epoch=4, partition_max_bytes=100)
    found, cost = plan._read_one(wanted, cast(Any, Shortened()), 100, first=True)
    assert cost == 0
    assert found.error_code == (ErrorCode.NONE if parted else ErrorCode.OFFSET_OUT_OF_RANGE)
    assert found.diverging_epoch == (EpochEndOffset(epoch=3, end_offset=2) if parted else None)
