"""Counters of one node since its start: requests by API, and the verification of transactions (KIP-890)."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field


@dataclass
class Counters:
    """Counted since the start of the node; `fencepost.broker.metrics` gives them Apache Kafka's names."""

    requests: Counter[int] = field(default_factory=Counter)
    verification_failures: int = 0
    """VerificationFailureRate: partitions whose transaction could not be verified (KIP-890)."""
    verifications: int = 0
    verification_time_ms: float = 0.0
    """VerificationTimeMs, summed up."""
    longest_verification_ms: float = 0.0

    def verified(self, failures: int, milliseconds: float) -> None:
        """Count one question to a coordinator about a write: the partitions that it did not vouch for, and the time."""
        self.verifications += 1
        self.verification_failures += failures
        self.verification_time_ms += milliseconds
        self.longest_verification_ms = max(self.longest_verification_ms, milliseconds)
