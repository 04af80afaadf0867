"""Commit or abort a transaction (EndTxn).

Below v5 the epoch does not move, so a delayed duplicate may end the *next* transaction (KAFKA-17754); that is what v5
is for.  From v5 on every end bumps the epoch (KIP-890 part 2), and a caller one bump behind is repeating the request
that bumped it.

The first check that fails decides (facts §3.7, §3.8):

=========================  =================================  =====================================================
check                      v0-4                               v5
=========================  =================================  =====================================================
something is pending       51, after the pair                 51, before the pair (KAFKA-18660)
another producer id        49                                 49, unless it repeats the end that rotated the id
epoch                      90 unless it is the current one    EMPTY, ONGOING: the current one; PREPARE_*: the one
                                                              before; COMPLETE_*: either; else 90.  The one before is
                                                              90 too if it is an older instance's, see below
state and outcome          OUTCOMES                           OUTCOMES_BUMPING
=========================  =================================  =====================================================

The pair that the server timed out (KIP-588) is told so: an abort is a success, for the transaction is aborted; a commit
by v5 gets 120 TRANSACTION_ABORTABLE, an older one what Apache Kafka answers.

Where clients of v4 and of v5 share an id, the pair before the current one may be an instance's that was fenced: it must
not be given its successor's pair for a repetition of what it never did (KIP-360 instance epoch).
"""

from __future__ import annotations

from enum import Enum
from typing import Final, Literal, NamedTuple

from fencepost.coordinator.transaction.decision import (
    NEEDS_PRODUCER_ID,
    Decision,
    NeedsProducerId,
    Refusal,
    Transition,
    Unchanged,
)
from fencepost.coordinator.transaction.prepare import complete, prepare
from fencepost.coordinator.transaction.state import State
from fencepost.coordinator.transaction.transaction import TransactionMetadata
from fencepost.protocol.errors import ErrorCode
from fencepost.protocol.types import LAST_CLIENT_EPOCH, Epoch, Milliseconds, ProducerId

FIRST_BUMPING_VERSION: Final = 5


class Outcome(Enum):
    """The outcomes of an accepted EndTxn; any other is refused with an error code."""

    PREPARE = "decide, and write the markers"
    PREPARE_EMPTY = "abort what never began: nothing to mark, but the epoch is bumped"
    DONE = "it was done before: success with the current pair"


class EpochRelation(Enum):
    """The relation of the caller's epoch to the current one."""

    CURRENT = "the current pair"
    REPEATING = "the pair that the last end bumped"


_CONCURRENT, _INVALID, _FENCED = (
    ErrorCode.CONCURRENT_TRANSACTIONS,
    ErrorCode.INVALID_TXN_STATE,
    ErrorCode.PRODUCER_FENCED,
)

#: (state, commit?) -> what happens below v5, for the current pair.
OUTCOMES: dict[tuple[State, bool], Outcome | ErrorCode] = {
    (State.EMPTY, True): _INVALID,
    (State.EMPTY, False): _INVALID,
    (State.ONGOING, True): Outcome.PREPARE,
    (State.ONGOING, False): Outcome.PREPARE,
    (State.PREPARE_COMMIT, True): _CONCURRENT,
    (State.PREPARE_COMMIT, False): _INVALID,
    (State.PREPARE_ABORT, True): _INVALID,
    (State.PREPARE_ABORT, False): _CONCURRENT,
    (State.COMPLETE_COMMIT, True): Outcome.DONE,
    (State.COMPLETE_COMMIT, False): _INVALID,
    (State.COMPLETE_ABORT, True): _INVALID,
    (State.COMPLETE_ABORT, False): Outcome.DONE,
}

