"""Settings of the transaction coordinator, with Apache Kafka's names and defaults (facts §4.6)."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from fencepost.protocol.types import Milliseconds


def _newest() -> int:
    return 2


@dataclass(frozen=True, slots=True)
class TransactionSettings:
    """The settings of the transaction coordinator.  Times in milliseconds; `partitions`: of `__transaction_state`."""

    #: transaction.max.timeout.ms
    max_timeout_ms: Milliseconds = Milliseconds(900_000)
    #: transactional.id.expiration.ms
    id_expiration_ms: Milliseconds = Milliseconds(604_800_000)
    #: transaction.remove.expired.transaction.cleanup.interval.ms
    expiry_interval_ms: Milliseconds = Milliseconds(3_600_000)
    #: transaction.state.log.num.partitions; must never change while there is state
    partitions: int = 50
    #: transaction.two.phase.commit.enable
    two_phase_commit: bool = False
    #: The finalized feature level of transaction.version (0, 1 or 2), asked anew each time.
    transaction_version: Callable[[], int] = _newest
