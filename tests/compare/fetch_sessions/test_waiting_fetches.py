"""Fetches that wait are woken by the same commits and aborts on both nodes, and are given the same."""

from __future__ import annotations

import random

import pytest
from tests.compare.coordinator.explanations import EXPLANATIONS
from tests.compare.fetch_sessions.waiting_fetches import Watch
from tests.compare.nodes.twins import Twins
from tests.compare.nodes.two_nodes import TwoNodes
from tests.seeds import seeds

pytestmark = pytest.mark.compare
WALKS = 40
STEPS = 40


@pytest.mark.parametrize("level", [2, 1, 0])
def test_random_walks_of_fetches_that_wait(nodes_in_order: TwoNodes, level: int) -> None:
    twins = Twins(nodes_in_order, level, EXPLANATIONS)
    woken = 0
    for seed in seeds(WALKS):
        walk = Watch(twins, random.Random(seed), f"watch-{level}-{seed}")
        twins.play(f"walk {seed}", lambda walk=walk: walk.go(STEPS))  # type: ignore[misc]
        woken += walk.woken
    twins.findings.check()
    assert woken > WALKS, "there was something to wait for"
