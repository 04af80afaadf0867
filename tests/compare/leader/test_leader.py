"""Partition leaders compared request by request: written scenarios and random walks, at every transaction.version.

After every step both nodes are asked for producers, ends and content of both partitions; they differ only where
`fencepost.broker.differences` says so.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from itertools import groupby

import pytest
from benchmarks.apache_kafka import NoPeer, apache_kafka
from tests.compare.leader.comparison import Comparison
from tests.compare.leader.explanations import EXPLANATIONS
from tests.compare.leader.nodes import Leader
from tests.compare.leader.scenario import ID, Scenario
from tests.compare.leader.tables import scenarios
from tests.compare.leader.walk import IDS, walk
from tests.seeds import seeds

from fencepost.broker import running_broker
from fencepost.broker.differences import DIFFERENCES
from fencepost.client.blocking import Admin

WALKS = 200
STEPS = 40
INTERNAL = ("__consumer_offsets", "__transaction_state")
VERIFICATION = "transaction.partition.verification.enable"

#: transaction.version, and whether a leader verifies with the coordinator
CONFIGURATIONS = [(2, True), (1, True), (0, True), (2, False), (0, False)]


@contextmanager
def both(level: int, verified: bool) -> Iterator[Comparison]:
    """Apache Kafka and Fencepost, set up alike."""
    settings = {VERIFICATION: str(verified).lower()}
    try:
        features = {"transaction.version": level}
        with apache_kafka(settings, features) as (theirs, _), running_broker(settings=settings) as broker:
            ours = f"{broker.host}:{broker.port}"
            with Admin(ours) as admin:
                admin.update_feature("transaction.version", level)
            nodes = Leader(theirs), Leader(ours)
            for node in nodes:
                node.prepare()
                for topic in INTERNAL:
                    node.learn(topic)
            yield Comparison(*nodes, level, EXPLANATIONS)
    except NoPeer as reason:
        pytest.skip(str(reason))


def judge(comparison: Comparison) -> None:
    print(f"{comparison.steps} steps; explained: {comparison.explained}")
    faults = comparison.faults
    assert not faults, f"{len(faults)} steps differ; the first ones:\n" + "\n".join(faults[:5])


@pytest.mark.compare
@pytest.mark.parametrize(("level", "verified"), CONFIGURATIONS)
def test_every_scenario_is_answered_as_apache_kafka_answers_it(level: int, verified: bool) -> None:
    def configs(scenario: Scenario) -> tuple[tuple[str, str], ...]:
        return scenario.configs

    with both(level, verified) as comparison:
        for settings, alike in groupby(sorted(scenarios(level), key=configs), key=configs):
            topics = {f"scenario-{abs(hash(settings))}-{n}": scenario for n, scenario in enumerate(alike)}
            for node in (comparison.kafka, comparison.ours):
                node.make(list(topics), **dict(settings))
            for topic, scenario in topics.items():
                comparison.run(scenario.name, topic, [f"{topic}-{ID}"], iter(scenario.steps), settings)
        judge(comparison)


@pytest.mark.compare
@pytest.mark.parametrize(("level", "verified"), CONFIGURATIONS)
def test_every_step_of_a_walk_is_answered_as_apache_kafka_answers_it(level: int, verified: bool) -> None:
    with both(level, verified) as comparison:
        topics = [f"walk-{seed}" for seed in seeds(WALKS)]
        for node in (comparison.kafka, comparison.ours):
            node.make(topics)
        for seed, topic in zip(seeds(WALKS), topics, strict=True):
            ids = [f"{topic}-{name}" for name in IDS]
            comparison.run(f"walk {seed}", topic, ids, walk(seed, STEPS, level))
        judge(comparison)


def test_every_difference_of_a_leader_names_its_source() -> None:
    assert all(entry.source and entry.reason and entry.kafka != entry.ours for entry in DIFFERENCES)
