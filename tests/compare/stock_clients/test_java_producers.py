"""Parallel transactional Java producers, every send awaited before its commit, meet no error at all."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest
from benchmarks.fencepost_node import fencepost_node

SOURCE = Path(__file__).parents[3] / "benchmarks" / "java" / "Transactions.java"


@pytest.mark.compare
@pytest.mark.parametrize("producers", [8, 32])
def test_parallel_java_producers_meet_no_error(kafka_tool: Callable[..., str], producers: int) -> None:
    with fencepost_node() as (bootstrap, _, _):
        figures = json.loads(kafka_tool(str(SOURCE), bootstrap, str(producers), "1000", f"java-{producers}"))
    assert figures["errors"] == 0
