"""The coordinators of both nodes, asked the same at every level of transaction.version: whole answers are compared."""

from __future__ import annotations

import random
from concurrent.futures import ThreadPoolExecutor

import pytest
from tests.compare.coordinator.epochs import LAST, Epochs, drive
from tests.compare.coordinator.expiry import SETTINGS as EXPIRING
from tests.compare.coordinator.expiry import UNSTABLE, Expiry, TwoPhase
from tests.compare.coordinator.explanations import EXPLANATIONS
from tests.compare.coordinator.levels import Levels
from tests.compare.coordinator.offsets import Offsets
from tests.compare.coordinator.tables import Tables
from tests.compare.coordinator.timeouts import Timeouts
from tests.compare.coordinator.walks import Walk
from tests.compare.nodes.twins import SETTINGS, TOPICS, Twins
from tests.compare.nodes.two_nodes import TwoNodes, two_nodes
from tests.seeds import seeds

pytestmark = pytest.mark.compare
WALKS = 300
STEPS = 25
DRIVEN = 8


@pytest.fixture(params=[2, 1, 0])
def twins(nodes: TwoNodes, request: pytest.FixtureRequest) -> Twins:
    return Twins(nodes, request.param, EXPLANATIONS)


def test_shapes_lists_and_features(twins: Twins) -> None:
    for title, scenario in Tables(twins, f"tables-{twins.level}").all():
        twins.play(title, scenario)
    twins.findings.check()


def test_random_walks_of_two_ids_and_two_groups(twins: Twins) -> None:
    for seed in seeds(WALKS):
        walk = Walk(twins, random.Random(seed), f"walk-{twins.level}-{seed}")
        twins.play(f"walk {seed}", lambda walk=walk: walk.go(STEPS))  # type: ignore[misc]
    twins.findings.check()


def test_random_walks_of_offsets_and_members(twins: Twins) -> None:
    for seed in seeds(WALKS // 2):
        walk = Offsets(twins, random.Random(seed), f"offsets-{twins.level}-{seed}")
        twins.play(f"walk {seed}", lambda walk=walk: walk.go(STEPS))  # type: ignore[misc]
    twins.findings.check()


def test_every_request_after_a_time_out(twins: Twins) -> None:
    for title, scenario in Timeouts(twins, f"timeouts-{twins.level}").all():
        twins.play(title, scenario)
    twins.findings.check()


def test_random_walks_around_the_last_epoch(twins: Twins) -> None:
    prefixes = [f"epochs-{twins.level}-{seed}" for seed in seeds(DRIVEN)]
    with ThreadPoolExecutor(4) as pool:
        driven = [
            pool.submit(drive, address, f"{prefix}-0", LAST - seed % 4)
            for address in twins.addresses
            for seed, prefix in zip(seeds(DRIVEN), prefixes, strict=True)
        ]
        for each in driven:
            each.result()
    for seed, prefix in zip(seeds(DRIVEN), prefixes, strict=True):
        walk = Epochs(twins, random.Random(seed), prefix)
        twins.play(f"walk {seed}", lambda walk=walk: walk.go(STEPS))  # type: ignore[misc]
    twins.findings.check()


def test_random_walks_in_which_the_level_changes(nodes: TwoNodes) -> None:
    twins = Twins(nodes, 2, EXPLANATIONS)
    for seed in seeds(WALKS // 4):
        chance = random.Random(seed)
        twins.play(f"walk {seed}", lambda s=seed, c=chance: Levels(twins, c, f"levels-{s}").go(STEPS))  # type: ignore[misc]
    twins.findings.check()


def test_expired_ids_and_two_phase_commits() -> None:
    with two_nodes({**SETTINGS, **EXPIRING}, only_kafka=UNSTABLE) as nodes:
        nodes.make_topics(TOPICS)
        for level in (2, 1):
            twins = Twins(nodes, level, EXPLANATIONS)
            for title, scenario in Expiry(twins, f"expired-{level}").all():
                twins.play(title, scenario)
            for seed in seeds(WALKS // 2):
                walk = TwoPhase(twins, random.Random(seed), f"two-phase-{level}-{seed}")
                twins.play(f"two-phase walk {seed}", lambda walk=walk: walk.go(STEPS))  # type: ignore[misc]
            twins.findings.check()
