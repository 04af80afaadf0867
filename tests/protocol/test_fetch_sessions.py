"""Epochs of fetch sessions."""

from __future__ import annotations

from fencepost.protocol.fetch_sessions import LAST_SESSION_EPOCH, next_epoch


def test_epochs_begin_again_at_1() -> None:
    assert [next_epoch(each) for each in (1, LAST_SESSION_EPOCH - 1, LAST_SESSION_EPOCH)] == [2, LAST_SESSION_EPOCH, 1]