#: (state, commit?, caller) -> what happens from v5 on.
OUTCOMES_BUMPING: dict[tuple[State, bool, EpochRelation], Outcome | ErrorCode] = {
    (State.EMPTY, True, EpochRelation.CURRENT): _INVALID,
    (State.EMPTY, True, EpochRelation.REPEATING): _FENCED,
    (State.EMPTY, False, EpochRelation.CURRENT): Outcome.PREPARE_EMPTY,
    (State.EMPTY, False, EpochRelation.REPEATING): _FENCED,
    (State.ONGOING, True, EpochRelation.CURRENT): Outcome.PREPARE,
    (State.ONGOING, True, EpochRelation.REPEATING): _FENCED,
    (State.ONGOING, False, EpochRelation.CURRENT): Outcome.PREPARE,
    (State.ONGOING, False, EpochRelation.REPEATING): _FENCED,
    (State.PREPARE_COMMIT, True, EpochRelation.CURRENT): _FENCED,
    (State.PREPARE_COMMIT, True, EpochRelation.REPEATING): _CONCURRENT,
    (State.PREPARE_COMMIT, False, EpochRelation.CURRENT): _FENCED,
    (State.PREPARE_COMMIT, False, EpochRelation.REPEATING): _INVALID,
    (State.PREPARE_ABORT, True, EpochRelation.CURRENT): _FENCED,
    (State.PREPARE_ABORT, True, EpochRelation.REPEATING): _INVALID,
    (State.PREPARE_ABORT, False, EpochRelation.CURRENT): _FENCED,
    (State.PREPARE_ABORT, False, EpochRelation.REPEATING): _CONCURRENT,
    (State.COMPLETE_COMMIT, True, EpochRelation.CURRENT): _INVALID,
    (State.COMPLETE_COMMIT, True, EpochRelation.REPEATING): Outcome.DONE,
    (State.COMPLETE_COMMIT, False, EpochRelation.CURRENT): Outcome.PREPARE_EMPTY,
    (State.COMPLETE_COMMIT, False, EpochRelation.REPEATING): _INVALID,
    (State.COMPLETE_ABORT, True, EpochRelation.CURRENT): _INVALID,
    (State.COMPLETE_ABORT, True, EpochRelation.REPEATING): _INVALID,
    (State.COMPLETE_ABORT, False, EpochRelation.CURRENT): Outcome.PREPARE_EMPTY,
    (State.COMPLETE_ABORT, False, EpochRelation.REPEATING): Outcome.DONE,
}


class End(NamedTuple):
    """An EndTxn request.  `version`: that of the API, which alone chooses the rules."""

    producer_id: ProducerId
    producer_epoch: Epoch
    commit: bool
    version: int

    @property
    def bumps(self) -> bool:
        return self.version >= FIRST_BUMPING_VERSION


def end(
    transaction: TransactionMetadata, request: End, now: Milliseconds, level: int, fresh: ProducerId | None = None
) -> Decision | Literal[NeedsProducerId.NEEDED]:
    """Decide what an EndTxn does.  `level`: the cluster's transaction.version; `fresh`: a producer id to rotate to."""
    if request.version >= FIRST_BUMPING_VERSION:
        return _end_bumping(transaction, request, now, level, fresh)
    return _end(transaction, request, now, fresh)


def _end(
    transaction: TransactionMetadata, request: End, now: Milliseconds, fresh: ProducerId | None
) -> Decision | Literal[NeedsProducerId.NEEDED]:
    current = transaction.current
    if (request.producer_id, request.producer_epoch) != current:
        if transaction.was_timed_out(request.producer_id, request.producer_epoch):
            return _end_timed_out(transaction, request)
        foreign = request.producer_id != current.producer_id
        return Refusal(ErrorCode.INVALID_PRODUCER_ID_MAPPING if foreign else ErrorCode.PRODUCER_FENCED)
    if transaction.pending not in (None, State.PREPARE_EPOCH_FENCE):
        return Refusal(ErrorCode.CONCURRENT_TRANSACTIONS)
    outcome = OUTCOMES[transaction.state, request.commit]
    if isinstance(outcome, ErrorCode):
        return Refusal(outcome)
    if outcome is Outcome.DONE:
        return Unchanged(*current)
    return _prepared(transaction, request.commit, 0, now, fresh)


