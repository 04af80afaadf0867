"""A few of the random histories, the same ones in every run; tests/soak takes many others."""

from __future__ import annotations

import sys
from pathlib import Path

from hypothesis import settings

sys.path.insert(0, str(Path(__file__).parent))

from transaction_histories import TwoCoordinators

TwoCoordinators.TestCase.settings = settings(max_examples=120, stateful_step_count=40)
TestTwoCoordinators = TwoCoordinators.TestCase
