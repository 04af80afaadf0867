"""Queries of Spark that keep state, killed with their Java at every step of a micro-batch, with every state store."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.spark.killed_queries import killed_at
from tests.spark.stateful_query import KEPT

pytestmark = pytest.mark.soak

#: Before the commit; before it, and again after it; between the commit and Spark's own file of it, twice; after that
#: file; and while state is made up for in a batch that is skipped.
DEEDS = ("written:1", "written:2", "committed:2", "committed:3", "skipped:3", "begun:4", "committed:4")


@pytest.mark.parametrize(("plan", "store"), KEPT)
def test_a_query_with_state_that_is_killed_at_every_step_writes_what_it_is_to(
    plan: str, store: str, tmp_path: Path
) -> None:
    """Some minutes each."""
    lives = killed_at(DEEDS, plan, store, tmp_path)
    assert [life[-1].replace(" ", ":") for life in lives[:-1]] == list(DEEDS)
    assert (lives[3][1], lives[5][1], lives[7][1]) == ("skipped 2", "skipped 3", "skipped 4")
