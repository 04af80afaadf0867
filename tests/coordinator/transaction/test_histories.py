"""A few of the random histories, the same ones in every run; tests/soak takes many others."""

from __future__ import annotations

from hypothesis import settings
from tests.coordinator.transaction.transaction_histories import TwoCoordinators

TwoCoordinators.TestCase.settings = settings(max_examples=120, stateful_step_count=40)
TestTwoCoordinators = TwoCoordinators.TestCase
