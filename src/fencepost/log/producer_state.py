"""What a partition knows of its producers, and which batches it takes from them (facts §6.1-§6.5, §6.8).

The checks, in their order, for a batch with a producer id:

    from a client     duplicate of one of the last five          accepted, nothing appended
                      transactional, none open here, guard wrong  48 (an older epoch: 47)
                      guard of another transaction than the open  48
                      epoch older than the stored one             47
                      sequence does not follow                    45
                      not transactional, but one is open          48
                      would open a transaction with epoch -1      87
    from a            epoch older                                 47
    coordinator       transactional, none open here, guard wrong  48
    a marker          transaction version -1                      -1
                      epoch (see `check_marker`)                  47
                      coordinator epoch older                     52

Pure: nothing here touches a clock or a file.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field
from enum import Enum
from typing import NamedTuple

from fencepost.protocol.batch import MAX_INT32, NO_SEQUENCE, BatchHeader, next_sequence
from fencepost.protocol.errors import ErrorCode
from fencepost.protocol.types import (
    MAX_PRODUCER_EPOCH,
    NO_EPOCH,
    NO_LEADER_EPOCH,
    NO_TIMESTAMP,
    Epoch,
    LeaderEpoch,
    Milliseconds,
    Offset,
    ProducerId,
)

NO_TRANSACTION_VERSION = -1
WINDOW = 5
"""Batches per producer that are remembered, as many as a producer may have in flight."""


class Origin(Enum):
    """The origin of an append: a client with records, or a coordinator with its journal and its markers."""

    CLIENT = 1
    COORDINATOR = 2


class BatchMetadata(NamedTuple):
    """A remembered batch of a producer: its last sequence and offset, and its timestamp in milliseconds."""

    last_sequence: int
    last_offset: Offset
    offset_delta: int
    timestamp: Milliseconds

    @property
    def first_sequence(self) -> int:
        first = self.last_sequence - self.offset_delta
        return first if first >= 0 else first + MAX_INT32 + 1

    @property
    def first_offset(self) -> Offset:
        return Offset(self.last_offset - self.offset_delta)


@dataclass(slots=True)
class ProducerEntry:
    """A producer's state in this partition: its epoch, its last batches and its open transaction, if any."""

    producer_id: ProducerId
    epoch: Epoch = NO_EPOCH
    coordinator_epoch: LeaderEpoch = NO_LEADER_EPOCH
    last_timestamp: Milliseconds = NO_TIMESTAMP
    open_first_offset: Offset | None = None
    """First offset of its open transaction here; None if none is open."""
    batches: deque[BatchMetadata] = field(default_factory=lambda: deque(maxlen=WINDOW))
    opened_by: VerificationGuard | None = None
    """The guard of the write that opened its transaction here."""
    last_seen: int = -1
    """When the broker last heard of it (ms), by its own clock: record timestamps are the client's (facts §13.7, 9)."""

    @property
    def last_sequence(self) -> int:
        return self.batches[-1].last_sequence if self.batches else NO_SEQUENCE

    def is_expired(self, now: Milliseconds, expiration_ms: Milliseconds) -> bool:
        """Whether it has no open transaction and has been silent for `expiration_ms` (facts §6.11)."""
        return self.open_first_offset is None and now - max(self.last_timestamp, self.last_seen) >= expiration_ms

    def duplicate_of(self, header: BatchHeader) -> BatchMetadata | None:
        """The remembered batch that this one repeats; None if it repeats none."""
        if header.producer_epoch != self.epoch:
            return None
        last = header.last_sequence
        for batch in self.batches:
            if batch.last_sequence == last and batch.first_sequence == header.base_sequence:
                return batch
        return None


class VerificationGuard:
    """Proof that a transaction was looked up for this write and not ended since (KIP-890 part 1; facts §6.6)."""

    __slots__ = ()


@dataclass(slots=True)
class Verification:
    """The pending verification of a producer's writes: its guard and the lowest sequence.  One per producer id."""

    guard: VerificationGuard
    epoch: Epoch
    lowest_sequence: int
    supports_epoch_bump: bool
    timestamp: Milliseconds


def check_sequence(
    entry: ProducerEntry | None, verification: Verification | None, header: BatchHeader
) -> ErrorCode | None:
    """OUT_OF_ORDER_SEQUENCE_NUMBER if the batch cannot be the next of its producer (facts §6.4), else None."""
    sequence = header.base_sequence
    if verification is not None:
        if entry is None and verification.supports_epoch_bump and sequence != 0:
            return ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
        if sequence > verification.lowest_sequence >= 0 and verification.epoch == header.producer_epoch:
            return ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    if entry is None or entry.epoch == NO_EPOCH:
        return None
    if header.producer_epoch != entry.epoch:
        return None if sequence == 0 else ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    last = entry.last_sequence
    expected = 0 if last == NO_SEQUENCE else next_sequence(last, 1)
    return None if sequence == expected else ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER


def check_data(
    entry: ProducerEntry | None,
    verification: Verification | None,
    guard: VerificationGuard | None,
    header: BatchHeader,
    origin: Origin,
    verification_enabled: bool,
) -> ErrorCode | None:
    """The error of a data batch with a producer id; None if it is taken.  Duplicates have been answered before."""
    epoch, transactional = NO_EPOCH if entry is None else entry.epoch, header.is_transactional
    open_here = entry is not None and entry.open_first_offset is not None and epoch == header.producer_epoch
    if header.producer_epoch < epoch:
        return ErrorCode.INVALID_PRODUCER_EPOCH
    if transactional and verification_enabled:
        if entry is not None and open_here:
            # Verified for an earlier transaction of this epoch, it would join the next one: positions have no sequence.
            stale = guard is not None and guard is not entry.opened_by
        else:
            stale = verification is None or guard is not verification.guard
        if stale:
            return ErrorCode.INVALID_TXN_STATE
    if origin is Origin.COORDINATOR:
        return None
    refused = check_sequence(entry, verification if transactional else None, header)
    if refused is not None:
        return refused
    if not transactional and entry is not None and entry.open_first_offset is not None:
        return ErrorCode.INVALID_TXN_STATE
    if transactional and header.producer_epoch < 0:
        # Where nothing is verified.  Apache Kafka takes it; but an admin ends a transaction by a marker of its epoch.
        return ErrorCode.INVALID_RECORD
    return None


def check_marker(
    entry: ProducerEntry | None, epoch: Epoch, coordinator_epoch: LeaderEpoch, transaction_version: int
) -> ErrorCode | None:
    """The error of a transaction marker; None if it is taken (facts §5.3).

    From transaction.version 2 on every transaction has an epoch of its own, and its marker a larger one: an equal epoch
    is a marker that is repeated, fine once no transaction is open.
    """
    if transaction_version == NO_TRANSACTION_VERSION:
        return ErrorCode.UNKNOWN_SERVER_ERROR
    if entry is None:
        return ErrorCode.INVALID_PRODUCER_EPOCH if epoch < NO_EPOCH else None
    if transaction_version >= 2:
        closed = entry.open_first_offset is None
        if epoch < entry.epoch or (epoch == entry.epoch and not closed and epoch != MAX_PRODUCER_EPOCH):
            return ErrorCode.INVALID_PRODUCER_EPOCH
    elif epoch < entry.epoch:
        return ErrorCode.INVALID_PRODUCER_EPOCH
    if coordinator_epoch < entry.coordinator_epoch:
        return ErrorCode.TRANSACTION_COORDINATOR_FENCED
    return None
