"""Fetches that wait are woken by the same commits and aborts on both nodes, and are given the same."""

from __future__ import annotations

import random
from collections.abc import Iterator

import pytest
from benchmarks.apache_kafka import NoPeer, apache_kafka
from tests.compare.coordinator_explanations import EXPLANATIONS
from tests.compare.coordinator_nodes import SETTINGS, prepare, set_level
from tests.compare.coordinator_twins import Twins
from tests.compare.waiting_fetches import Watch

from fencepost.broker import running_broker

pytestmark = pytest.mark.compare
WALKS = 40
STEPS = 40


@pytest.fixture(scope="module")
def nodes() -> Iterator[tuple[str, str]]:
    try:
        with apache_kafka(SETTINGS) as (kafka, _), running_broker(settings=SETTINGS, flush="os") as ours:
            yield kafka, ours.bootstrap_servers
    except NoPeer as reason:
        pytest.skip(str(reason))


@pytest.mark.parametrize("level", [2, 1, 0])
def test_random_walks_of_fetches_that_wait(nodes: tuple[str, str], level: int) -> None:
    twins = Twins(*nodes, level, EXPLANATIONS)
    prepare(twins)
    set_level(twins, level)
    woken = 0
    for seed in range(WALKS):
        walk = Watch(twins, random.Random(seed), f"watch-{level}-{seed}")
        twins.play(f"walk {seed}", lambda walk=walk: walk.go(STEPS))  # type: ignore[misc]
        woken += walk.woken
    assert not twins.faults, twins.report()
    assert woken > WALKS, "there was something to wait for"
