"""Counters, with Apache Kafka's names where it has one."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field


@dataclass
class Metrics:
    """Counted since the start of the node."""

    requests: Counter[int] = field(default_factory=Counter)
    verification_failures: int = 0
    """VerificationFailureRate: partitions whose transaction could not be verified (KIP-890)."""
    verifications: int = 0
    verification_time_ms: float = 0.0
    """VerificationTimeMs, summed up."""
