"""A query with state while everything that has a part in it fails: drawn from a seed, audited by another's client.

The default run sees each kind of failure once; `make soak` has minutes of it.  One run by hand:
python -m tests.spark.chaos SEED FAULTS PLAN STORE FOLDER.
"""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.seeds import seeds
from tests.spark.chaos import KINDS, Chaos, faults
from tests.spark.stateful_query import KEPT


def test_a_query_writes_what_it_is_to_though_everything_fails_once(tmp_path: Path) -> None:
    chaos = Chaos("running counts", "default", tmp_path, batches=2)
    chaos.run(faults(0, len(KINDS), batches=1))
    assert chaos.lives > 2 and chaos.lost, chaos


@pytest.mark.soak
@pytest.mark.parametrize("seed", seeds(2))
@pytest.mark.parametrize(("plan", "store"), KEPT)
def test_a_query_writes_what_it_is_to_though_everything_fails_again_and_again(
    plan: str, store: str, seed: int, tmp_path: Path
) -> None:
    """Some minutes each."""
    chaos = Chaos(plan, store, tmp_path)
    chaos.run(faults(seed, 4 * len(KINDS)))
    assert chaos.lives > 2 and chaos.lost, chaos
