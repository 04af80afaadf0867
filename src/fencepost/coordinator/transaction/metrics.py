"""What the coordinator counts."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(slots=True)
class TransactionMetrics:
    """Counters since the start; each only grows."""

    initialized: int = 0
    """Producer ids and epochs handed out for a transactional id."""
    committed: int = 0
    """Decisions; as with `aborted`."""
    aborted: int = 0
    """Also by fencing or time-out, which are counted beside it."""
    fenced: int = 0
    """Open transactions that another InitProducerId aborted."""
    timed_out: int = 0
    expired: int = 0
    """Transactional ids forgotten."""
    loaded: int = 0
    """Transactional ids read at load."""
