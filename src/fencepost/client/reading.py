"""What and from where a consumer reads, by the names of its settings."""

from __future__ import annotations

from typing import Final

from fencepost.client.fetcher import EARLIEST, LATEST
from fencepost.protocol.types import Isolation

_ISOLATIONS: Final = {
    "read_committed": Isolation.READ_COMMITTED,
    "read_uncommitted": Isolation.READ_UNCOMMITTED,
}
_RESETS: Final = {"earliest": EARLIEST, "latest": LATEST, "error": None}


def isolation_of(isolation_level: str) -> Isolation:
    """Raises ValueError."""
    if isolation_level not in _ISOLATIONS:
        raise ValueError(f"isolation_level={isolation_level!r}: it must be one of {', '.join(_ISOLATIONS)}")
    return _ISOLATIONS[isolation_level]


def reset_of(auto_offset_reset: str) -> int | None:
    """Where to begin without a position; None: nowhere, it is an error.  Raises ValueError."""
    if auto_offset_reset not in _RESETS:
        raise ValueError(f"auto_offset_reset={auto_offset_reset!r}: it must be one of {', '.join(_RESETS)}")
    return _RESETS[auto_offset_reset]
