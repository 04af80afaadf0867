"""Both nodes, one of them, and the levels of transaction.version."""

from __future__ import annotations

import uuid
from collections.abc import Iterator

import pytest
from tests.compare.client.playing import Node
from tests.compare.nodes.two_nodes import SIDES, TwoNodes, two_nodes

LEVELS = (1, 2)


@pytest.fixture(scope="module")
def both() -> Iterator[TwoNodes]:
    with two_nodes({"group.initial.rebalance.delay.ms": "0"}) as nodes:
        yield nodes


@pytest.fixture(params=LEVELS)
def level(both: TwoNodes, request: pytest.FixtureRequest) -> int:
    """Of transaction.version, on both nodes."""
    found: int = request.param
    both.set_level(found)
    return found


@pytest.fixture(params=SIDES, ids=("kafka", "fencepost"))
def node(both: TwoNodes, request: pytest.FixtureRequest) -> Node:
    return Node(both.on(request.param).bootstrap, f"t-{uuid.uuid4().hex[:8]}")
