"""Counters, with Apache Kafka's names where it has one."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

_VERIFICATION: Final = "kafka.server:type=AddPartitionsToTxnManager,name="


@dataclass
class Metrics:
    """Counted since the start of the node."""

    requests: Counter[int] = field(default_factory=Counter)
    verification_failures: int = 0
    """VerificationFailureRate: partitions whose transaction could not be verified (KIP-890)."""
    verifications: int = 0
    verification_time_ms: float = 0.0
    """VerificationTimeMs, summed up."""
    longest_verification_ms: float = 0.0

    def verified(self, failures: int, milliseconds: float) -> None:
        """A coordinator was asked about the partitions of one write."""
        self.verifications += 1
        self.verification_failures += failures
        self.verification_time_ms += milliseconds
        self.longest_verification_ms = max(self.longest_verification_ms, milliseconds)

    def by_name(self) -> Mapping[str, float]:
        """What there is, as Apache Kafka's beans and their attributes are called (KIP-890, new metrics)."""
        return {
            f"{_VERIFICATION}VerificationFailureRate:Count": self.verification_failures,
            f"{_VERIFICATION}VerificationTimeMs:Count": self.verifications,
            f"{_VERIFICATION}VerificationTimeMs:Mean": self.verification_time_ms / max(self.verifications, 1),
            f"{_VERIFICATION}VerificationTimeMs:Max": self.longest_verification_ms,
        }
