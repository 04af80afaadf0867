"""Fetch sessions compared request by request: random walks of several readers over several topics.

Nothing is explained here: every answer is the same, with its partitions in the same order.
"""

from __future__ import annotations

import pytest
from tests.compare.fetch_sessions.steps import Node
from tests.compare.fetch_sessions.walk import walk
from tests.compare.nodes.comparison import Comparison, Findings
from tests.compare.nodes.leader import Leader
from tests.compare.nodes.two_nodes import two_nodes
from tests.seeds import seeds

WALKS = 120
STEPS = 80


@pytest.mark.compare
def test_every_answer_in_a_session_is_apache_kafkas() -> None:
    findings = Findings({})
    with two_nodes() as both:
        kafka, ours = (Node(Leader(address)) for address in both.addresses)
        for seed in seeds(WALKS):
            for node in (kafka, ours):
                node.begin(f"sessions-{seed}")
            Comparison(f"walk {seed}", (kafka, ours), findings, at_answers=True).go(walk(seed, STEPS))
    findings.check()
