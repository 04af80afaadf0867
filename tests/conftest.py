"""The same examples in every run, however slow the machine is; tests/soak looks at others every time."""

from __future__ import annotations

import pytest
from hypothesis import settings

from fencepost.node_log import LIMIT

settings.register_profile("steady", deadline=None, derandomize=True)
settings.load_profile("steady")


@pytest.fixture(autouse=True)
def nothing_said_before() -> None:
    """What earlier tests wrote to the log does not count against the limits of its lines."""
    LIMIT.forget()
