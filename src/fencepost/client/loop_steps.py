"""The table of what a loop that reads, transforms and writes does after each end of each of its steps.  Pure.

A transaction of such a loop holds what was written because of some records, and the positions after them.  Whatever
happens, each record counts once: it is handed out again only when it is known that its transaction was not committed,
and the consumer goes on only when it is known that it was (KIP-98, KIP-447).
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import Enum, auto
from typing import Final

from fencepost.client.errors import (
    CommitInDoubtError,
    ConnectionLostError,
    FencedInstanceIdError,
    OutcomeUnknownError,
    ProducerFencedError,
    TimedOutError,
    TransactionAbortableError,
    TransactionAbortedError,
    UnreachableError,
)


class Phase(Enum):
    """The steps of the loop."""

    INIT = auto()
    """Taking the transactional id over."""
    POLL = auto()
    BEGIN = auto()
    BLOCK = auto()
    """The user's block, with its sends."""
    SEND_OFFSETS = auto()
    COMMIT = auto()
    ABORT = auto()


class Ending(Enum):
    """How a step ended; of several errors raised together the one that is later in this list counts."""

    DONE = auto()
    TRANSIENT = auto()
    """The step was not done, for lack of an answer or of time."""
    ABORTABLE = auto()
    """The transaction cannot be committed; the producer can go on when it is aborted."""
    UNKNOWN = auto()
    """The end of the transaction was not confirmed: the same call finds out."""
    FAILED = auto()
    """It failed by the user's own error, or by one that another try does not mend."""
    IN_DOUBT = auto()
    """The transaction may be committed, and this producer cannot find out (before transaction.version 2)."""
    FENCED = auto()
    """Somebody else has the transactional id, or the place in the group."""
    CANCELLED = auto()
    """Whoever waited is to stop: a cancelled task, Ctrl-C, an exit."""


class Next(Enum):
    """What the loop does after a step ended in some way."""

    GO_ON = auto()
    AGAIN = auto()
    """The same call again after a pause, as long as the loop is patient; then the error is raised."""
    RETRY = auto()
    """Put the records back, abort, hand them out again."""
    GIVE_UP = auto()
    """Put the records back, abort, raise."""
    PUT_BACK = auto()
    """Put the records back and raise: nothing is open."""
    SETTLE = auto()
    """Ask once more what became of the commit, then raise."""
    LEAVE = auto()
    """Raise.  It may be committed: the group's positions tell from where to read on."""
    STOP = auto()
    """Raise."""


_ENDS: Final[Mapping[Ending, Next]] = {
    Ending.DONE: Next.GO_ON,
    Ending.TRANSIENT: Next.AGAIN,
    Ending.ABORTABLE: Next.STOP,
    Ending.UNKNOWN: Next.STOP,
    Ending.FAILED: Next.STOP,
    Ending.IN_DOUBT: Next.STOP,
    Ending.FENCED: Next.STOP,
    Ending.CANCELLED: Next.STOP,
}
_IN_TRANSACTION: Final[Mapping[Ending, Next]] = {
    Ending.DONE: Next.GO_ON,
    Ending.TRANSIENT: Next.RETRY,
    Ending.ABORTABLE: Next.RETRY,
    Ending.UNKNOWN: Next.GIVE_UP,
    Ending.FAILED: Next.GIVE_UP,
    Ending.IN_DOUBT: Next.GIVE_UP,
    Ending.FENCED: Next.GIVE_UP,
    Ending.CANCELLED: Next.GIVE_UP,
}

#: phase -> how it ended -> what follows; for each pair there is one
STEPS: Final[Mapping[Phase, Mapping[Ending, Next]]] = {
    Phase.INIT: _ENDS,
    Phase.POLL: _ENDS,
    Phase.BEGIN: {
        Ending.DONE: Next.GO_ON,
        Ending.TRANSIENT: Next.AGAIN,
        Ending.ABORTABLE: Next.PUT_BACK,
        Ending.UNKNOWN: Next.PUT_BACK,
        Ending.FAILED: Next.PUT_BACK,
        Ending.IN_DOUBT: Next.PUT_BACK,
        Ending.FENCED: Next.PUT_BACK,
        Ending.CANCELLED: Next.PUT_BACK,
    },
    Phase.BLOCK: _IN_TRANSACTION,
    Phase.SEND_OFFSETS: _IN_TRANSACTION,
    Phase.COMMIT: {
        Ending.DONE: Next.GO_ON,
        Ending.TRANSIENT: Next.AGAIN,
        Ending.ABORTABLE: Next.RETRY,
        Ending.UNKNOWN: Next.AGAIN,
        Ending.FAILED: Next.LEAVE,
        Ending.IN_DOUBT: Next.LEAVE,
        Ending.FENCED: Next.LEAVE,
        Ending.CANCELLED: Next.SETTLE,
    },
    Phase.ABORT: {
        Ending.DONE: Next.GO_ON,
        Ending.TRANSIENT: Next.AGAIN,
        Ending.ABORTABLE: Next.AGAIN,
        Ending.UNKNOWN: Next.AGAIN,
        Ending.FAILED: Next.STOP,
        Ending.IN_DOUBT: Next.STOP,
        Ending.FENCED: Next.STOP,
        Ending.CANCELLED: Next.STOP,
    },
}

#: error -> how a step ended that raised it; the first that fits.  Others: FAILED, CANCELLED if no Exception.
_ENDINGS: Final[Mapping[type[BaseException], Ending]] = {
    ProducerFencedError: Ending.FENCED,
    FencedInstanceIdError: Ending.FENCED,
    CommitInDoubtError: Ending.IN_DOUBT,
    OutcomeUnknownError: Ending.UNKNOWN,
    TransactionAbortableError: Ending.ABORTABLE,
    TransactionAbortedError: Ending.ABORTABLE,
    TimedOutError: Ending.TRANSIENT,
    ConnectionLostError: Ending.TRANSIENT,
    UnreachableError: Ending.TRANSIENT,
}


def ending_of(error: BaseException | None) -> Ending:
    """How a step ended that raised this; None: it raised nothing."""
    if error is None:
        return Ending.DONE
    if isinstance(error, BaseExceptionGroup):
        return max((ending_of(each) for each in error.exceptions), key=lambda ending: ending.value)
    known = next((ending for kind, ending in _ENDINGS.items() if isinstance(error, kind)), None)
    if known is not None:
        return known
    return Ending.FAILED if isinstance(error, Exception) else Ending.CANCELLED


def follows(phase: Phase, error: BaseException) -> Next:
    """What the loop does after this step has raised this error."""
    return STEPS[phase][ending_of(error)]
