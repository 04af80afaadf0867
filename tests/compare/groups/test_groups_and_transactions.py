"""Groups with several members and offsets in transactions: both nodes say the same of them at every step."""

from __future__ import annotations

import random

import pytest
from tests.compare.coordinator.explanations import EXPLANATIONS
from tests.compare.groups.walks import Crowd
from tests.compare.nodes.twins import Twins
from tests.compare.nodes.two_nodes import TwoNodes
from tests.seeds import seeds

pytestmark = pytest.mark.compare
WALKS = 60
STEPS = 50


@pytest.mark.parametrize("level", [2, 1, 0])
def test_random_walks_of_a_group_with_several_members(nodes_in_order: TwoNodes, level: int) -> None:
    twins = Twins(nodes_in_order, level, EXPLANATIONS)
    for seed in seeds(WALKS):
        walk = Crowd(twins, random.Random(seed), f"crowd-{level}-{seed}")
        twins.play(f"walk {seed}", lambda walk=walk: walk.go(STEPS))  # type: ignore[misc]
    twins.findings.check()
