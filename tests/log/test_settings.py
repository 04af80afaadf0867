"""What follows from the settings of a log."""

from __future__ import annotations

import pytest

from fencepost.log.settings import LONG, LogSettings
from fencepost.protocol.types import Milliseconds


@pytest.mark.parametrize(
    ("policy", "lag", "longest"),
    [
        ("delete", 5, 1000),
        ("compact", 5, 5),
        ("compact", 5000, 1000),
        ("compact", LONG, 1000),
        ("compact,delete", 5, 5),
        ("", 5, 1000),
    ],
)
def test_compaction_waits_no_longer_for_a_segment_than_its_lag(policy: str, lag: Milliseconds, longest: int) -> None:
    settings = LogSettings(segment_ms=Milliseconds(1000), max_compaction_lag_ms=lag, cleanup_policy=policy)
    assert settings.longest_segment_ms == longest
    assert settings.with_(segment_ms=3).longest_segment_ms == 3
    assert settings.is_compacted is ("compact" in policy)
