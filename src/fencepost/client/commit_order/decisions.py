"""The decision of a reader in commit order about each batch: buffer, deliver or drop.  Pure.

The 2014 design, "READ_COMMITTED": the reader buffers the records of a transaction until it reads the COMMIT, and
exposes them then, or discards them at its ABORT.  Everything goes by producer id, never by epoch, as in Apache Kafka's
own consumers (facts §8.2).  The log does the fencing: it takes no batch and no marker of an older epoch, a newer epoch
goes on with the transaction that is open, and the marker of a producer that was fenced has the epoch after that of its
records.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from enum import Enum, auto
from typing import Final

from fencepost.client.commit_order.position import Position
from fencepost.protocol.batch import BatchHeader
from fencepost.protocol.control import COMMIT, ControlRecord
from fencepost.protocol.types import Offset


class Kind(Enum):
    """The kinds of batches that a reader tells apart."""

    PLAIN = auto()
    """Records outside transactions."""
    TRANSACTIONAL = auto()
    """Records of a transaction."""
    COMMIT_MARKER = auto()
    ABORT_MARKER = auto()
    NOTHING = auto()
    """A batch that compaction has emptied, or a control record that ends no transaction."""


class Step(Enum):
    """The things that a reader does with a batch."""

    DELIVER = auto()
    """Deliver its records at once."""
    BEGIN = auto()
    """A transaction of its producer begins here: keep its records until that ends."""
    KEEP = auto()
    """Keep its records with those of the transaction before it."""
    DELIVER_TRANSACTION = auto()
    """Deliver all records of the transaction that were kept, before anything else of the partition."""
    DROP = auto()
    """Drop the records of the transaction that were kept."""
    PASS = auto()


#: (kind, whether a transaction of its producer is open) -> what is done.
#: A marker without records, or a second one, ends nothing.  An emptied batch begins nothing: compaction keeps such a
#: batch for its producer's last sequence only, and may have removed the marker of its transaction.
STEPS: Final[Mapping[tuple[Kind, bool], Step]] = {
    (Kind.PLAIN, False): Step.DELIVER,
    (Kind.PLAIN, True): Step.DELIVER,
    (Kind.TRANSACTIONAL, False): Step.BEGIN,
    (Kind.TRANSACTIONAL, True): Step.KEEP,
    (Kind.COMMIT_MARKER, False): Step.PASS,
    (Kind.COMMIT_MARKER, True): Step.DELIVER_TRANSACTION,
    (Kind.ABORT_MARKER, False): Step.PASS,
    (Kind.ABORT_MARKER, True): Step.DROP,
    (Kind.NOTHING, False): Step.PASS,
    (Kind.NOTHING, True): Step.PASS,
}


def kind_of(header: BatchHeader, control: ControlRecord | None) -> Kind:
    """The kind of a batch.  `control`: its record, if it is a control batch that has one."""
    if header.is_control:
        if control is None or not control.ends_transaction:
            return Kind.NOTHING
        return Kind.COMMIT_MARKER if control.type == COMMIT else Kind.ABORT_MARKER
    if header.record_count == 0:
        return Kind.NOTHING
    return Kind.TRANSACTIONAL if header.is_transactional else Kind.PLAIN


def first_wanted(begun: Position, marker: int) -> int | None:
    """The first offset that is still to be delivered of a transaction whose commit marker is at `marker`.

    `begun`: where reading began.  None: all of it was delivered before.
    """
    if marker < begun.delivered:
        return None
    return begun.inside + 1 if marker == begun.delivered else 0


def is_surely_open(first: int, looked_at: int, high_watermark: Offset, last_stable_offset: Offset) -> bool:
    """Whether the transaction that began at `first` was open when the leader told these two offsets.

    `looked_at`: up to where batches were looked at without finding its end.  A reader that is behind knows it only of
    the oldest one, which is where the last stable offset is.
    """
    return looked_at >= high_watermark or first == last_stable_offset


def due_again(open_for: float, bound: float, said: int) -> bool:
    """Whether to say (again) that a transaction has been open for longer than `bound`.

    `said`: how often it was.  Each time the time has doubled, so that one of a year is said 16 times with a bound of
    15 minutes.
    """
    return open_for >= bound * (1 << said)


#: Seconds for which a transaction that was seen open is taken to have its end still before it.
_SURE_FOR: Final = 3600.0


def last_hole(batches: Iterable[BatchHeader], expected: int) -> int | None:
    """The offset in front of which a record or a marker is missing last; None if there is no such place.

    `expected`: the offset at which the first batch would begin.  Only compaction leaves holes, and only in front of the
    last stable offset: every transaction that began before one has ended.  A marker that was emptied leaves one, too.
    """
    found = None
    for header in batches:
        if header.base_offset > expected or (header.is_control and header.record_count == 0):
            found = header.base_offset
        expected = header.last_offset + 1
    return found


def may_have_passed_its_end(seen_open_at: float, now: float, again: int) -> bool:
    """Whether compaction, which has left a hole, may have removed the end of a transaction before a reader came to it.

    `seen_open_at`: when its first records were fetched, or later the end of the log without its own.  Compaction takes
    the records of an aborted transaction first, and the marker `delete.retention.ms` (a day by default) after that.  So
    what is read again where it began is right, and what was kept is not: the next commit of the same producer would
    deliver it.  `again`: how often that was done since the end of the log was reached.  Each time there is twice the
    time, so that a reader which needs long to get there does get there.
    """
    return now - seen_open_at > _SURE_FOR * (1 << again)
