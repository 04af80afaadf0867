"""The rules of compaction (facts §6.12): what stays, batch by batch and record by record.

    batch
    data of an aborted transaction          goes
    control batch that ends a transaction   goes when no data of it was met, and its delete horizon has passed
    control batch without a record          goes
    any other control batch                 stays
    last batch of an active producer        stays, if only its header: it has the producer's last sequence
    last batch before the end of the pass   stays, if only its header: it has the last offset
    any other batch without records         goes

    record of a data batch that stays
    behind what the offset map knows        stays
    without a key                           goes
    with a key that has a newer record      goes
    tombstone                               goes when the delete horizon of its batch has passed
    any other                               stays

The delete horizon is the time of the first pass over a batch that keeps a tombstone or a marker that nobody needs, plus
delete.retention.ms.  It stands in the batch (attribute bit 6) in the place of its base timestamp.

Pure: nothing here touches a clock or a file.
"""

from __future__ import annotations

from collections.abc import Iterable
from heapq import heappop, heappush
from typing import Final, NamedTuple

from fencepost.log.cleaner.offset_map import OffsetMap
from fencepost.log.transaction_index import AbortedTransaction
from fencepost.protocol.batch import DELETE_HORIZON, BatchHeader
from fencepost.protocol.control import COMMIT
from fencepost.protocol.types import Epoch, Milliseconds, Offset

LATEST_HORIZON: Final = 2**62
"""Milliseconds.  delete.retention.ms may be as long as an int64 is, and a horizon must be one too; so must the distance
from it to the time of any record."""


class LastBatch(NamedTuple):
    """The last batch of an active producer, and its epoch, which the log must keep."""

    data_offset: Offset | None
    """Last offset of its last data batch under its epoch; None: its epoch is known from a marker only."""
    epoch: Epoch


class Verdict(NamedTuple):
    """The fate of a batch when its log is compacted."""

    records_go: bool
    """All of them, whatever they are."""
    keep_empty: bool
    """The header stays when no record does."""
    needless: bool = False
    """It ends a transaction of which nothing is left: its delete horizon is due."""


class Transactions:
    """The transactions that a pass has met so far.  Batches are shown to it in the order of the log."""

    def __init__(self) -> None:
        self._announced: list[tuple[Offset, AbortedTransaction]] = []
        """Aborted ones that the pass has not come to yet, a heap by their first offset."""
        self._aborted: dict[int, tuple[AbortedTransaction, bool]] = {}
        """producer id -> its aborted transaction, and whether any data of it was met."""
        self._with_data: set[int] = set()
        """Producers of which data was met that is not aborted, since their last marker."""

    def announce(self, aborted: Iterable[AbortedTransaction]) -> None:
        """Tell of aborted transactions that touch what comes next; telling twice does no harm."""
        for each in aborted:
            heappush(self._announced, (each.first_offset, each))

    def is_aborted(self, header: BatchHeader) -> bool:
        """Whether this data batch, which comes next, was aborted."""
        self._begin_up_to(header.last_offset)
        if not header.is_transactional:
            return False
        known = self._aborted.get(header.producer_id)
        if known is None:
            self._with_data.add(header.producer_id)
            return False
        self._aborted[header.producer_id] = known[0], True
        return True

    def end(self, header: BatchHeader, marker_type: int) -> tuple[bool, AbortedTransaction | None]:
        """A marker (COMMIT or ABORT) comes next.

        Whether nothing is left of its transaction, and else the entry that an aborted one keeps in the index.
        """
        self._begin_up_to(header.last_offset)
        if marker_type == COMMIT:
            needless = header.producer_id not in self._with_data
            self._with_data.discard(header.producer_id)
            return needless, None
        aborted, met = self._aborted.pop(header.producer_id, (None, False))
        return (False, aborted) if met else (True, None)

    def _begin_up_to(self, offset: Offset) -> None:
        while self._announced and self._announced[0][0] <= offset:
            aborted = heappop(self._announced)[1]
            self._aborted.setdefault(aborted.producer_id, (aborted, False))


def delete_horizon(header: BatchHeader) -> int | None:
    """From when on (ms) the batch's tombstones and needless markers may go; None if no pass has said so yet."""
    return header.base_timestamp if header.attributes & DELETE_HORIZON else None


def new_horizon(now: Milliseconds, delete_retention_ms: Milliseconds) -> Milliseconds:
    """The delete horizon of a batch that gets one now, in milliseconds."""
    return Milliseconds(min(now + delete_retention_ms, LATEST_HORIZON))


def judge(
    header: BatchHeader, discardable: bool, last: LastBatch | None, upper_bound: Offset, now: Milliseconds
) -> Verdict:
    """The fate of a batch when its log is compacted.

    `discardable`: aborted data, or a control batch that nobody needs.  `last`: of its producer, None if that is not
    active.  `upper_bound`: where the pass ends.
    """
    records_go = discardable
    if header.is_control:
        horizon = delete_horizon(header)
        records_go = discardable and horizon is not None and horizon <= now
    keep_empty = _is_last_of_its_producer(header, last) or header.last_offset + 1 == upper_bound
    return Verdict(records_go, keep_empty, discardable and header.is_control)


def _is_last_of_its_producer(header: BatchHeader, last: LastBatch | None) -> bool:
    if last is None:
        return False
    if last.data_offset is not None:
        return header.last_offset == last.data_offset
    return header.is_control and header.producer_epoch == last.epoch


def stays(
    offset: Offset, key: bytes | None, is_tombstone: bool, newest: OffsetMap, horizon: int | None, now: Milliseconds
) -> bool:
    """Whether a record of a data batch stays.  `horizon`: the delete horizon of its batch in milliseconds, or None."""
    if offset > newest.latest:
        return True
    if key is None or offset < newest.get(key):
        return False
    return not is_tombstone or horizon is None or now < horizon
