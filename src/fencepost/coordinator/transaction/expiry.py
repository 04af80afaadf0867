"""Forget transactional ids that nobody used for transactional.id.expiration.ms (facts §1.9).

A producer that comes back later gets INVALID_PRODUCER_ID_MAPPING, and by InitProducerId with its old pair a new
producer id (KIP-360).
"""

from __future__ import annotations

from fencepost.coordinator.transaction.state import IDLE
from fencepost.coordinator.transaction.transaction import TransactionMetadata
from fencepost.protocol.types import Milliseconds


def is_expired(transaction: TransactionMetadata, expiration_ms: Milliseconds, now: Milliseconds) -> bool:
    """Whether the id has nothing open, nothing pending, and was not touched for so long."""
    return (
        transaction.state in IDLE
        and transaction.pending is None
        and transaction.last_update_timestamp <= now - expiration_ms
    )
