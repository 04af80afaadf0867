"""What an error code in an answer means for a transactional producer, request by request (facts §9.5, §9.6)."""

from __future__ import annotations

from collections.abc import Mapping
from enum import Enum, auto
from typing import Final

from fencepost.protocol.errors import ErrorCode


class Outcome(Enum):
    """What a transactional producer does after an answer to one of its requests."""

    DONE = auto()
    RETRY = auto()
    """Send the same again after a pause."""
    FIND_COORDINATOR = auto()
    """Look up the coordinator, then send the same again."""
    ABORTABLE = auto()
    """Abort the transaction, then go on."""
    STALE = auto()
    """The producer id or epoch is an old one: timed out or fenced.  InitProducerId with the pair tells which."""
    FATAL = auto()


_COORDINATOR_MOVED: Final = {
    ErrorCode.COORDINATOR_NOT_AVAILABLE: Outcome.FIND_COORDINATOR,
    ErrorCode.NOT_COORDINATOR: Outcome.FIND_COORDINATOR,
}
_STALE: Final = {
    ErrorCode.INVALID_PRODUCER_EPOCH: Outcome.STALE,
    ErrorCode.PRODUCER_FENCED: Outcome.STALE,
    ErrorCode.INVALID_PRODUCER_ID_MAPPING: Outcome.STALE,
}
_IN_TRANSACTION: Final = {
    **_COORDINATOR_MOVED,
    **_STALE,
    ErrorCode.TRANSACTION_ABORTABLE: Outcome.ABORTABLE,
    ErrorCode.UNKNOWN_PRODUCER_ID: Outcome.ABORTABLE,
    # The coordinator knows of no open transaction: it was ended by a time-out.
    ErrorCode.INVALID_TXN_STATE: Outcome.ABORTABLE,
}

#: request -> error -> what to do.  Not listed: RETRY if the error is retriable, else FATAL.
OUTCOMES: Final[Mapping[str, Mapping[ErrorCode, Outcome]]] = {
    "InitProducerId": {**_COORDINATOR_MOVED},
    "AddPartitionsToTxn": {
        **_IN_TRANSACTION,
        ErrorCode.TOPIC_AUTHORIZATION_FAILED: Outcome.ABORTABLE,
        ErrorCode.OPERATION_NOT_ATTEMPTED: Outcome.ABORTABLE,
    },
    "AddOffsetsToTxn": {**_IN_TRANSACTION, ErrorCode.GROUP_AUTHORIZATION_FAILED: Outcome.ABORTABLE},
    "TxnOffsetCommit": {
        **_IN_TRANSACTION,
        ErrorCode.REQUEST_TIMED_OUT: Outcome.FIND_COORDINATOR,
        ErrorCode.GROUP_AUTHORIZATION_FAILED: Outcome.ABORTABLE,
        ErrorCode.TOPIC_AUTHORIZATION_FAILED: Outcome.ABORTABLE,
        ErrorCode.FENCED_INSTANCE_ID: Outcome.ABORTABLE,
        ErrorCode.ILLEGAL_GENERATION: Outcome.ABORTABLE,
        ErrorCode.UNKNOWN_MEMBER_ID: Outcome.ABORTABLE,
        ErrorCode.GROUP_ID_NOT_FOUND: Outcome.ABORTABLE,
        ErrorCode.STALE_MEMBER_EPOCH: Outcome.ABORTABLE,
        ErrorCode.OFFSET_METADATA_TOO_LARGE: Outcome.ABORTABLE,
        ErrorCode.INVALID_GROUP_ID: Outcome.ABORTABLE,
    },
    "EndTxn": {**_IN_TRANSACTION},
    "Produce": {
        ErrorCode.DUPLICATE_SEQUENCE_NUMBER: Outcome.DONE,
        ErrorCode.PRODUCER_FENCED: Outcome.STALE,
        ErrorCode.INVALID_PRODUCER_ID_MAPPING: Outcome.STALE,
        ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED: Outcome.FATAL,
        ErrorCode.CLUSTER_AUTHORIZATION_FAILED: Outcome.FATAL,
        ErrorCode.UNSUPPORTED_VERSION: Outcome.FATAL,
        ErrorCode.UNSUPPORTED_FOR_MESSAGE_FORMAT: Outcome.FATAL,
    },
}


class Verdict(Enum):
    """What the answer to a batch means for it."""

    WRITTEN = auto()
    AGAIN = auto()
    """The batch is sent again, as it was."""
    SPLIT = auto()
    """The halves of the batch are sent."""
    FAILED = auto()


#: What the records of a batch are refused for, whatever came before it.
RECORDS_REFUSED: Final = (
    ErrorCode.MESSAGE_TOO_LARGE,
    ErrorCode.RECORD_LIST_TOO_LARGE,
    ErrorCode.INVALID_TIMESTAMP,
    ErrorCode.INVALID_RECORD,
)

#: Another node leads the partition by now, or nobody does.
LEADER_MOVED: Final = (
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    ErrorCode.LEADER_NOT_AVAILABLE,
    ErrorCode.NOT_LEADER_OR_FOLLOWER,
    ErrorCode.KAFKA_STORAGE_ERROR,
)
#: A leader that answers a Produce with one of these may have written the batch all the same.  So may one whose error is
#: not known here: nobody can tell at which step it gave up.
MAYBE_WRITTEN: Final = (
    ErrorCode.UNKNOWN_SERVER_ERROR,
    ErrorCode.REQUEST_TIMED_OUT,
    ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND,
    ErrorCode.NETWORK_EXCEPTION,
    ErrorCode.KAFKA_STORAGE_ERROR,
)


def outcome_of(request: str, error: ErrorCode) -> Outcome:
    """The outcome of an error in the answer to this request, by the table; DONE for no error."""
    if not error:
        return Outcome.DONE
    known = OUTCOMES[request].get(error)
    if known is not None:
        return known
    if error.retriable:
        return Outcome.RETRY
    return Outcome.ABORTABLE if request == "Produce" else Outcome.FATAL


def verdict_of(error: ErrorCode, *, is_behind: bool, can_be_split: bool) -> Verdict:
    """The verdict on a batch that is answered with this error, or none (facts §9.6).

    `is_behind`: another one before it is not acknowledged, or has failed.  Then it is out of order because of that one,
    and has its turn later; the first one has lost its place for good.
    """
    outcome = outcome_of("Produce", error)
    if outcome is Outcome.DONE:
        return Verdict.WRITTEN
    if outcome is Outcome.RETRY or (is_behind and error is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER):
        return Verdict.AGAIN
    if error is ErrorCode.MESSAGE_TOO_LARGE and can_be_split:
        return Verdict.SPLIT
    return Verdict.FAILED
