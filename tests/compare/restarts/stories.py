"""What producers wrote to a partition before its node ended, and what is sent to it afterwards, as tables.

Every story is played on a topic of its own.  Producer 0 has a transactional id, producer 1 none.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

from tests.compare.leader.batches import Batch
from tests.compare.leader.steps import (
    HERE,
    Delete,
    End,
    EndOfEpoch,
    Fetch,
    Find,
    Mark,
    Marker,
    Register,
    Renew,
    Step,
    write,
)
from tests.compare.nodes.leader import FOREIGN

ID = "t"
LAST_SEQUENCE = 2**31 - 1


class Story(NamedTuple):
    """Steps before the restart, and after it."""

    name: str
    before: Sequence[Step]
    after: Sequence[Step]


def stories(level: int, how: str) -> Iterator[Story]:
    """Those of a level.  A killed Apache Kafka forgets that records were deleted; that is told of stopped ones only."""
    for story in (*idempotent(), *transactional(level)):
        if how == "stopped" or not any(isinstance(step, Delete) for step in story.before):
            yield story


def _plain(first: int, batches: int, count: int = 1, epoch: int = 0) -> list[Step]:
    """Batches of the producer without a transactional id."""
    return [write(11, Batch(1, epoch, (first + n * count) % (LAST_SEQUENCE + 1), count=count)) for n in range(batches)]


#: what the idempotent producer did -> its steps, its epoch, the sequence that follows
_IDEMPOTENT: dict[str, tuple[list[Step], int, int]] = {
    "nothing": ([], 0, 0),
    "one batch": (_plain(0, 1), 0, 1),
    "two batches of three": (_plain(0, 2, 3), 0, 6),
    "five batches": (_plain(0, 5), 0, 5),
    "seven batches": (_plain(0, 7), 0, 7),
    "a first batch in the middle": (_plain(40, 2), 0, 42),
    "batches around the last sequence": (_plain(LAST_SEQUENCE - 2, 3, 2), 0, 3),
    "two epochs": ([*_plain(0, 3), *_plain(0, 2, epoch=3)], 3, 2),
    "batches that were deleted": ([*_plain(0, 3), Delete(2, ((0, -1),))], 0, 3),
    "batches of which some were deleted": ([*_plain(0, 3, 2), Delete(2, ((0, 3),))], 0, 6),
    "batches, then a marker": ([*_plain(0, 2), Mark(1, (Marker(1, 0, True),))], 0, 2),
    "batches, then a marker of a later epoch": ([*_plain(0, 2), Mark(1, (Marker(1, 1, False),))], 1, 0),
    "a marker alone": ([Mark(1, (Marker(1, 2, True, coordinator_epoch=3),))], 2, 0),
    "refused batches": ([*_plain(0, 2), write(11, Batch(1, 0, 9)), write(11, Batch(1, 0, 2, defect="crc"))], 0, 2),
    "batches of a producer that nobody knows": ([write(11, Batch(FOREIGN, 0, n)) for n in range(2)], 0, 0),
    "the last epoch": (_plain(0, 2, epoch=32767), 32767, 2),
}


def idempotent() -> Iterator[Story]:
    for name, (before, epoch, following) in _IDEMPOTENT.items():
        for first in range(-5, 3):
            sequence = (following + first) % (LAST_SEQUENCE + 1) if following + first >= -3 else 0
            batch = Batch(1, epoch, sequence, count=1 + first % 2)
            after = [write(9, batch), write(13, batch), write(11, Batch(1, epoch, following)), *_reads()]
            yield Story(f"{name}; {batch.count} from {sequence}", before, after)
        for other in (epoch - 1, epoch + 1):
            if 0 <= other <= LAST_SEQUENCE and other <= 32767:
                after = [write(11, Batch(1, other, sequence)) for sequence in (following, following + 1, 0, 1, 0)]
                yield Story(f"{name}; epoch {other}", before, [*after, *_reads()])
        for marked in (0, epoch, epoch + 1):
            for coordinator in (0, 3):
                if marked <= 32767:
                    mark = Mark(1, (Marker(1, marked, True, coordinator_epoch=coordinator),))
                    after = [mark, *_plain(following, 1, epoch=marked), *_plain(0, 1, epoch=marked), mark]
                    yield Story(f"{name}; marker {marked} of {coordinator}", before, after)
        yield Story(
            f"{name}; transactional",
            before,
            [write(11, Batch(1, epoch, following, True), of=ID), write(11, Batch(1, epoch, following))],
        )


def _reads() -> list[Step]:
    every = 1 << 20
    found: list[Step] = [Fetch(12, ((0, offset, every), (1, 0, every)), i) for offset in (0, 2, 9) for i in (0, 1)]
    found += [Find(8, ((0, time), (1, time)), i) for time in (-1, -2, -4, 0, 1) for i in (0, 1)]
    return [*found, EndOfEpoch(4, ((0, -1, -1),))]


def _write(version: int, sequence: int, count: int = 1, epoch: int = 0, partition: int = 0) -> Step:
    return write(version, Batch(0, epoch, sequence, True, count), partition, of=ID)


def _transactional(version: int, end: int) -> dict[str, tuple[list[Step], int, int]]:
    """What the transactional producer did -> its steps, its epoch, the sequence that follows."""
    bump = end >= 5
    after_end = (1, 0) if bump else (0, 2)
    one: list[Step] = [Register(3, ID, 0, 0)] if version < 12 else []
    two: list[Step] = [*one, _write(version, 0), _write(version, 1)]
    again: list[Step] = [Register(3, ID, 0, after_end[0])] if version < 12 else []
    following = _write(version, after_end[1], epoch=after_end[0])
    return {
        "registered": ([Register(3, ID, 0, 0)], 0, 0),
        "open with two batches": (two, 0, 2),
        "open with seven batches": ([*one, *(_write(version, n) for n in range(7))], 0, 7),
        "open with another partition": ([*one, Register(3, ID, 0, 0, (1,)), *two, _write(version, 0, 2, 0, 1)], 0, 2),
        "open behind plain batches": ([*_plain(0, 2), *two, *_plain(2, 1)], 0, 2),
        "open with a refused batch": ([*one, _write(version, 0), _write(version, 5)], 0, 1),
        "open with a deleted beginning": ([*_plain(0, 2), *two, Delete(2, ((0, 3),))], 0, 2),
        "refused only": ([write(11, Batch(0, 0, 0, True), of=ID), write(3, Batch(0, 0, 3, True), of=ID)], 0, 0),
        "committed": ([*two, End(end, ID, 0, 0)], *after_end),
        "aborted": ([*two, End(end, ID, 0, 0, False)], *after_end),
        "aborted, and deleted": ([*two, End(end, ID, 0, 0, False), Delete(2, ((0, -1),))], *after_end),
        "aborted by the next instance": ([*two, Renew(4, ID, -1, -1), Renew(4, ID, -1, -1)], 2, 0),
        "open after a commit": ([*two, End(end, ID, 0, 0), *again, following], after_end[0], after_end[1] + 1),
        "open after an abort": ([*two, End(end, ID, 0, 0, False), *again, following], after_end[0], after_end[1] + 1),
        "open, and marked by an admin": ([*two, Mark(1, (Marker(0, 0, False),))], 0, 2),
        "open, and marked by an admin's later epoch": (
            [*two, Mark(1, (Marker(0, 3, True, coordinator_epoch=0),))],
            3,
            0,
        ),
    }


def transactional(level: int) -> Iterator[Story]:
    for version, end in ((11, 4), (12, 5)) if level else ((11, 4),):
        for name, (before, epoch, following) in _transactional(version, end).items():
            title = f"v{version}: {name}"
            for probe, after in _probes(epoch, following, version, end):
                yield Story(f"{title}; {probe}", before, [*after, *_reads()])


def _probes(epoch: int, following: int, version: int, end: int) -> Iterator[tuple[str, list[Step]]]:
    """What is sent after the restart by a producer whose next batch would be this one."""
    for ahead in range(-3, 3):
        sequence = max(following + ahead, 0)
        yield f"from {sequence}", [_write(version, sequence, 1, epoch)] * 2 + [End(end, ID, 0, epoch)]
    for other in {max(epoch - 1, 0), epoch + 1} - {epoch}:
        yield f"epoch {other}", [_write(version, s, 1, other) for s in (following, 0, 1)] + [End(end, ID, 0, epoch)]
    for commit in (True, False):
        tail = [_write(version, s, 1, e) for e in (epoch, epoch + 1) for s in (following, 0)]
        yield f"end {commit}", [End(end, ID, 0, epoch, commit), *tail, End(end, ID, 0, epoch, commit)]
    for number in (version, 3, 10):
        yield f"unregistered v{number}", [_write(number, 0, 1, epoch, 1), _write(number, following, 1, epoch, 1)]
    yield "plain", [write(11, Batch(0, epoch, following)), write(11, Batch(0, epoch, following + 1))]
    yield "next instance", [Renew(4, ID, -1, -1), Renew(4, ID, -1, -1), _write(version, following, 1, epoch)]
    for marked in (epoch, epoch + 1):
        for transaction_version in (0, 2):
            marker = Marker(0, marked, True, ((HERE, (0, 1)),), 9, transaction_version)
            yield f"marker {marked} {transaction_version}", [Mark(2, (marker,)), _write(version, following, 1, epoch)]
