"""Random histories of one transactional id, other ones in every run."""

from __future__ import annotations

import pytest
from hypothesis import settings
from hypothesis.stateful import run_state_machine_as_test
from tests.coordinator.transaction.transaction_histories import TwoCoordinators


@pytest.mark.soak
def test_a_coordinator_that_moves_answers_as_one_that_stays() -> None:
    others = settings(max_examples=3_000, stateful_step_count=50, derandomize=False)
    run_state_machine_as_test(TwoCoordinators, settings=others)
