"""The results of a pure decision: a refusal, a transition to write, or that it is done already.

A decision is a function of (transaction, request, now); it never touches a clock, a file or a socket.  The coordinator
appends what it says, holds it in memory, and answers.
"""

from __future__ import annotations

from enum import Enum
from typing import Final, NamedTuple

from fencepost.coordinator.transaction.transaction import TransactionMetadata
from fencepost.protocol.errors import ErrorCode
from fencepost.protocol.types import NO_EPOCH, NO_PRODUCER, NO_PRODUCER_ID, Epoch, ProducerId, ProducerIdAndEpoch


class Refusal(NamedTuple):
    """The error; nothing changes.  `timed_out`: the caller's pair is the one that the server timed out (KIP-588)."""

    error: ErrorCode
    timed_out: bool = False


class Unchanged(NamedTuple):
    """Success, and nothing to write: it was done before."""

    producer_id: ProducerId = NO_PRODUCER_ID
    producer_epoch: Epoch = NO_EPOCH
    timed_out: bool = False
    #: The open transaction that was kept for the caller to end (KIP-939).
    ongoing: ProducerIdAndEpoch = NO_PRODUCER


class Transition(NamedTuple):
    """Append `to`, hold it, then answer `error` (a fence succeeds and is answered 51) or the pair."""

    to: TransactionMetadata
    error: ErrorCode = ErrorCode.NONE
    producer_id: ProducerId = NO_PRODUCER_ID
    producer_epoch: Epoch = NO_EPOCH
    #: The open transaction that was kept for the caller to end (KIP-939).
    ongoing: ProducerIdAndEpoch = NO_PRODUCER


class NeedsProducerId(Enum):
    """The decision cannot be made without a fresh producer id, since the epoch is exhausted: ask again with one."""

    NEEDED = "a fresh producer id"


NEEDS_PRODUCER_ID: Final = NeedsProducerId.NEEDED

Decision = Refusal | Unchanged | Transition
