"""Who dies with a turn leaves the place as it is noted, and to others; who stands still keeps its turn."""

from __future__ import annotations

import pytest

from fencepost.simulation.ledger_in_memory import LedgerInMemory
from fencepost.simulation.loop import VirtualLoop, run
from fencepost.simulation.micro_batches import PLACES
from fencepost.simulation.processes import Process, ProcessLoop
from fencepost.simulation.world import World
from fencepost.spark.attempt import PoisonedError


def test_a_turn_is_kept_by_who_stands_still_and_lost_by_who_dies() -> None:
    async def main(loop: VirtualLoop) -> None:
        world = World(loop, 1)
        ledger, (one, other) = LedgerInMemory(PLACES), (Process(world, name) for name in ("one", "other"))
        its, others = ledger.of(one), ledger.of(other)
        begun, had = its.turn(0), its.turn(1)
        for turn in (begun, had):
            mine = turn.__enter__()
            assert mine is not None
            mine.begin()
            if turn is had:
                mine.settle(3)
        one.stand_still(1)
        for place in (0, 1):
            with others.turn(place) as mine:
                assert mine is None
        one.die(silently=True)
        with pytest.raises(PoisonedError, match="in the middle"), others.turn(0):
            pass
        with others.turn(1) as mine:
            assert mine is not None and mine.records == 3
            had.__exit__(None, None, None)  # what is cleared away takes nobody's turn
            with ledger.of(Process(world, "third")).turn(1) as third:
                assert third is None

    run(main, ProcessLoop)


def test_nobody_opens_it_when_the_run_is_over_and_who_has_it_open_goes_on() -> None:
    async def main(loop: VirtualLoop) -> None:
        ledger, process = LedgerInMemory(PLACES), Process(World(loop, 1), "p")
        with ledger.of(process) as opened:
            ledger.is_gone = True
            with opened.turn(0) as mine:
                assert mine is not None
        with pytest.raises(FileNotFoundError):
            ledger.of(process)

    run(main, ProcessLoop)
