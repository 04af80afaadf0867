"""What goes wrong, as a person should read it: what happened, to what, and what to do next."""

from __future__ import annotations

from fencepost.protocol.errors import KafkaError


class ClientError(Exception):
    """Base of every error that the clients raise."""


class UnreachableError(ClientError):
    """No broker could be reached in time."""


class ConnectionLostError(ClientError):
    """The connection ended before the answer came; whether the request was carried out is not known."""


class AuthenticationError(ClientError):
    """The broker does not accept who this client says it is, or the client does not accept the broker.

    The call is not tried again by itself: change the settings of TLS or SASL that the message names, or what the broker
    knows of them, and call again or make a new client.
    """


class UnsupportedByBrokerError(ClientError):
    """The broker does not serve a request, or not in a version that is needed."""


class MisuseError(ClientError):
    """A call that makes no sense in this state; the program needs to be changed."""


class ClosedError(MisuseError):
    """The client was closed, before the call or while it was under way.  Make a new one."""


class BrokerError(ClientError, KafkaError):
    """The broker refused a request.  `code` says why."""

    def __init__(self, code: int, message: str) -> None:
        KafkaError.__init__(self, code, message)


class TimedOutError(ClientError, TimeoutError):
    """Something took longer than the caller allows."""


class DeliveryError(ClientError):
    """A record was not delivered."""


class RecordTooLargeError(ClientError):
    """A record is larger than `max_request_size`.  It was not sent; whatever else was is not touched by it."""


class TransactionError(ClientError):
    """Base of what happens to transactions."""


class TransactionAbortableError(TransactionError):
    """The transaction cannot be committed.  Abort it, then go on with the same producer (KIP-1050)."""


class TransactionTimedOutError(TransactionAbortableError):
    """The broker aborted the transaction because it was open for too long.  Abort, then go on (KIP-588)."""


class TransactionAbortedError(TransactionError):
    """The record was not sent, because its transaction was aborted."""


class OutcomeUnknownError(TransactionError):
    """The end of a transaction was not confirmed in time.  Call the same method again to find out."""


class CommitInDoubtError(TransactionError):
    """The transaction may be committed or not, and its producer cannot find out.

    It was closed while it waited for the answer.  Or, before transaction.version 2, an answer to the commit was lost,
    and what its repetition is told can be meant for a request that came later than it was sent.  Read the output, then
    go on with a new producer.
    """


class ProducerFencedError(TransactionError):
    """Another producer with the same transactional id has taken over.  This one can do nothing more."""


class CommitFailedError(ClientError):
    """The consumer is no longer in the group, so its positions were not taken.  Its records go to other members."""


class FencedInstanceIdError(ClientError):
    """Another consumer with the same group_instance_id has joined the group.  This one can do nothing more there."""


class NoOffsetError(ClientError):
    """There is no committed position, and auto_offset_reset="error" says not to choose one."""


class PositionMetadataError(ClientError):
    """The metadata of a committed offset is not what a consumer with delivery="commit_order" writes, or damaged."""


class SpillError(ClientError):
    """What is kept of open transactions cannot be written to a temporary file, or read back.  No record is lost."""
