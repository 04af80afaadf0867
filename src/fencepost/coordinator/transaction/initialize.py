"""Claim a transactional id (InitProducerId): get a producer id and an epoch that nobody else holds.

How the pair in the request relates to the transactional id decides (KIP-360; facts §2.3).  The four cases of KIP-360
are the rows CURRENT, REPEATED with EARLIER, OLDER_INSTANCE and AHEAD:

================  ==========================================  ========================  =========================
claim             the pair is                                 EMPTY, COMPLETE_*         ONGOING
================  ==========================================  ========================  =========================
NEW_INSTANCE      none                                        bump, new instance        abort, 51
CURRENT           the current one                             bump, same instance       abort, 51
REPEATED          the one the current one was given for       the current pair again    the current pair again
EARLIER           of this instance, earlier still             the current pair again    the current pair again
OLDER_INSTANCE    below the instance epoch                    90                        90
AHEAD             above the current epoch                     90                        90
FOREIGN           another producer id                         90                        90
================  ==========================================  ========================  =========================

While PREPARE_* or with anything pending the answer is 51 CONCURRENT_TRANSACTIONS (FOREIGN in PREPARE_*: 90).  After
the 51 of an abort the client repeats its request: without a pair it is bumped once more, with its pair it is REPEATED.

An id that was never initialised takes any pair (KIP-360: the mapping had expired) and answers with its own id and
epoch 0.  An exhausted epoch rotates to a fresh producer id.
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
from fencepost.coordinator.transaction.prepare import fence
from fencepost.coordinator.transaction.settings import TransactionSettings
from fencepost.coordinator.transaction.state import IDLE, State
from fencepost.coordinator.transaction.transaction import (
    NO_PARTITIONS,
    TransactionMetadata,
    is_exhausted,
)
from fencepost.protocol.errors import ErrorCode
from fencepost.protocol.types import (
    LAST_CLIENT_EPOCH,
    NO_EPOCH,
    NO_PRODUCER,
    NO_PRODUCER_ID,
    NO_TIMESTAMP,
    Epoch,
    Milliseconds,
    ProducerId,
    ProducerIdAndEpoch,
)


class Claim(Enum):
    """The relation of the pair in an InitProducerId to the transactional id."""

    NEW_INSTANCE = "no pair"
    CURRENT = "the current pair"
    REPEATED = "the pair that the current one was given for"
    EARLIER = "an earlier epoch of this instance"
    OLDER_INSTANCE = "an epoch of an older instance"
    AHEAD = "an epoch above the current one"
    FOREIGN = "another producer id"


class Outcome(Enum):
    """The outcomes of an InitProducerId that is not refused with an error code."""

    BUMP = "the next epoch, or a fresh producer id if the epoch is exhausted"
    REPEAT = "the current pair, and the transaction that it ended is forgotten"
    TELL = "the current pair, and nothing changes"
    FENCE = "abort the open transaction; the caller comes back"


_FENCED = ErrorCode.PRODUCER_FENCED

#: (claim, is a transaction open?) -> what happens while nothing is pending.
OUTCOMES: dict[tuple[Claim, bool], Outcome | ErrorCode] = {
    (Claim.NEW_INSTANCE, False): Outcome.BUMP,
    (Claim.NEW_INSTANCE, True): Outcome.FENCE,
    (Claim.CURRENT, False): Outcome.BUMP,
    (Claim.CURRENT, True): Outcome.FENCE,
    (Claim.REPEATED, False): Outcome.REPEAT,
    (Claim.REPEATED, True): Outcome.TELL,
    (Claim.EARLIER, False): Outcome.TELL,
    (Claim.EARLIER, True): Outcome.TELL,
    (Claim.OLDER_INSTANCE, False): _FENCED,
    (Claim.OLDER_INSTANCE, True): _FENCED,
    (Claim.AHEAD, False): _FENCED,
    (Claim.AHEAD, True): _FENCED,
    (Claim.FOREIGN, False): _FENCED,
    (Claim.FOREIGN, True): _FENCED,
}


class Initialize(NamedTuple):
    """An InitProducerId that passed the checks of the request itself; a pair of (-1, -1) is none."""

    expected: ProducerIdAndEpoch
    timeout_ms: Milliseconds
    keep_prepared: bool = False


def claim_of(transaction: TransactionMetadata, expected: ProducerIdAndEpoch) -> Claim:
    """The relation of the pair to an initialised transactional id."""
    current = transaction.current
    if expected == NO_PRODUCER:
        return Claim.NEW_INSTANCE
    if expected == current:
        return Claim.CURRENT
    if expected == transaction.claimed:
        return Claim.REPEATED
    if expected.producer_id != current.producer_id:
        return Claim.FOREIGN
    if expected.producer_epoch > current.producer_epoch:
        return Claim.AHEAD
    if expected.producer_epoch < transaction.instance_epoch:
        return Claim.OLDER_INSTANCE
    return Claim.REPEATED if expected.producer_epoch == current.producer_epoch - 1 else Claim.EARLIER


def initialize(
    transaction: TransactionMetadata,
    request: Initialize,
    now: Milliseconds,
    level: int,
    fresh: ProducerId | None = None,
) -> Decision | Literal[NeedsProducerId.NEEDED]:
    """Decide what an InitProducerId is answered.

    `level`: the cluster's transaction.version, for the abort of an open transaction.  `fresh`: what to rotate to.
    """
    if transaction.pending is not None:
        return Refusal(ErrorCode.CONCURRENT_TRANSACTIONS)
    if transaction.producer_epoch < 0:
        return _first(transaction, request, now)
    current = transaction.current
    claim = claim_of(transaction, request.expected)
    if transaction.is_prepared:
        known = claim is not Claim.FOREIGN or _may_have_rotated(transaction, request.expected)
        return Refusal(ErrorCode.CONCURRENT_TRANSACTIONS if known else ErrorCode.PRODUCER_FENCED)
    is_open = transaction.state is State.ONGOING
    outcome = OUTCOMES[claim, is_open]
    if isinstance(outcome, ErrorCode):
        return Refusal(outcome, transaction.was_timed_out(*request.expected))
    if current.producer_epoch > LAST_CLIENT_EPOCH and outcome in (Outcome.TELL, Outcome.REPEAT):
        # The current epoch is one that no client may hold: move on instead of telling it.
        outcome = Outcome.FENCE if is_open else Outcome.BUMP
    if outcome is Outcome.TELL:
        kept = is_open and request.keep_prepared
        ongoing = ProducerIdAndEpoch(transaction.producer_id, transaction.producer_epoch) if kept else NO_PRODUCER
        return Unchanged(*current, ongoing=ongoing)
    if is_open and request.keep_prepared:
        return _keep(transaction, request, now, fresh)
    if outcome is Outcome.FENCE:
        fenced = fence(transaction, level, now, fresh, new_instance=claim is Claim.NEW_INSTANCE)
        if fenced is NEEDS_PRODUCER_ID:
            return fenced
        return Transition(fenced, ErrorCode.CONCURRENT_TRANSACTIONS)
    assert transaction.state in IDLE, "only a transactional id without a transaction is handed out"
    if outcome is Outcome.REPEAT:
        return _claimed(transaction, request, now, current, transaction.instance_epoch)
    given = _next_pair(current, fresh)
    if given is None:
        return NEEDS_PRODUCER_ID
    rotated = given.producer_id != current.producer_id
    starts = claim is Claim.NEW_INSTANCE or rotated
    return _claimed(transaction, request, now, given, given.producer_epoch if starts else transaction.instance_epoch)


def _first(transaction: TransactionMetadata, request: Initialize, now: Milliseconds) -> Transition:
    """Claim a new id, or one that had expired: its own producer id and epoch 0, whatever pair the caller held."""
    return _claimed(transaction, request, now, ProducerIdAndEpoch(transaction.producer_id, Epoch(0)), Epoch(0))


def _claimed(
    transaction: TransactionMetadata,
    request: Initialize,
    now: Milliseconds,
    given: ProducerIdAndEpoch,
    instance_epoch: Epoch,
) -> Transition:
    """The transition that hands out this pair and forgets the transaction before."""
    rotated = request.expected != NO_PRODUCER and request.expected.producer_id != given.producer_id
    to = transaction._replace(
        producer_id=given.producer_id,
        producer_epoch=given.producer_epoch,
        previous_producer_id=transaction.producer_id,
        next_producer_id=NO_PRODUCER_ID,
        next_producer_epoch=NO_EPOCH,
        timeout_ms=request.timeout_ms,
        state=State.EMPTY,
        pending=None,
        partitions=NO_PARTITIONS,
        start_timestamp=NO_TIMESTAMP,
        last_update_timestamp=now,
        instance_epoch=instance_epoch,
        claimed=request.expected if rotated else NO_PRODUCER,
        timed_out=NO_PRODUCER if request.expected == NO_PRODUCER else transaction.timed_out,
    )
    return Transition(to, ErrorCode.NONE, given.producer_id, given.producer_epoch)


def _keep(
    transaction: TransactionMetadata, request: Initialize, now: Milliseconds, fresh: ProducerId | None
) -> Transition | Literal[NeedsProducerId.NEEDED]:
    """The transition that leaves a prepared transaction open and gives the caller a pair to end it with (KIP-939)."""
    given = _next_pair(transaction.current, fresh)
    if given is None:
        return NEEDS_PRODUCER_ID
    starts = request.expected == NO_PRODUCER or given.producer_id != transaction.current.producer_id
    to = transaction._replace(
        next_producer_id=given.producer_id,
        next_producer_epoch=given.producer_epoch,
        timeout_ms=request.timeout_ms,
        last_update_timestamp=now,
        instance_epoch=given.producer_epoch if starts else transaction.instance_epoch,
        timed_out=NO_PRODUCER if request.expected == NO_PRODUCER else transaction.timed_out,
    )
    ongoing = ProducerIdAndEpoch(transaction.producer_id, transaction.producer_epoch)
    return Transition(to, ErrorCode.NONE, given.producer_id, given.producer_epoch, ongoing)


def _next_pair(current: ProducerIdAndEpoch, fresh: ProducerId | None) -> ProducerIdAndEpoch | None:
    """The pair after this one; None if it takes a fresh producer id and there is none at hand."""
    if not is_exhausted(current.producer_epoch):
        return ProducerIdAndEpoch(current.producer_id, Epoch(current.producer_epoch + 1))
    return None if fresh is None else ProducerIdAndEpoch(fresh, Epoch(0))


def _may_have_rotated(transaction: TransactionMetadata, expected: ProducerIdAndEpoch) -> bool:
    return expected.producer_id == transaction.previous_producer_id and is_exhausted(expected.producer_epoch)


#: Bytes of a transactional id that the journal's key has room for.
LONGEST_ID: Final = 32_767


def check(
    expected: ProducerIdAndEpoch,
    transactional_id: str | None,
    timeout_ms: Milliseconds,
    enable_2pc: bool,
    keep_prepared: bool,
    settings: TransactionSettings,
) -> ErrorCode:
    """The error of the request itself, the first that applies (facts §2.2); NONE if there is none.

    Without a transactional id nothing but half a pair is: the producer is merely idempotent.
    """
    if (expected.producer_id == NO_PRODUCER_ID) != (expected.producer_epoch == NO_EPOCH):
        return ErrorCode.INVALID_REQUEST
    if transactional_id is None:
        return ErrorCode.NONE
    if not 0 < len(transactional_id.encode()) <= LONGEST_ID:
        return ErrorCode.INVALID_REQUEST
    if enable_2pc and not settings.two_phase_commit:
        return ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED
    if keep_prepared and not settings.two_phase_commit:
        return ErrorCode.UNSUPPORTED_VERSION
    if not enable_2pc and not 0 < timeout_ms <= settings.max_timeout_ms:
        return ErrorCode.INVALID_TRANSACTION_TIMEOUT
    return ErrorCode.NONE
