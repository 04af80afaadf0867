"""Counters of the transaction coordinator since the start of the node."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(slots=True)
class TransactionMetrics:
    """Counters since the start; each only grows."""

    initialized: int = 0
    """Producer ids and epochs handed out for a transactional id."""
    committed: int = 0
    """Transactions committed; counted when it is decided, like `aborted`."""
    aborted: int = 0
    """Transactions aborted, by whomever: those that were fenced or timed out are counted here, too."""
    fenced: int = 0
    """Transactions aborted by another InitProducerId while they were open."""
    timed_out: int = 0
    expired: int = 0
    """Transactional ids forgotten."""
    loaded: int = 0
    """Transactional ids read at load."""
