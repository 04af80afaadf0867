"""OffsetForLeaderEpoch (23): who is behind is told to whoever knows another leader epoch than the partition's."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from fencepost.broker.apis.offset_for_leader_epoch import _one
from fencepost.protocol.errors import ErrorCode
from fencepost.protocol.messages.offset_for_leader_epoch import OffsetForLeaderPartition


@pytest.mark.parametrize(
    ("known", "error"),
    [
        (-1, ErrorCode.NONE),
        (0, ErrorCode.FENCED_LEADER_EPOCH),
        (4, ErrorCode.FENCED_LEADER_EPOCH),
        (5, ErrorCode.NONE),
        (6, ErrorCode.UNKNOWN_LEADER_EPOCH),
    ],
)
def test_whose_leader_epoch_is_older_is_fenced_and_whose_is_newer_is_before_its_time(
    known: int, error: ErrorCode
) -> None:
    partition = SimpleNamespace(leader_epoch=5, end_offset_for_epoch=lambda epoch: (epoch, 42))
    node: Any = SimpleNamespace(storage=SimpleNamespace(partition=lambda *_: partition))
    context: Any = SimpleNamespace(may=lambda *_: True)
    wanted = OffsetForLeaderPartition(partition=0, current_leader_epoch=known, leader_epoch=3)
    found = _one("t", context, node, wanted)
    assert found.error_code == error
    assert (found.leader_epoch, found.end_offset) == ((-1, -1) if error else (3, 42))
