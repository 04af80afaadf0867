"""Partition leaders compared request by request: written scenarios and random walks, at every transaction.version.

After every step both nodes are asked for producers, ends and content of both partitions; they differ only where
`fencepost.broker.differences` says so.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from itertools import groupby

import pytest
from tests.compare.leader.explanations import EXPLANATIONS
from tests.compare.leader.scenario import ID, Scenario
from tests.compare.leader.tables import scenarios
from tests.compare.leader.walk import IDS, walk
from tests.compare.nodes.comparison import Comparison, Findings, Plain
from tests.compare.nodes.leader import Leader
from tests.compare.nodes.two_nodes import two_nodes
from tests.seeds import seeds

from fencepost.broker.differences import DIFFERENCES

Leaders = tuple[Leader, Leader]
Configs = tuple[tuple[str, str], ...]

WALKS = 200
STEPS = 40
INTERNAL = ("__consumer_offsets", "__transaction_state")
VERIFICATION = "transaction.partition.verification.enable"

#: transaction.version, and whether a leader verifies with the coordinator
CONFIGURATIONS = [(2, True), (1, True), (0, True), (2, False), (0, False)]


@contextmanager
def both(level: int, verified: bool) -> Iterator[Leaders]:
    """Apache Kafka and Fencepost, set up alike, as leaders."""
    with two_nodes({VERIFICATION: str(verified).lower()}, level) as nodes:
        kafka, ours = (Leader(address) for address in nodes.addresses)
        for node in (kafka, ours):
            for topic in INTERNAL:
                node.learn(topic)
        yield kafka, ours


def compare(
    leaders: Leaders, title: str, topic: str, ids: Sequence[str], findings: Findings, configs: Configs = ()
) -> Comparison[Leader]:
    """Of a walk or scenario on a topic, with producers of these ids and one without."""
    for node in leaders:
        node.open(topic, ids, 1)
    packed = bool(set(configs) & {("compression_type", "lz4"), ("compression_type", "zstd")})
    shared = without_sizes if packed else None
    return Comparison(title, leaders, findings, lambda node: node.observe(ids), shared, configs)


def without_sizes(value: Plain) -> Plain:
    """A state without the sizes of batches that two libraries compressed, each in its own way."""
    if isinstance(value, dict) and "content" in value:
        for partition in value["content"]["partitions"]:
            for batch in partition["records"] or ():
                del batch["size"]
    return value


@pytest.mark.compare
@pytest.mark.parametrize(("level", "verified"), CONFIGURATIONS)
def test_every_scenario_is_answered_as_apache_kafka_answers_it(level: int, verified: bool) -> None:
    def configs(scenario: Scenario) -> Configs:
        return scenario.configs

    findings = Findings(EXPLANATIONS, level)
    with both(level, verified) as leaders:
        for settings, alike in groupby(sorted(scenarios(level), key=configs), key=configs):
            topics = {f"scenario-{abs(hash(settings))}-{n}": scenario for n, scenario in enumerate(alike)}
            for node in leaders:
                node.make(list(topics), **dict(settings))
            for topic, scenario in topics.items():
                compare(leaders, scenario.name, topic, [f"{topic}-{ID}"], findings, settings).go(scenario.steps)
    findings.check()


@pytest.mark.compare
@pytest.mark.parametrize(("level", "verified"), CONFIGURATIONS)
def test_every_step_of_a_walk_is_answered_as_apache_kafka_answers_it(level: int, verified: bool) -> None:
    findings = Findings(EXPLANATIONS, level)
    with both(level, verified) as leaders:
        topics = [f"walk-{seed}" for seed in seeds(WALKS)]
        for node in leaders:
            node.make(topics)
        for seed, topic in zip(seeds(WALKS), topics, strict=True):
            ids = [f"{topic}-{name}" for name in IDS]
            compare(leaders, f"walk {seed}", topic, ids, findings).go(walk(seed, STEPS, level))
    findings.check()


def test_every_difference_of_a_leader_names_its_source() -> None:
    assert all(entry.source and entry.reason and entry.kafka != entry.ours for entry in DIFFERENCES)
