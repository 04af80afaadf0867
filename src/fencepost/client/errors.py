"""The errors that the clients raise.  Their messages say what happened, to what, and what to do next.

Every error is one of four kinds, by what helps:

- `RetriableError`: call again.
- `AbortableError`: abort the transaction, then go on with the same producer.
- `ApplicationRecoverableError`: close the client, make a new one, go on from what is committed.
- `FatalError`: the same call will not succeed; the program, a setting, a right or the cluster must change first.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final, Self

from fencepost.client.remedies import Remedy, advice_on
from fencepost.protocol.errors import ErrorCode, KafkaError, ProtocolError
from fencepost.protocol.types import TopicPartition


class ClientError(Exception):
    """Base of every error that the clients raise."""


class RetriableError(ClientError):
    """A failure that may pass.  Call again: the client has repeated it within the time-out of the call."""


class AbortableError(ClientError):
    """The transaction cannot be committed.  Abort it, then go on with the same producer."""


class ApplicationRecoverableError(ClientError):
    """This client cannot go on, a new one can.  Close it, make one, and go on from what is committed (KIP-1050)."""


class FatalError(ClientError):
    """The same call will not succeed.  Change the program, a setting, a right or the cluster as the message says."""


class UnreachableError(RetriableError):
    """No broker could be reached in time.  Check bootstrap_servers and the network, and call again."""


class ConnectionLostError(RetriableError):
    """The connection ended before the answer came.  Whether the request was carried out is not known: call again."""


class TimedOutError(RetriableError, TimeoutError):
    """A call was not done within its time-out.  Call again, or allow more: the message names the last failure."""


class OffsetsMissingError(TimedOutError):
    """Some partitions gave no offsets within the time-out, as one without a leader does.  Call again for those.

    `missing`: those partitions.  `found`: the answers for the others, by partition.
    """

    def __init__(self, message: str, missing: Sequence[Any], found: Mapping[Any, Any]) -> None:
        super().__init__(message)
        self.missing = list(missing)
        self.found = dict(found)

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (self.args[0], self.missing, self.found), dict(vars(self))


class AuthenticationError(FatalError):
    """The broker does not accept who this client says it is, or the client does not accept the broker.

    The call is not tried again by itself: change the settings of TLS or SASL that the message names, or what the broker
    knows of them, and call again or make a new client.
    """


class UnsupportedByBrokerError(FatalError):
    """The broker does not serve a request, or not in a version that is needed.  Use a newer broker, or do without.

    Where all versions that it serves are too new, use a newer client: the message says which of both is the older one.
    """


class MisuseError(FatalError):
    """The state of the client does not allow this call, or not from this thread or process.  Change the program."""


class ClosedError(MisuseError):
    """The client was closed, before the call or while it was under way.  Make a new one."""


class BrokerError(ClientError, KafkaError):
    """The broker refused a request.  `code` says why, and the end of the message what to do.

    It is caught by this class, or by the kind of its code: RetriableError, AbortableError, ApplicationRecoverableError
    or FatalError.
    """

    def __new__(cls, code: Any = 0, *_: Any, **__: Any) -> Self:
        kind: Any = _BY_REMEDY[advice_on(code).remedy] if cls is BrokerError else cls
        made: Self = super().__new__(kind)
        return made

    def __init__(self, code: int, message: str) -> None:
        said = message.strip().rstrip(".: ")
        KafkaError.__init__(self, code, f"{said}{'' if said.endswith('?') else '.'} {advice_on(code).what_next}")
        self._given: tuple[Any, ...] = (code, message)

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), self._given, dict(vars(self))


class RetriableBrokerError(BrokerError, RetriableError):
    """A BrokerError that may pass.  Call again."""


class AbortableBrokerError(BrokerError, AbortableError):
    """A BrokerError after which the transaction cannot be committed.  Abort it, then go on."""


class RecoverableBrokerError(BrokerError, ApplicationRecoverableError):
    """A BrokerError after which this client cannot go on.  Close it and make a new one."""


class FatalBrokerError(BrokerError, FatalError):
    """A BrokerError that the same call will meet again.  Change what its message names."""


def is_unsupported(error: ClientError) -> bool:
    """Whether the broker does not serve a request in this version, as after a change of transaction.version."""
    if isinstance(error, BrokerError):
        return error.code == ErrorCode.UNSUPPORTED_VERSION
    return isinstance(error, UnsupportedByBrokerError)


_BY_REMEDY: Final = {
    Remedy.RETRY: RetriableBrokerError,
    Remedy.ABORT: AbortableBrokerError,
    Remedy.REBUILD: RecoverableBrokerError,
    Remedy.STOP: FatalBrokerError,
}
_NAMED: Final = 3


class PartlyRefusedError(BrokerError, FatalError):
    """Of several things that were asked for at once, some were refused.  Look into `refused`; the others are done.

    `refused`: the error of each of them.  `done`: the answers for the others.  `code`: the first error code.
    """

    def __init__(self, refused: Mapping[Any, BrokerError], done: Mapping[Any, Any]) -> None:
        first = list(refused.values())
        more = len(first) - _NAMED
        told = "; ".join(str(error) for error in first[:_NAMED])
        Exception.__init__(self, f"{told}; and {more} more" if more > 0 else told)
        self.code = first[0].code
        self.refused = dict(refused)
        self.done = dict(done)

    def __reduce__(self) -> tuple[Any, ...]:
        return PartlyRefusedError, (self.refused, self.done), dict(vars(self))


class DeliveryError(RetriableError):
    """A record was not acknowledged within `delivery_timeout_ms`.  Send it again if it may be there twice."""


class RecordTooLargeError(FatalError):
    """A record has more than `max_request_size` bytes.  Only it was not sent: make it smaller, or raise the setting."""


class TransactionError(ClientError):
    """Base of the errors of transactions.  Catch this for any of them."""


class TransactionAbortableError(TransactionError, AbortableError):
    """The transaction cannot be committed.  Abort it, then go on with the same producer (KIP-1050)."""


class TransactionTimedOutError(TransactionAbortableError):
    """The broker aborted a transaction that was open for `transaction_timeout_ms`.  Abort, then go on (KIP-588)."""


class TransactionAbortedError(TransactionError, AbortableError):
    """The record is not there, because its transaction was aborted.  Send it in the next one of this producer."""


class OutcomeUnknownError(TransactionError, RetriableError):
    """The end of a transaction was not confirmed in time.  Call the same method again to find out."""


class CommitInDoubtError(TransactionError, ApplicationRecoverableError):
    """The transaction may be committed or not, and its producer cannot find out.

    It was closed while it waited for the answer, or that was an error which does not say how far the broker came.  Or,
    before transaction.version 2, an answer to the commit was lost, and what its repetition is told can be meant for a
    request that came later than it was sent.  Read the output, then go on with a new producer.
    """


class ProducerFencedError(TransactionError, FatalError):
    """Another producer with the same transactional id has taken over.  This one can do nothing more: end it.

    To make a new one with the same id would fence the other in turn.
    """


class CommitFailedError(ApplicationRecoverableError):
    """The consumer is no longer in the group, so its positions were not taken.  Its records go to other members.

    Poll again, which joins the group anew, or go on with a new consumer.
    """


class FencedInstanceIdError(FatalError):
    """Another consumer with the same group_instance_id has joined the group.  Give each of them one of its own."""


class NoOffsetError(FatalError):
    """There is no committed position, or the log does not have it any more, and auto_offset_reset="error" says not to
    choose one.  Seek, or change it.
    """


class LogTruncatedError(NoOffsetError):
    """A log has other records than were read, and auto_offset_reset="error" says not to go on.  Seek, or change it.

    The log of a partition was truncated after it was read, as by the election of a leader that had less (KIP-320).
    `at`: the partition.  `position`: how far it was read.  `parted`: the offset from which on it is different.
    """

    def __init__(self, at: TopicPartition, position: int, parted: int) -> None:
        super().__init__(
            f"{at.topic}-{at.partition} was read up to offset {position}, and its log has other records than these "
            f"from {parted} on: it was truncated, as by the election of a leader that had less. auto_offset_reset is "
            f"'error': seek() to {parted} to read what stands there now, or to {position} to go on without it"
        )
        self.at, self.position, self.parted = at, position, parted

    def __reduce__(self) -> tuple[Any, ...]:
        return LogTruncatedError, (self.at, self.position, self.parted)


class PositionMetadataError(FatalError):
    """The metadata of a committed offset is not what a consumer with delivery="commit_order" writes, or damaged.

    Seek to where reading is to begin.
    """


def no_such_partition(topic: str, partition: int, count: int) -> BrokerError:
    """UNKNOWN_TOPIC_OR_PARTITION, for a number that a topic of `count` partitions does not have."""
    return BrokerError(
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        f"topic {topic!r} has {count} partitions, there is no partition {partition}",
    )


class DamagedRecordsError(FatalError):
    """Records of a partition cannot be read: a checksum, a size or a codec is wrong.

    The records before were handed out, and the position stays there, so that the next call meets it again; other
    partitions are read on.  Have it put right where it is kept, or seek behind it.  `at`: the partition.  `offset`:
    that position.
    """

    def __init__(self, at: TopicPartition, offset: int, what: Exception) -> None:
        super().__init__(
            f"{at.topic}-{at.partition} cannot be read from offset {offset} on: {what}. The position stays there: "
            f"put right what the broker has, or seek behind it; other partitions are read on"
        )
        self.at, self.offset = at, offset


class damage_named:
    """A context manager that raises a ProtocolError as a DamagedRecordsError of this partition and offset."""

    __slots__ = ("_at", "_offset")

    def __init__(self, at: TopicPartition, offset: int) -> None:
        self._at, self._offset = at, offset

    def __enter__(self) -> None:
        pass

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, _: object) -> None:
        if isinstance(error, ProtocolError):
            raise DamagedRecordsError(self._at, self._offset, error) from error


class SpillError(FatalError):
    """The kept records of open transactions cannot be written to a temporary file, or read back.

    No record is lost: make room on the disk, and go on with a new consumer.
    """
