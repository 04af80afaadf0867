"""Random lives of one disk, each ended by a kill, a loss of power or a clean stop."""

from __future__ import annotations

from random import Random

import pytest
from tests.log.histories import World, live, small_files
from tests.log.history_model import Violation
from tests.log.log_doubles import run
from tests.seeds import seeds

from fencepost.simulation.disk import SimulatedDisk


@pytest.mark.soak
def test_what_was_acknowledged_survives(monkeypatch: pytest.MonkeyPatch) -> None:
    small_files(monkeypatch)
    survived = 0
    for seed in seeds(5000):
        world = World(seed, SimulatedDisk(Random(seed)))
        try:
            run(live(world, lives=8, steps=80))
        except Violation as broken:
            raise AssertionError(f"seed {seed}: {broken}") from broken
        survived += world.survived
    assert survived > 0, "histories in which nothing survives show nothing"
