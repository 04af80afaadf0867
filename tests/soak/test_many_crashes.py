"""The simulated crashes of many seeds, at every level of the protocol."""

from __future__ import annotations

import pytest
from tests.seeds import seeds

from fencepost.simulation.crashes import crash_again_and_again


@pytest.mark.soak
@pytest.mark.parametrize("level", [2, 1, 0])
def test_no_seed_breaks_a_promise(level: int) -> None:
    for seed in seeds(100):
        report = crash_again_and_again(seed, 30, producers=1 + seed % 5, transaction_version=level)
        assert report.faults == [], f"seed {seed}"