def _end_bumping(
    transaction: TransactionMetadata, request: End, now: Milliseconds, level: int, fresh: ProducerId | None
) -> Decision | Literal[NeedsProducerId.NEEDED]:
    if transaction.pending not in (None, State.PREPARE_EPOCH_FENCE):
        return Refusal(ErrorCode.CONCURRENT_TRANSACTIONS)
    current = transaction.current
    timed_out = transaction.was_timed_out(request.producer_id, request.producer_epoch)
    if timed_out and (request.commit or transaction.is_prepared or current.producer_epoch <= LAST_CLIENT_EPOCH):
        return _end_timed_out(transaction, request)
    caller = EpochRelation.REPEATING if timed_out else relation(transaction, request)
    if isinstance(caller, ErrorCode):
        return Refusal(caller)
    outcome = OUTCOMES_BUMPING[transaction.state, request.commit, caller]
    if isinstance(outcome, ErrorCode):
        return Refusal(outcome)
    if outcome is Outcome.DONE and (request.commit or current.producer_epoch <= LAST_CLIENT_EPOCH):
        return Unchanged(*current)
    # What is left of DONE is an abort at epoch 32767, which no client may be given: abort once more, and rotate.
    began_bumping = transaction.state is State.ONGOING and transaction.client_transaction_version >= 2
    if level < 1 and not began_bumping:
        # What began before a downgrade may end as it began; nothing else has version 2 rules at level 0.
        return Refusal(ErrorCode.UNSUPPORTED_VERSION)
    return _prepared(transaction, request.commit, 2, now, fresh)


def relation(transaction: TransactionMetadata, request: End) -> EpochRelation | ErrorCode:
    """Whether a v5 caller holds the current pair, or the one before the last bump; or the error."""
    current = transaction.current
    rotated = (
        transaction.previous_producer_id == request.producer_id
        and request.producer_epoch == LAST_CLIENT_EPOCH
        and current.producer_epoch == 0
    )
    if request.producer_id != current.producer_id and not rotated:
        return ErrorCode.INVALID_PRODUCER_ID_MAPPING
    if rotated or (request.producer_epoch == current.producer_epoch - 1 and not _is_fenced(transaction, request)):
        return EpochRelation.REPEATING
    return EpochRelation.CURRENT if request.producer_epoch == current.producer_epoch else ErrorCode.PRODUCER_FENCED


def _is_fenced(transaction: TransactionMetadata, request: End) -> bool:
    """Whether the pair before the current one is not the last transaction's, but an older instance's.

    An end below v5 bumps nothing, so what is one behind it cannot repeat it.
    """
    return transaction.client_transaction_version < 2 and request.producer_epoch < transaction.instance_epoch


def _end_timed_out(transaction: TransactionMetadata, request: End) -> Refusal | Unchanged:
    """The answer to a caller whose transaction the server timed out, while nobody else has taken over."""
    current = transaction.current
    if request.commit and not request.bumps:
        foreign = request.producer_id != current.producer_id
        return Refusal(ErrorCode.INVALID_PRODUCER_ID_MAPPING if foreign else ErrorCode.PRODUCER_FENCED, timed_out=True)
    if transaction.pending is not None or transaction.is_prepared:
        return Refusal(ErrorCode.CONCURRENT_TRANSACTIONS, timed_out=True)
    if request.commit:
        return Refusal(ErrorCode.TRANSACTION_ABORTABLE, timed_out=True)
    return Unchanged(*current, timed_out=True)


def _prepared(
    transaction: TransactionMetadata,
    commit: bool,
    transaction_version: int,
    now: Milliseconds,
    fresh: ProducerId | None,
) -> Transition | Literal[NeedsProducerId.NEEDED]:
    prepared = prepare(transaction, commit, transaction_version, now, fresh)
    if prepared is NEEDS_PRODUCER_ID:
        return prepared
    # The answer is the pair of the COMPLETE record: the client may use it from now on.
    completed = complete(prepared, now)
    return Transition(prepared, ErrorCode.NONE, completed.producer_id, completed.producer_epoch)
