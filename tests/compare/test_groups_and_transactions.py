"""Groups with several members and positions in transactions: both nodes say the same of them at every step."""

from __future__ import annotations

import random
from collections.abc import Iterator

import pytest
from benchmarks.apache_kafka import NoPeer, apache_kafka
from tests.compare.coordinator_explanations import EXPLANATIONS
from tests.compare.coordinator_nodes import SETTINGS, prepare, set_level
from tests.compare.coordinator_twins import Twins
from tests.compare.group_walks import Crowd

from fencepost.broker import running_broker

pytestmark = pytest.mark.compare
WALKS = 60
STEPS = 50


@pytest.fixture(scope="module")
def nodes() -> Iterator[tuple[str, str]]:
    try:
        with apache_kafka(SETTINGS) as (kafka, _), running_broker(settings=SETTINGS, flush="os") as ours:
            yield kafka, ours.bootstrap_servers
    except NoPeer as reason:
        pytest.skip(str(reason))


@pytest.mark.parametrize("level", [2, 1, 0])
def test_random_walks_of_a_group_with_several_members(nodes: tuple[str, str], level: int) -> None:
    twins = Twins(*nodes, level, EXPLANATIONS)
    prepare(twins)
    set_level(twins, level)
    for seed in range(WALKS):
        walk = Crowd(twins, random.Random(seed), f"crowd-{level}-{seed}")
        twins.play(f"walk {seed}", lambda walk=walk: walk.go(STEPS))  # type: ignore[misc]
    assert not twins.faults, twins.report()
