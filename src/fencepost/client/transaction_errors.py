"""What to tell of a transaction whose end failed: what happened, and what to do next."""

from __future__ import annotations

from fencepost.client.errors import (
    AuthenticationError,
    ClientError,
    CommitInDoubtError,
    OutcomeUnknownError,
    ProducerFencedError,
    TimedOutError,
    TransactionAbortableError,
    TransactionTimedOutError,
)


def fenced_error(name: str) -> ProducerFencedError:
    """Another producer has the id now."""
    return ProducerFencedError(
        f"another producer has taken over the transactional id {name!r}: this one can do nothing more. If both are "
        "meant to run, give each an id of its own"
    )


def timed_out_error(name: str) -> TransactionTimedOutError:
    """The transaction took too long."""
    return TransactionTimedOutError(
        f"the broker aborted the transaction of {name!r} because it was open for longer than transaction_timeout_ms: "
        "abort, then go on; make it shorter, or the time-out longer"
    )


def in_doubt(what: str) -> CommitInDoubtError:
    """Nobody can tell any more what became of a commit."""
    return CommitInDoubtError(
        f"{what}. It may be committed or not: read the output to find out, then go on with a new producer"
    )


def unconfirmed(error: TimedOutError | AuthenticationError, call: str) -> ClientError:
    """The call that ends a transaction, which may be made again, has failed."""
    if isinstance(error, TimedOutError):
        return OutcomeUnknownError(f"{error}. Call {call}() again to find out")
    return AuthenticationError(f"{error}. When that is mended call {call}() again to find out")


def forgotten_error(name: str) -> TransactionAbortableError:
    """Nobody used the transactional id for so long that the broker has forgotten it (KIP-360, failure handling)."""
    return TransactionAbortableError(
        f"the broker has forgotten {name!r}, which had no transaction for transactional.id.expiration.ms: what was "
        "sent since is not there. Abort, then go on"
    )
