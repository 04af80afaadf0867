"""The states of a transactional producer, and which may follow which (facts §9.1)."""

from __future__ import annotations

from collections.abc import Mapping
from enum import Enum
from typing import Final

from fencepost.client.errors import MisuseError


class State(Enum):
    """The states of a transactional producer; the value says, for a message, what it is and what to do."""

    UNINITIALIZED = "it has no producer id yet: call init_transactions() first"
    INITIALIZING = "init_transactions() is under way"
    READY = "no transaction is open: call begin_transaction() first"
    IN_TRANSACTION = "a transaction is open"
    PREPARED = "its transaction is prepared: commit, abort or complete it"
    COMMITTING = "its commit has begun, and is not confirmed: call commit_transaction() again to find out"
    ABORTING = "its abort has begun, and is not confirmed: call abort_transaction() again"
    ABORTABLE_ERROR = "its transaction has failed: call abort_transaction() first"
    FATAL_ERROR = "it can do nothing more: close it"


#: state -> the states that may follow it
TRANSITIONS: Final[Mapping[State, tuple[State, ...]]] = {
    State.UNINITIALIZED: (State.INITIALIZING, State.FATAL_ERROR),
    State.INITIALIZING: (State.READY, State.PREPARED, State.UNINITIALIZED, State.FATAL_ERROR),
    State.READY: (State.IN_TRANSACTION, State.FATAL_ERROR),
    State.IN_TRANSACTION: (
        *(State.PREPARED, State.COMMITTING, State.ABORTING, State.ABORTABLE_ERROR, State.FATAL_ERROR),
    ),
    State.PREPARED: (State.COMMITTING, State.ABORTING, State.ABORTABLE_ERROR, State.FATAL_ERROR),
    State.COMMITTING: (State.READY, State.ABORTABLE_ERROR, State.FATAL_ERROR),
    State.ABORTING: (State.READY, State.ABORTABLE_ERROR, State.FATAL_ERROR),
    State.ABORTABLE_ERROR: (State.ABORTING, State.FATAL_ERROR),
    State.FATAL_ERROR: (),
}

#: call -> the states in which it may be made.  A commit or abort whose outcome is open may be asked for again.
CALLS: Final[Mapping[str, tuple[State, ...]]] = {
    "init_transactions": (State.UNINITIALIZED,),
    "begin_transaction": (State.READY,),
    "send": (State.IN_TRANSACTION,),
    "send_offsets_to_transaction": (State.IN_TRANSACTION,),
    "prepare_transaction": (State.IN_TRANSACTION, State.PREPARED),
    "complete_transaction": (State.UNINITIALIZED, State.PREPARED, State.COMMITTING, State.ABORTING, State.READY),
    "commit_transaction": (State.IN_TRANSACTION, State.PREPARED, State.COMMITTING),
    "abort_transaction": (State.IN_TRANSACTION, State.PREPARED, State.ABORTABLE_ERROR, State.ABORTING),
}


#: What only a producer does that has initialized its transactions.
_INITIALIZED: Final = frozenset(State) - {State.UNINITIALIZED, State.INITIALIZING, State.FATAL_ERROR}


def check_call(call: str, state: State) -> None:
    """Raises MisuseError if the call cannot be made in this state."""
    if call == "init_transactions" and state in _INITIALIZED:
        raise MisuseError(f"{call}() was called before, and once is enough: {state.value}")
    if state not in CALLS[call]:
        raise MisuseError(f"{call}() cannot be called on this producer now: {state.value}")


def completion(state: State, *, is_this_one: bool) -> State | None:
    """The state that completing a prepared transaction leads to: it commits, or aborts; None: none is open here.

    `is_this_one`: it is the one that is to be committed.  Raises MisuseError where the other end of it has begun.
    """
    check_call("complete_transaction", state)
    if state not in (State.PREPARED, State.COMMITTING, State.ABORTING):
        return None
    following = State.COMMITTING if is_this_one else State.ABORTING
    if state not in (State.PREPARED, following):
        raise MisuseError(f"complete_transaction() cannot be called with this text on this producer now: {state.value}")
    return following


def follow(state: State, following: State) -> State:
    """`following`, if it may follow `state`; an AssertionError else."""
    assert following in TRANSITIONS[state], f"{following.name} does not follow {state.name}"
    return following
