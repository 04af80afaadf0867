"""What was acknowledged is there after any crash, in order, and nothing else; and the checker of this can fail."""

from __future__ import annotations

import sys
from pathlib import Path
from random import Random

import pytest

sys.path.insert(0, str(Path(__file__).parent))

from histories import World, live, small_files
from log_doubles import run

from fencepost.simulation.disk import SimulatedDisk

SEEDS = 150


def history(seed: int, disk: type[SimulatedDisk] = SimulatedDisk) -> World:
    world = World(seed, disk(Random(seed)))
    run(live(world, lives=8, steps=80))
    return world


@pytest.mark.parametrize("seed", range(SEEDS))
def test_what_was_acknowledged_survives(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    small_files(monkeypatch)
    history(seed)
