"""The content of ListTransactions and DescribeTransactions (facts §1.10)."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

from fencepost.coordinator.transaction.patterns import BadPattern, Pattern
from fencepost.coordinator.transaction.state import BY_WIRE_NAME, State
from fencepost.coordinator.transaction.transaction import TransactionMetadata
from fencepost.protocol.errors import ErrorCode
from fencepost.protocol.steps import Pace, Steps
from fencepost.protocol.types import NO_LSN, Epoch, Lsn, Milliseconds, ProducerId, TopicPartition


class Description(NamedTuple):
    """One transactional id as DescribeTransactions shows it.  With an error the rest is 0 and "", as in Kafka."""

    transactional_id: str
    error: ErrorCode = ErrorCode.NONE
    state: str = ""
    timeout_ms: Milliseconds = Milliseconds(0)
    start_timestamp: Milliseconds = Milliseconds(0)
    producer_id: ProducerId = ProducerId(0)
    producer_epoch: Epoch = Epoch(0)
    #: Of an open transaction all, of one being ended those whose marker is missing, else none.
    partitions: Sequence[TopicPartition] = ()
    lsn: Lsn = NO_LSN


class Listed(NamedTuple):
    """One transactional id as ListTransactions shows it."""

    transactional_id: str
    producer_id: ProducerId
    state: str


class Listing(NamedTuple):
    """The result of ListTransactions.  `unknown_states`: names in the filter that are no state's."""

    error: ErrorCode
    unknown_states: Sequence[str] = ()
    transactions: Sequence[Listed] = ()
    lsn: Lsn = NO_LSN


class Filters(NamedTuple):
    """The filters of ListTransactions; an empty one, or -1, lets everything pass."""

    states: Sequence[str] = ()
    producer_ids: Sequence[int] = ()
    #: Only transactions that started longer ago than this.
    duration_ms: Milliseconds = Milliseconds(-1)
    #: A regular expression (RE2's) for the whole transactional id.
    pattern: str = ""


def absent(transactional_id: str, error: ErrorCode, lsn: Lsn) -> Description:
    """An id that is not there, or cannot be asked for here; `error`: what other requests about it are answered."""
    unknown = error is ErrorCode.INVALID_PRODUCER_ID_MAPPING
    return Description(transactional_id, ErrorCode.TRANSACTIONAL_ID_NOT_FOUND if unknown else error, lsn=lsn)


def describe(
    transaction: TransactionMetadata, waiting: Mapping[TopicPartition, None] | None = None, lsn: Lsn = NO_LSN
) -> Description:
    """A transaction as DescribeTransactions has it.  `waiting`: partitions whose marker is missing, while it ends."""
    partitions = transaction.partitions if waiting is None else waiting
    current = transaction.current
    return Description(
        transaction.transactional_id,
        ErrorCode.NONE,
        state=transaction.state.wire_name,
        timeout_ms=transaction.timeout_ms,
        start_timestamp=transaction.start_timestamp,
        producer_id=current.producer_id,
        producer_epoch=current.producer_epoch,
        partitions=tuple(partitions),
        lsn=lsn,
    )


def select(
    transactions: Iterable[tuple[TransactionMetadata, Lsn]], filters: Filters, now: Milliseconds, pace: Pace
) -> Steps[Listing]:
    """The transactional ids that pass every filter, in the order given.

    `transactions`: each with the lsn that an answer about it depends on.
    """
    unknown: dict[str, None] = {}
    states: dict[State, None] = {}
    for name in filters.states:
        yield from pace.spend(1)
        state = BY_WIRE_NAME.get(name)
        if state is None:
            unknown[name] = None
        else:
            states[state] = None
    producer_ids = frozenset(filters.producer_ids)
    try:
        pattern = Pattern(filters.pattern) if filters.pattern else None
    except BadPattern:
        return Listing(ErrorCode.INVALID_REGULAR_EXPRESSION)
    listed: list[Listed] = []
    last = NO_LSN
    for transaction, lsn in transactions:
        last = max(last, lsn)
        if pace.is_used_up(1):
            yield from pace.rest()
        if transaction.state is State.DEAD or (filters.states and transaction.state not in states):
            continue
        if producer_ids and transaction.producer_id not in producer_ids:
            continue
        if filters.duration_ms >= 0 and now - transaction.start_timestamp <= filters.duration_ms:
            continue
        if pattern is None or (yield from pattern.matches(transaction.transactional_id, pace)):
            listed.append(Listed(transaction.transactional_id, transaction.producer_id, transaction.state.wire_name))
    return Listing(ErrorCode.NONE, tuple(unknown), tuple(listed), last)
