"""The states of a transaction and how one becomes another.

The rules, in prose:

* A transactional id starts EMPTY.  The first partition that is added makes it ONGOING.
* The end is decided in one record, PREPARE_COMMIT or PREPARE_ABORT.  From then on it can only go forward: markers are
  written to every partition, and when all are written the id is COMPLETE_COMMIT or COMPLETE_ABORT.
* A finished or EMPTY id may be claimed by InitProducerId (EMPTY again, under a new epoch), may begin the next
  transaction (ONGOING), or may expire (DEAD: a tombstone, never a stored state).
* An ONGOING id that another instance claims, or that runs out of time, is fenced and aborted.  Both happen in one
  step here, so PREPARE_EPOCH_FENCE, Apache Kafka's state between the two, is never seen; it keeps its number and name.
* Under transaction.version 2 a client may abort a transaction that never began: it does so after an error when it
  cannot know whether a partition was added.  EMPTY and COMPLETE_* then go to PREPARE_ABORT, with no partition to mark.

KIP-98 data flow, KIP-890 part 2; facts §1.1 and §1.2.
"""

from __future__ import annotations

from enum import Enum, IntEnum


class State(IntEnum):
    """The state of a transactional id.  The numbers are the status byte of `__transaction_state` records."""

    EMPTY = 0
    ONGOING = 1
    PREPARE_COMMIT = 2
    PREPARE_ABORT = 3
    COMPLETE_COMMIT = 4
    COMPLETE_ABORT = 5
    DEAD = 6
    PREPARE_EPOCH_FENCE = 7

    @property
    def wire_name(self) -> str:
        """The name that ListTransactions and DescribeTransactions use."""
        return WIRE_NAMES[self]


WIRE_NAMES: dict[State, str] = {
    State.EMPTY: "Empty",
    State.ONGOING: "Ongoing",
    State.PREPARE_COMMIT: "PrepareCommit",
    State.PREPARE_ABORT: "PrepareAbort",
    State.COMPLETE_COMMIT: "CompleteCommit",
    State.COMPLETE_ABORT: "CompleteAbort",
    State.DEAD: "Dead",
    State.PREPARE_EPOCH_FENCE: "PrepareEpochFence",
}

BY_WIRE_NAME: dict[str, State] = {name: state for state, name in WIRE_NAMES.items()}


class Cause(Enum):
    """The request or event that moves a transactional id from one state to another."""

    INITIALIZE = "InitProducerId"
    ADD = "AddPartitionsToTxn, AddOffsetsToTxn or an implicit add"
    END = "EndTxn"
    EMPTY_ABORT = "EndTxn(abort) v5 of a transaction that never began"
    FENCE = "InitProducerId while a transaction is open"
    TIME_OUT = "the transaction's time-out"
    MARKERS = "every marker is written"
    EXPIRY = "transactional.id.expiration.ms"


_INITIALIZE, _ADD, _END, _EMPTY_ABORT = (Cause.INITIALIZE,), (Cause.ADD,), (Cause.END,), (Cause.EMPTY_ABORT,)
_MARKERS, _EXPIRY = (Cause.MARKERS,), (Cause.EXPIRY,)

#: (from, to) -> who may ask for it.  What is not here never happens.
TRANSITIONS: dict[tuple[State, State], tuple[Cause, ...]] = {
    (State.EMPTY, State.EMPTY): _INITIALIZE,
    (State.EMPTY, State.ONGOING): _ADD,
    (State.EMPTY, State.PREPARE_ABORT): _EMPTY_ABORT,
    (State.EMPTY, State.DEAD): _EXPIRY,
    # InitProducerId on an open transaction leaves it open only to keep a prepared one (KIP-939).
    (State.ONGOING, State.ONGOING): (Cause.ADD, Cause.INITIALIZE),
    (State.ONGOING, State.PREPARE_COMMIT): _END,
    (State.ONGOING, State.PREPARE_ABORT): (Cause.END, Cause.FENCE, Cause.TIME_OUT),
    (State.PREPARE_COMMIT, State.COMPLETE_COMMIT): _MARKERS,
    (State.PREPARE_ABORT, State.COMPLETE_ABORT): _MARKERS,
    (State.COMPLETE_COMMIT, State.EMPTY): _INITIALIZE,
    (State.COMPLETE_COMMIT, State.ONGOING): _ADD,
    (State.COMPLETE_COMMIT, State.PREPARE_ABORT): _EMPTY_ABORT,
    (State.COMPLETE_COMMIT, State.DEAD): _EXPIRY,
    (State.COMPLETE_ABORT, State.EMPTY): _INITIALIZE,
    (State.COMPLETE_ABORT, State.ONGOING): _ADD,
    (State.COMPLETE_ABORT, State.PREPARE_ABORT): _EMPTY_ABORT,
    (State.COMPLETE_ABORT, State.DEAD): _EXPIRY,
}

#: Decided: only markers are missing.
PREPARED: tuple[State, ...] = (State.PREPARE_COMMIT, State.PREPARE_ABORT)

#: No transaction is open or being ended.
IDLE: tuple[State, ...] = (State.EMPTY, State.COMPLETE_COMMIT, State.COMPLETE_ABORT)

#: May be the state of a stored record; DEAD is a tombstone and PREPARE_EPOCH_FENCE is never seen.
STORED: tuple[State, ...] = (*IDLE, State.ONGOING, *PREPARED)

#: What a prepared transaction becomes when its markers are written.
COMPLETION: dict[State, State] = {
    State.PREPARE_COMMIT: State.COMPLETE_COMMIT,
    State.PREPARE_ABORT: State.COMPLETE_ABORT,
}
