"""End an open transaction that its producer does not end: its time is up, or the server was told to.

The epoch is bumped, so that the producer cannot go on with it, and the pair is remembered, so that the producer is told
of the time-out until another instance takes over (KIP-588).  A two-phase commit never times out (KIP-939).  Facts §4.1.
"""

from __future__ import annotations

from typing import Final, Literal

from fencepost.coordinator.transaction.decision import NEEDS_PRODUCER_ID, NeedsProducerId, Transition
from fencepost.coordinator.transaction.prepare import fence
from fencepost.coordinator.transaction.state import State
from fencepost.coordinator.transaction.transaction import TransactionMetadata
from fencepost.protocol.types import Milliseconds, ProducerId

#: How long to wait before a time-out that could not be carried out is tried again.
TIMEOUT_RETRY_MS: Final = 100


def is_due(transaction: TransactionMetadata, now: Milliseconds) -> bool:
    """Whether the open transaction's time is up: later than its deadline, as in Apache Kafka, not at it."""
    deadline = transaction.deadline
    return deadline is not None and deadline < now


def time_out(
    transaction: TransactionMetadata, level: int, now: Milliseconds, fresh: ProducerId | None = None
) -> Transition | Literal[NeedsProducerId.NEEDED]:
    """Fence the producer and abort.  `level`: the cluster's transaction.version, for the server starts this itself."""
    assert transaction.state is State.ONGOING, "only an open transaction times out"
    assert transaction.pending is None, "a transaction that is being ended does not time out"
    fenced = fence(transaction, level, now, fresh, timed_out=True)
    return fenced if fenced is NEEDS_PRODUCER_ID else Transition(fenced)
