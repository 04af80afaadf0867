"""The errors of transactions that did not end as asked: what happened, and what to do next."""

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
    """The error of a producer whose transactional id, `name`, another one has taken over."""
    return ProducerFencedError(
        f"another producer has taken over the transactional id {name!r}, or, before transaction.version 2, the broker "
        "has aborted a transaction of this one after transaction_timeout_ms: it can do nothing more. If both are meant "
        "to run, give each an id of its own"
    )


def timed_out_error(name: str) -> TransactionTimedOutError:
    """The error of a transaction that the broker aborted since it was open for too long."""
    return TransactionTimedOutError(
        f"the broker aborted the transaction of {name!r} because it was open for longer than transaction_timeout_ms: "
        "abort, then go on; make it shorter, or the time-out longer"
    )


def in_doubt(what: str) -> CommitInDoubtError:
    """The error of a commit whose outcome cannot be found out any more, after `what` happened."""
    return CommitInDoubtError(
        f"{what}. It may be committed or not: read the output to find out, then go on with a new producer"
    )


def unconfirmed(error: TimedOutError | AuthenticationError, call: str) -> ClientError:
    """The error of a call that ends a transaction and was not confirmed; it may be made again."""
    if isinstance(error, TimedOutError):
        return OutcomeUnknownError(f"{error}. Call {call}() again to find out")
    return AuthenticationError(f"{error}. When that is mended call {call}() again to find out")


def not_open_error(name: str, what: str) -> TransactionAbortableError:
    """The error of a commit of a transaction that the broker has aborted before, by itself or by an administrator.

    `what`: its answer.  Apache Kafka says so to a commit after the time-out, and does not tell the reason (KIP-890).
    """
    return TransactionAbortableError(
        f"the broker has no transaction of {name!r} open any more ({what}): it has aborted it, as it does after "
        "transaction_timeout_ms. Abort, then go on; make the transaction shorter, or the time-out longer"
    )


def forgotten_error(name: str) -> TransactionAbortableError:
    """The error of a transactional id that the broker has forgotten since nobody used it (KIP-360, failures)."""
    return TransactionAbortableError(
        f"the broker has forgotten {name!r}, which had no transaction for transactional.id.expiration.ms: what was "
        "sent since is not there. Abort, then go on"
    )
