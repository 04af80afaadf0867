"""All producers of one partition, their open transactions, and the first unstable offset (facts §6.6, §6.8)."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final, NamedTuple, TypeAlias

from fencepost.log.producer_state import (
    BatchMetadata,
    Origin,
    ProducerEntry,
    Verification,
    VerificationGuard,
    check_data,
    check_marker,
)
from fencepost.log.transaction_index import AbortedTransaction
from fencepost.protocol.batch import BatchHeader
from fencepost.protocol.errors import ErrorCode
from fencepost.protocol.types import NO_EPOCH, NO_OFFSET, Epoch, LeaderEpoch, Milliseconds, Offset, ProducerId
from fencepost.runtime import Work

_AT_ONCE: Final = 1000
"""Producers that are looked at in one step."""
Ending: TypeAlias = tuple[LeaderEpoch, bool]
"""How a marker ends a transaction: the epoch of its coordinator, and whether it commits."""


class CompletedTransaction(NamedTuple):
    """A transaction that a marker ended here."""

    producer_id: ProducerId
    first_offset: Offset
    marker_offset: Offset
    committed: bool


class ActiveProducer(NamedTuple):
    """A producer as DescribeProducers shows it."""

    producer_id: ProducerId
    producer_epoch: Epoch
    last_sequence: int
    last_timestamp: Milliseconds
    coordinator_epoch: LeaderEpoch
    open_first_offset: Offset


class Producers:
    """The state of a partition's producers.  Changed only by what was appended, in order; `check_*` change nothing."""

    def __init__(self) -> None:
        self.entries: dict[ProducerId, ProducerEntry] = {}
        self._verifications: dict[ProducerId, Verification] = {}
        self._open: dict[Offset, ProducerId] = {}
        """First offset -> producer id of open transactions, in order of the offsets."""
        self._unreplicated: dict[Offset, Offset] = {}
        """First offset -> marker offset of ended transactions whose marker readers may not see yet."""

    # Verification (KIP-890)

    def start_verification(
        self, producer_id: ProducerId, epoch: Epoch, base_sequence: int, supports_epoch_bump: bool, now: Milliseconds
    ) -> VerificationGuard | ErrorCode | None:
        """Begin to verify a transactional write.

        A guard to hand in with the append; None if its transaction is already open here; INVALID_PRODUCER_EPOCH.
        `supports_epoch_bump`: markers of its transactions have an epoch of their own.  Where requests of both kinds are
        verified at once, as after a change of transaction.version, the next marker ends all of it (Apache Kafka goes by
        the first request, and takes the other one, late, into the next transaction).
        """
        entry = self.entries.get(producer_id)
        if entry is not None:
            if epoch < entry.epoch:
                return ErrorCode.INVALID_PRODUCER_EPOCH
            if epoch == entry.epoch and entry.open_first_offset is not None:
                return None
        known = self._verifications.get(producer_id)
        if known is None:
            known = Verification(VerificationGuard(), epoch, base_sequence, supports_epoch_bump, now)
            self._verifications[producer_id] = known
        elif epoch > known.epoch:
            known.epoch, known.lowest_sequence = epoch, base_sequence
            known.supports_epoch_bump = supports_epoch_bump
        elif epoch == known.epoch:
            known.lowest_sequence = min(known.lowest_sequence, base_sequence)
            known.supports_epoch_bump &= supports_epoch_bump
        return known.guard

    # Checks

    def duplicate_of(self, header: BatchHeader) -> BatchMetadata | None:
        entry = self.entries.get(header.producer_id)
        return None if entry is None else entry.duplicate_of(header)

    def check_data(
        self, header: BatchHeader, guard: VerificationGuard | None, origin: Origin, verification_enabled: bool
    ) -> ErrorCode | None:
        entry = self.entries.get(header.producer_id)
        verification = self._verifications.get(header.producer_id)
        return check_data(entry, verification, guard, header, origin, verification_enabled)

    def check_marker(
        self, header: BatchHeader, coordinator_epoch: LeaderEpoch, transaction_version: int
    ) -> ErrorCode | None:
        entry = self.entries.get(header.producer_id)
        return check_marker(entry, header.producer_epoch, coordinator_epoch, transaction_version)

    # What was appended

    def data_appended(self, header: BatchHeader, base_offset: Offset, now: Milliseconds) -> None:
        """Take in a data batch with a producer id that is in the log at `base_offset`."""
        entry = self._entry(header, now)
        entry.last_timestamp = header.max_timestamp
        if header.base_sequence >= 0:
            delta = header.last_offset_delta
            entry.batches.append(
                BatchMetadata(header.last_sequence, Offset(base_offset + delta), delta, header.max_timestamp)
            )
        if header.is_transactional:
            verification = self._verifications.pop(header.producer_id, None)
            if entry.open_first_offset is None:
                entry.open_first_offset = base_offset
                entry.opened_by = None if verification is None else verification.guard
                self._open[base_offset] = header.producer_id

    def marker_appended(
        self, header: BatchHeader, offset: Offset, coordinator_epoch: LeaderEpoch, committed: bool, now: Milliseconds
    ) -> CompletedTransaction | None:
        """Take in a marker that is in the log at `offset`; returns the transaction that it ended here, if any."""
        entry = self._entry(header, now)
        entry.coordinator_epoch = coordinator_epoch
        entry.last_timestamp = header.max_timestamp
        verification = self._verifications.get(header.producer_id)
        # A verification under the marker's own (bumped) epoch belongs to the next transaction.
        if verification is not None and not (
            verification.supports_epoch_bump and verification.epoch == header.producer_epoch
        ):
            del self._verifications[header.producer_id]
        first = entry.open_first_offset
        if first is None:
            return None
        entry.open_first_offset = None
        del self._open[first]
        self._unreplicated[first] = offset
        return CompletedTransaction(header.producer_id, first, offset, committed)

    def _entry(self, header: BatchHeader, now: Milliseconds) -> ProducerEntry:
        entry = self.entries.get(header.producer_id)
        if entry is None:
            entry = self.entries[header.producer_id] = ProducerEntry(header.producer_id, header.producer_epoch)
        elif entry.epoch != header.producer_epoch:
            entry.epoch = header.producer_epoch
            entry.batches.clear()
        entry.last_seen = now
        return entry

    # Stability

    def last_stable_offset_at(self, completed: CompletedTransaction) -> Offset:
        """The last stable offset as of this completion, for the aborted-transaction index."""
        return next(iter(self._open)) if self._open else Offset(completed.marker_offset + 1)

    def aborted(self, completed: CompletedTransaction) -> AbortedTransaction:
        """The index entry of a transaction that was aborted."""
        stable = self.last_stable_offset_at(completed)
        return AbortedTransaction(completed.producer_id, completed.first_offset, completed.marker_offset, stable)

    def high_watermark_advanced(self, high_watermark: Offset) -> None:
        if self._unreplicated:
            self._unreplicated = {f: marker for f, marker in self._unreplicated.items() if marker >= high_watermark}

    @property
    def first_unstable_offset(self) -> Offset | None:
        """First offset of the earliest transaction that is open, or whose end is not shown yet; None without any."""
        first = next(iter(self._open)) if self._open else None
        if self._unreplicated:
            earliest = min(self._unreplicated)
            return earliest if first is None else min(first, earliest)
        return first

    def open_transactions(self) -> list[tuple[ProducerId, Offset]]:
        """Producer id and first offset of every open transaction, earliest first."""
        return [(producer_id, first) for first, producer_id in self._open.items()]

    def is_late(self, before: Milliseconds) -> bool:
        """Whether a transaction is open whose producer has not been heard of since `before` (milliseconds)."""
        return any(self.entries[producer_id].last_seen < before for producer_id in self._open.values())

    def active(self) -> Iterator[ActiveProducer]:
        """The producers that there are now, each as it is when it is taken."""
        for entry in list(self.entries.values()):
            yield ActiveProducer(
                producer_id=entry.producer_id,
                producer_epoch=entry.epoch,
                last_sequence=entry.last_sequence,
                last_timestamp=entry.last_timestamp,
                coordinator_epoch=entry.coordinator_epoch,
                open_first_offset=NO_OFFSET if entry.open_first_offset is None else entry.open_first_offset,
            )

    # Expiry and loading

    def expire(self, now: Milliseconds, expiration_ms: Milliseconds) -> Work[None]:
        """Forget producers without an open transaction that were silent for `expiration_ms` (facts §6.11).

        There may be very many: a step for each thousand.
        """
        for number, producer_id in enumerate(list(self.entries), 1):
            entry = self.entries.get(producer_id)
            if entry is not None and entry.is_expired(now, expiration_ms):
                del self.entries[producer_id]
            if not number % _AT_ONCE:
                yield
        for number, producer_id in enumerate(list(self._verifications), 1):
            verification = self._verifications.get(producer_id)
            if verification is not None and now - verification.timestamp >= expiration_ms:
                del self._verifications[producer_id]
            if not number % _AT_ONCE:
                yield

    def load(self, entries: list[ProducerEntry]) -> None:
        """Begin with the producers of a snapshot."""
        self.entries = {entry.producer_id: entry for entry in entries}
        opened = [(e.open_first_offset, e.producer_id) for e in entries if e.open_first_offset is not None]
        self._open = dict(sorted(opened))
        self._unreplicated = {}
        self._verifications = {}

    def epoch_of(self, producer_id: ProducerId) -> Epoch:
        entry = self.entries.get(producer_id)
        return NO_EPOCH if entry is None else entry.epoch
