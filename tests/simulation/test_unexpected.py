"""What a node catches, logs and goes on after is a fault of the run, unless the simulated disk raised it."""

from __future__ import annotations

import gc
import logging
import weakref
from dataclasses import replace
from typing import Any

import pytest

from fencepost.broker.network.registry import SERVED
from fencepost.log.durability import Durability
from fencepost.protocol.types import Lsn
from fencepost.simulation.cast import Window
from fencepost.simulation.disk import PowerCut
from fencepost.simulation.drawn_runs import carry_out
from fencepost.simulation.plans import Circumstances, Plan
from fencepost.simulation.unexpected import caught
from fencepost.simulation.world import World

DESCRIBE_GROUPS = 15
PLAN = Plan(1, 0.5, Circumstances(), {"asker-0": Window(), "single-0": Window()})


def test_without_one_there_is_no_fault() -> None:
    assert carry_out(PLAN).faults == []


def test_a_handler_that_fails_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    def fails(*_: Any) -> Any:
        raise LookupError("a group that is not there")

    monkeypatch.setitem(SERVED, DESCRIBE_GROUPS, replace(SERVED[DESCRIBE_GROUPS], handler=fails))
    assert any("nobody expected LookupError: a group that is not there" in fault for fault in carry_out(PLAN).faults)


def test_a_callback_that_fails_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    when = Durability.when

    def failing(self: Durability, lsn: Lsn, tell: Any) -> None:
        def told() -> None:
            tell()
            raise LookupError("nobody waits")

        when(self, lsn, told)

    monkeypatch.setattr(Durability, "when", failing)
    assert any("nobody expected LookupError: nobody waits" in fault for fault in carry_out(PLAN).faults)


def test_an_error_that_nobody_asked_for_is_one_of_the_run_in_which_it_was() -> None:
    """asyncio tells of it when its task is collected, which may be in a later run of the process, or never."""

    async def fails() -> None:
        raise LookupError("nobody asked")

    def begin(world: World) -> None:
        kept: list[Any] = []
        kept += (kept, world.loop.create_task(fails()))

    gc.disable()
    try:
        told = carry_out(PLAN, begin).faults
        assert any("nobody expected LookupError: nobody asked" in fault for fault in told)
        assert carry_out(PLAN).faults == []
    finally:
        gc.enable()


def test_a_world_is_gone_when_the_run_after_it_begins() -> None:
    """Hours of runs in one process hold one of them at a time."""
    worlds: list[weakref.ref[World]] = []

    def begin(world: World) -> None:
        assert all(earlier() is None for earlier in worlds)
        worlds.append(weakref.ref(world))

    for _ in range(3):
        carry_out(PLAN, begin)
    assert len(worlds) == 3


@pytest.mark.parametrize(
    ("error", "count"), [(LookupError("x"), 1), (PowerCut("x"), 0), (OSError(5, "I/O error"), 0), (None, 0)]
)
def test_what_the_disk_raises_is_expected(error: Exception | None, count: int) -> None:
    with caught() as told:
        logging.getLogger("fencepost.broker").error("something failed", exc_info=error)
    assert len(told) == count
    logging.getLogger("fencepost.broker").error("something else failed", exc_info=LookupError("y"))
    assert len(told) == count
