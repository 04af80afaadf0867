"""Fetch sessions compared request by request: random walks of several readers over several topics.

Nothing is explained here: every answer is the same, with its partitions in the same order.
"""

from __future__ import annotations

import itertools

import pytest
from benchmarks.apache_kafka import NoPeer, apache_kafka
from tests.compare.fetch_sessions.steps import Node
from tests.compare.fetch_sessions.walk import walk
from tests.compare.leader.nodes import Leader
from tests.seeds import seeds

from fencepost.broker import running_broker

WALKS = 120
STEPS = 80


@pytest.mark.compare
def test_every_answer_in_a_session_is_apache_kafkas() -> None:
    try:
        with apache_kafka() as (theirs, _), running_broker() as broker:
            nodes = [Node(Leader(theirs)), Node(Leader(f"{broker.host}:{broker.port}"))]
            for node in nodes:
                node.leader.prepare()
            faults, steps = [], 0
            for seed in seeds(WALKS):
                for node in nodes:
                    node.begin(f"sessions-{seed}")
                for number, (step, walking) in zip(itertools.count(1), walk(seed, STEPS), strict=False):
                    kafka, ours = (step.take(node) for node in nodes)
                    steps += 1
                    if kafka != ours:
                        faults.append(f"walk {seed}, step {number}: {step}\n    kafka {kafka}\n    fencepost {ours}")
                        break
                    walking.saw(step, kafka)
            print(f"{steps} steps")
            assert not faults, f"{len(faults)} of {WALKS} walks differ; the first ones:\n" + "\n".join(faults[:5])
    except NoPeer as reason:
        pytest.skip(str(reason))
