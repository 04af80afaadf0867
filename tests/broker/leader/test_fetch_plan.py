"""A reader that knows another leader epoch than the partition has is told which of them is behind."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

import pytest

from fencepost.broker.leader.fetch_plan import _check_epoch
from fencepost.protocol.errors import ErrorCode


@pytest.mark.parametrize(
    ("known", "error"),
    [
        (-1, None),
        (0, ErrorCode.FENCED_LEADER_EPOCH),
        (4, ErrorCode.FENCED_LEADER_EPOCH),
        (5, None),
        (6, ErrorCode.UNKNOWN_LEADER_EPOCH),
    ],
)
def test_only_the_epoch_of_now_is_read_by(known: int, error: ErrorCode | None) -> None:
    partition: Any = SimpleNamespace(leader_epoch=5)
    assert _check_epoch(known, cast(Any, partition)) is (error or partition)
