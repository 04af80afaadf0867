"""What ListTransactions and DescribeTransactions show (facts §1.10)."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Final, NamedTuple

from fencepost.coordinator.transaction.state import BY_WIRE_NAME, State
from fencepost.coordinator.transaction.transaction import TransactionMetadata
from fencepost.protocol.errors import ErrorCode
from fencepost.protocol.types import Epoch, Milliseconds, ProducerId, TopicPartition


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
    lsn: int = 0


class Listed(NamedTuple):
    """One transactional id as ListTransactions shows it."""

    transactional_id: str
    producer_id: ProducerId
    state: str


class Listing(NamedTuple):
    """`unknown_states`: names in the filter that are no state's."""

    error: ErrorCode
    unknown_states: Sequence[str] = ()
    transactions: Sequence[Listed] = ()
    lsn: int = 0


class Filters(NamedTuple):
    """Empty or -1 filters let everything pass."""

    states: Sequence[str] = ()
    producer_ids: Sequence[int] = ()
    #: Only transactions that started longer ago than this.
    duration_ms: int = -1
    #: A regular expression for the whole transactional id.
    pattern: str = ""


#: The longest pattern that is tried.  A transactional id's name needs less.
LONGEST_PATTERN: Final = 1024


def describe(
    transaction: TransactionMetadata, waiting: Mapping[TopicPartition, None] | None = None, lsn: int = 0
) -> Description:
    """`waiting`: the partitions whose marker is missing, while the transaction is being ended."""
    partitions = transaction.partitions if waiting is None else waiting
    held = transaction.held
    return Description(
        transaction.transactional_id,
        ErrorCode.NONE,
        transaction.state.wire_name,
        transaction.timeout_ms,
        transaction.start_timestamp,
        held.producer_id,
        held.producer_epoch,
        tuple(partitions),
        lsn,
    )


def in_python(pattern: str) -> str:
    """A pattern as Java clients write it: quoted stretches (\\Q...\\E) and named groups ((?<name>...))."""
    told, rest = "", pattern
    while rest:
        if rest.startswith("\\Q"):
            quoted, _, rest = rest[2:].partition("\\E")
            told += re.escape(quoted)
        elif rest.startswith("\\"):
            told, rest = told + rest[:2], rest[2:]
        elif rest.startswith("(?<") and rest[3:4] not in ("=", "!"):
            told, rest = told + "(?P<", rest[3:]
        else:
            told, rest = told + rest[0], rest[1:]
    return told


def select(transactions: Iterable[TransactionMetadata], filters: Filters, now: Milliseconds) -> Listing:
    """Those that pass every filter, in the order given."""
    unknown = tuple(dict.fromkeys(name for name in filters.states if name not in BY_WIRE_NAME))
    states = [BY_WIRE_NAME[name] for name in filters.states if name in BY_WIRE_NAME]
    try:
        pattern = re.compile(in_python(filters.pattern)) if filters.pattern else None
    except (re.error, RecursionError, OverflowError):
        return Listing(ErrorCode.INVALID_REGULAR_EXPRESSION)
    if len(filters.pattern) > LONGEST_PATTERN:
        return Listing(ErrorCode.INVALID_REGULAR_EXPRESSION)

    def passes(transaction: TransactionMetadata) -> bool:
        if transaction.state is State.DEAD or (filters.states and transaction.state not in states):
            return False
        if filters.producer_ids and transaction.producer_id not in filters.producer_ids:
            return False
        if filters.duration_ms >= 0 and now - transaction.start_timestamp <= filters.duration_ms:
            return False
        return pattern is None or pattern.fullmatch(transaction.transactional_id) is not None

    listed = tuple(
        Listed(transaction.transactional_id, transaction.producer_id, transaction.state.wire_name)
        for transaction in transactions
        if passes(transaction)
    )
    return Listing(ErrorCode.NONE, unknown, listed)
