"""Scenarios for the leader of a partition that are written down: each a few steps on a topic of its own."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

from tests.compare.leader.batch_tables import converted, disagreeing, epochless, unreadable
from tests.compare.leader.batches import DEFECTS, Batch
from tests.compare.leader.scenario import ID, Scenario, before_writing
from tests.compare.leader.steps import (
    HERE,
    Delete,
    End,
    EndOfEpoch,
    Fetch,
    Find,
    Mark,
    Marker,
    Produce,
    Register,
    Step,
    write,
)
from tests.compare.nodes.leader import FOREIGN

from fencepost.protocol.compression import Compression

PRODUCE_VERSIONS = range(3, 14)
LAST_SEQUENCE = 2**31 - 1


def scenarios(level: int) -> Iterator[Scenario]:
    yield from defects(level)
    yield from idempotent()
    yield from transactional(level)
    yield from around()
    yield from unreadable(level)
    yield from epochless(level)
    yield from disagreeing()
    yield from configured()
    yield from converted()
    yield from markers()
    yield from reads()


def defects(level: int) -> Iterator[Scenario]:
    """Every defect by every kind of producer, between good batches."""
    newest = 13 if level == 2 else 11
    for defect in DEFECTS:
        for who in ("nobody", "idempotent", "transactional"):
            steps: list[Step] = before_writing(level, newest) if who == "transactional" else []
            for n, version in enumerate((3, 7, 8, newest)):
                batch = _good(who, n, 2)
                name = ID if who == "transactional" else None
                # The first one is good, so that its transaction is open here.
                steps.append(write(newest if not n else version, batch, of=name))
                bad = replace(_good(who, n + 1, 2), defect=defect)
                steps.append(write(version, bad, of=name))
            yield Scenario(f"{defect} of {who}", steps)


def _good(who: str, number: int, count: int) -> Batch:
    if who == "nobody":
        return Batch(count=count)
    return Batch(0 if who == "transactional" else 1, 0, number * count, who == "transactional", count)


def idempotent() -> Iterator[Scenario]:
    """Sequences and epochs of a producer without transactions."""
    for count in (1, 3):
        firsts = [write(9, Batch(1, 0, n * count, count=count)) for n in range(7)]
        again = [write(v, Batch(1, 0, n * count, count=count)) for n in range(7) for v in (3, 13)]
        wrong = [write(9, Batch(1, 0, s, count=c)) for s in (1, 8, 9, 30, 0) for c in (1, 2, 3, 4)]
        yield Scenario(f"repeats of {count}", [*firsts, *again, *wrong])
    for first in (0, 1, 5, LAST_SEQUENCE - 1, LAST_SEQUENCE):
        for producer in (1, FOREIGN):
            one = [write(11, Batch(producer, 0, first, count=2)), write(11, Batch(producer, 0, first, count=2))]
            following = (first + 2) % (LAST_SEQUENCE + 1)
            rest = [write(11, Batch(producer, 0, following + n)) for n in (1, 0, 0, 1, -1)]
            yield Scenario(f"first sequence {first} of {producer}", [*one, *rest])
    steps: list[Step] = [write(9, Batch(1, 3, 0)), write(9, Batch(1, 3, 1))]
    for epoch in (2, 4, 3, 5, -1, 4, 32767, 32766):
        steps += [write(9, Batch(1, epoch, sequence)) for sequence in (2, 1, 0, 0, 1, -1)]
    yield Scenario("epochs", steps)
    for first in (-1, -2, 0):
        for epoch in (-1, 0):
            for producer in (1, -1, -2, FOREIGN):
                batch = Batch(producer, epoch, first)
                yield Scenario(
                    f"odd {producer} {epoch} {first}", [write(9, batch), write(13, batch), write(9, Batch())]
                )


def transactional(level: int) -> Iterator[Scenario]:
    """One transaction, and everything that may come between its writes."""
    for version in PRODUCE_VERSIONS:
        for registered in (True, False):
            for first in (0, 3, -1):
                opening: list[Step] = [Register(3, ID, 0, 0)] if registered else []
                yield Scenario(
                    f"v{version} registered={registered} first={first}",
                    [
                        *opening,
                        *(write(version, Batch(0, 0, first + n, transactional=True), of=ID) for n in (0, 1, 1, 3)),
                        write(version, Batch(0, 0, first + 2), of=ID),
                        write(version, Batch(1, 0, 1), 1),
                        End(4, ID, 0, 0),
                        write(version, Batch(0, 0, first + 2, transactional=True), of=ID),
                        write(version, Batch(0, 0, 0, transactional=True), of=ID),
                        write(version, Batch(0, 0, 0, transactional=True), 1, of=ID),
                        write(version, Batch(0, 0, 1), 1),
                    ],
                )
        for name in (None, "", "other", ID):
            for opened in (True, False):
                begin: list[Step] = [Register(3, ID, 0, 0), write(11, Batch(0, 0, 0, True), of=ID)]
                following = Batch(0, 0, 1 if opened else 0, True)
                yield Scenario(
                    f"v{version} by {name!r} opened={opened}",
                    [*(begin if opened else []), write(version, following, of=name), write(version, Batch(), of=name)],
                )
    for version in (3, 11, 12, 13):
        for acks in (-1, 0, 1, 2, -2):
            for kind in ("", "crc", "sequence -1", "count + 1", "control", "empty"):
                good, bad = Batch(0, 0, 0, True), Batch(0, 0, 0, True, defect=kind)
                yield Scenario(
                    f"v{version} acks={acks} {kind}",
                    [
                        *before_writing(level, version),
                        write(version, bad, of=ID, acks=acks),
                        write(version, good, of=ID),
                        write(version, Batch(defect=kind), 1, acks=acks),
                    ],
                )
    for epoch in (-1, 1, 2):
        yield Scenario(
            f"epoch {epoch}",
            [
                Register(3, ID, 0, 0),
                *(write(v, Batch(0, epoch, s, True), of=ID) for v in (11, 3, 12) for s in (0, 1)),
                *(write(11, Batch(0, 0, s, True), of=ID) for s in (0, 1, 0)),
                *(write(v, Batch(0, epoch, s, True), of=ID) for v in (11, 3, 12) for s in (0, 2)),
                End(4, ID, 0, 0),
            ],
        )


def around() -> Iterator[Scenario]:
    """Requests with several partitions, topics that are not there, internal ones."""
    good, crc, tx = Batch(), Batch(defect="crc"), Batch(0, 0, 0, True)
    for version in PRODUCE_VERSIONS:
        mixed = ((0, good, HERE), (1, crc, HERE), (7, good, HERE), (-1, good, HERE), (0, good, "unknown-topic-x"))
        internal = ((0, good, "__consumer_offsets"), (0, good, "__transaction_state"), (1, good, HERE))
        two = ((0, tx, HERE), (1, Batch(1, 0, 0, True), HERE))
        part = ((0, tx, HERE), (1, Batch(1, 0, 0), HERE), (1, good, HERE), (5, tx, HERE))
        yield Scenario(
            f"mixed v{version}",
            [
                Produce(version, mixed),
                Produce(version, internal),
                Produce(version, ((0, good, HERE), (0, Batch(count=2), HERE))),
                Produce(version, two, ID),
                Produce(version, part, ID),
                Produce(version, part),
                Produce(version, ((0, tx, HERE), (1, Batch(-1, -1, -1, True), HERE)), ID),
                Produce(version, ((0, tx, HERE), (1, Batch(0, 1, 0, True), HERE)), ID),
                Produce(version, ()),
                Produce(version, ((0, Batch(0, 0, 1, True), "__consumer_offsets"), (0, good, HERE)), ID),
                Produce(version, mixed, acks=0),
                Produce(version, ((0, good, HERE),), acks=0),
                Produce(version, mixed, acks=3),
            ],
        )


def configured() -> Iterator[Scenario]:
    """Topic settings that a batch is measured by."""
    for codec in Compression:
        steps: list[Step] = [write(v, Batch(count=2, compression=codec)) for v in PRODUCE_VERSIONS]
        yield Scenario(f"codec {codec.name}", steps)
        yield Scenario(f"codec {codec.name}, stamped", steps[-4:], (("message_timestamp_type", "LogAppendTime"),))
        yield Scenario(f"codec {codec.name}, compacted", steps[-4:], (("cleanup_policy", "compact"),))
    sizes = [write(v, Batch(1, 0, 0, size=size)) for v in (3, 8, 13) for size in (400, 340, 330, 320, 310, 10)]
    yield Scenario("size", sizes, (("max_message_bytes", "400"),))
    yield Scenario("size, repeated", [*sizes[-1:], *sizes], (("max_message_bytes", "400"),))
    segment, most = 1 << 20, 2 << 20
    filling: list[Step] = [
        write(v, Batch(*pair, size=size))
        for v in (3, 8, 13)
        for pair in ((-1, -1, -1), (1, 0, 0), (1, 0, 7), (1, 1, 1))
        for size in (*range(segment - 85, segment - 60, 5), segment, most)
    ]
    yield Scenario("segment", filling, (("segment_bytes", str(segment)), ("max_message_bytes", str(most))))
    hour = 3_600_000
    times = (0, hour + 1, 2 * hour - 60_000, 2 * hour + 60_000, 30 * 24 * hour, -1000 * hour, -(10**15))
    for configs in (
        (),
        (("message_timestamp_type", "LogAppendTime"),),
        (("message_timestamp_before_max_ms", str(10 * hour)), ("message_timestamp_after_max_ms", str(5 * hour))),
    ):
        steps = [write(v, Batch(count=c, time=time)) for time in times for v, c in ((3, 1), (13, 2))]
        yield Scenario(f"times {configs}", steps, configs)
    for policy in ("compact", "compact,delete"):
        steps = [write(v, Batch(count=2, key=key)) for v in (3, 8, 13) for key in (None, b"", b"k")]
        yield Scenario(f"keys, {policy}", [*steps, Delete(2, ((0, 1),))], (("cleanup_policy", policy),))


def markers() -> Iterator[Scenario]:
    """Markers that an admin sends, over every epoch relation."""
    opened: list[Step] = [Register(3, ID, 0, 0), write(11, Batch(0, 0, 0, True), of=ID)]
    for begin in ([], opened):
        for version in (1, 2):
            for level in (0, 1, 2) if version == 2 else (0,):
                for commit in (True, False):
                    sent = [
                        Mark(version, (Marker(0, epoch, commit, transaction_version=level, coordinator_epoch=c),))
                        for epoch, c in ((0, 0), (1, 0), (1, 0), (1, 5), (0, 5), (1, 4), (2, -1), (2, 5), (32767, 5))
                    ]
                    sent += [Mark(version, (Marker(0, 32767, commit, transaction_version=level),))] * 2
                    yield Scenario(f"markers v{version} level {level} {commit} after {len(begin)}", [*begin, *sent])
    both, nowhere = ((HERE, (0, 1)),), (("unknown-topic-x", (0,)), (HERE, (0, 9, -1)))
    odd = [
        Mark(1, ()),
        Mark(1, (Marker(0, 0, True, ()),)),
        Mark(1, (Marker(0, 0, True, ((HERE, ()),)),)),
        Mark(1, (Marker(0, 0, True, nowhere),)),
        Mark(1, (Marker(-1, 0, True),)),
        Mark(1, (Marker(0, -1, True),)),
        Mark(1, (Marker(-2, 0, True),)),
        Mark(1, (Marker(FOREIGN, 3, False, both),)),
        Mark(1, (Marker(0, 0, True, both), Marker(1, 0, False, both))),
        Mark(1, (Marker(0, 1, True, both), Marker(0, 0, False, both))),
        Mark(1, (Marker(0, 2, True), Marker(0, 3, False, ((HERE, (1,)),)))),
        Mark(1, (Marker(0, 4, True, ()), Marker(0, 4, False))),
        Mark(2, (Marker(0, 5, True, both, -1), Marker(0, 5, True, both, -2))),
        Mark(2, (Marker(0, 6, True, transaction_version=3), Marker(1, 6, True, transaction_version=-1))),
        *(Mark(2, (Marker(p, 6, True, nowhere, transaction_version=v),)) for p in (0, -2) for v in (-1, -2)),
        *(Mark(1, (Marker(p, e, True),)) for p in (-2, 0, FOREIGN) for e in (-2, -1)),
        *(Mark(1, (Marker(p, e, True, (("__consumer_offsets", (0,)),)),)) for p in (0, -1, -2) for e in (-2, -1, 7)),
        Mark(1, (Marker(0, 7, True), Marker(-2, 0, True))),
        Mark(1, (Marker(0, 7, True), Marker(1, 0, True, ()))),
        Mark(1, (Marker(1, 7, True, (("__consumer_offsets", (0,)), ("__transaction_state", (0,)))),)),
        Mark(1, (Marker(0, 8, True, ((HERE, (0,)), (HERE, (1,)), (HERE, (0,)))),)),
    ]
    for step in odd:
        yield Scenario(f"odd markers {step}", [*opened, step, write(11, Batch(0, 0, 1, True), of=ID)])
    yield Scenario("odd markers together", [*opened, *odd])
    one_of_nobody = Mark(1, (Marker(0, 7, True), Marker(-1, 0, True), Marker(1, 7, True)))
    yield Scenario("a marker of nobody among others", [*opened, one_of_nobody])
    yield Scenario(
        "writes after markers",
        [
            Mark(1, (Marker(1, 3, True),)),
            *(write(9, Batch(1, epoch, sequence)) for epoch in (2, 3, 4) for sequence in (1, 0, 1)),
            *(write(9, Batch(1, 0, sequence), 1) for sequence in (4, 5)),
            Mark(1, (Marker(1, 0, True, ((HERE, (1,)),)),)),
            *(write(9, Batch(1, 0, sequence), 1) for sequence in (6, 5, 4, 0, 1)),
        ],
    )


#: Aborted, committed, open and plain writes.
_FILLED: list[Step] = [
    Register(3, ID, 0, 0),
    write(11, Batch(0, 0, 0, True, 2), of=ID),
    write(11, Batch(1, 0, 0, count=3)),
    End(3, ID, 0, 0, False),
    write(11, Batch(1, 0, 3, count=2, compression=Compression.LZ4, time=5)),
    Register(3, ID, 0, 0),
    write(11, Batch(0, 0, 2, True), of=ID),
    write(11, Batch(0, 0, 0, True), of=ID),
    End(3, ID, 0, 0),
    write(11, Batch(count=2, time=3)),
    Register(3, ID, 0, 0),
    write(11, Batch(0, 0, 0, True), of=ID),
    write(11, Batch(count=4, time=9)),
    Mark(1, (Marker(FOREIGN, 0, False),)),
]

_EVERY_FETCH: list[Step] = [
    Fetch(v, ((0, offset, most),), isolation, max_bytes)
    for v in (4, 11, 12, 18)
    for isolation in (0, 1)
    for offset in range(-2, 22)
    for most, max_bytes in ((1 << 20, 1 << 20), (0, 1 << 20), (1, 1), (150, 1 << 20))
]


def reads() -> Iterator[Scenario]:
    """A log with aborted, committed, open and plain writes, read in every way."""
    yield Scenario("fetch", [*_FILLED, *_EVERY_FETCH])
    yield Scenario("fetch after deletion", [*_FILLED, Delete(2, ((0, 9),)), *_EVERY_FETCH[::7]])
    yield Scenario("odd fetches", [*_FILLED, write(9, Batch(count=3), 1), *_odd_fetches()])
    finds = _finds()
    epochs: list[Step] = [
        EndOfEpoch(v, ((0, current, epoch),)) for v in (2, 3, 4) for current in (-2, -1, 0, 1) for epoch in range(-2, 3)
    ]
    epochs += [EndOfEpoch(4, ((5, -1, 0), (0, -1, 0))), EndOfEpoch(4, ((0, -1, 0),), "unknown-topic-x")]
    yield Scenario("offsets by time", [*_FILLED, *finds, *epochs])
    yield Scenario("offsets of nothing", [*finds[::3], *epochs[::2]])
    yield Scenario("offsets of an open transaction", [*_FILLED[:2], *finds])
    yield from _after_deletions(finds)


def _odd_fetches() -> list[Step]:
    """Sessions, epochs, topics and partitions that there are not, in every version."""
    odd: list[Step] = []
    for v in range(4, 19):
        odd += [Fetch(v, ((0, 0, 1 << 20), (1, 0, 1 << 20)), 1, session=s) for s in ((0, -1), (0, 0), (0, 1), (0, 7))]
        odd += [Fetch(v, ((0, 0, 100),), session=s) for s in ((77, -1), (77, 0), (77, 1), (77, 5))]
        odd += [Fetch(v, (), session=s) for s in ((0, -1), (0, 0), (0, 5), (77, 5))]
        odd += [Fetch(v, ((5, 0, 1 << 20), (-1, 0, 100), (0, 3, 100)))]
        odd += [Fetch(v, ((0, 0, 1 << 20),), topic="unknown-topic-x")]
        odd += [Fetch(v, ((0, 3, 1 << 20),), 5), Fetch(v, ((0, 3, 1 << 20),), -1)]
        odd += [Fetch(v, ((0, offset, 100),), leader_epoch=e) for e in (-2, 0, 1) for offset in (3, 99)]
        odd += [Fetch(v, ((0, offset, 100),), last_epoch=e) for e in (0, 1, -2) for offset in (3, 12, 99)]
        odd += [Fetch(v, ((0, 0, most), (1, 0, most), (0, 9, most)), max_bytes=200) for most in (100, 1 << 20)]
        odd += [Fetch(v, ((0, 0, -1),)), Fetch(v, ((0, 0, 100),), max_bytes=-1)]
    return odd


def _finds() -> list[Step]:
    """ListOffsets for every kind of time, and some that are none."""
    times = (-1, -2, -3, -4, -5, -6, -7, 0, 1, 3, 4, 5, 6, 9, 12, 13)
    finds: list[Step] = [Find(v, ((0, t), (1, t)), i) for v in range(1, 12) for i in (0, 1) for t in times]
    finds += [Find(v, ((0, t),), leader_epoch=e) for v in (4, 11) for e in (-2, 0, 1) for t in (-1, -3, 2, -9)]
    finds += [Find(v, ((0, t),), 1, replica=r) for v in (1, 5, 11) for r in (-2, -3, 0) for t in (-1, -3, 5)]
    finds += [Find(v, ((5, -1), (-1, -1), (0, -1), (0, -2))) for v in (1, 6)]
    finds += [Find(v, ((0, -1),), topic="unknown-topic-x") for v in (1, 11)]
    finds += [Find(v, ((0, t),), i) for v in (2, 11) for i in (5, -1) for t in (-1, 9)]
    return finds


def _after_deletions(finds: Sequence[Step]) -> Iterator[Scenario]:
    """The same log, and others, while DeleteRecords takes more and more of it."""
    deletions: list[Step] = [
        Delete(v, ((0, offset),))
        for v, offset in ((0, -2), (1, 0), (2, 1), (2, 1), (2, 0), (0, 99), (1, 7), (2, 4), (2, 12), (0, -1), (2, -1))
    ]
    deletions += [Delete(2, ((0, 1), (1, 0), (7, 0))), Delete(2, ((0, 0),), "unknown-topic-x")]
    deletions += [Delete(2, ((0, 0),), "__consumer_offsets"), write(11, Batch(0, 0, 1, True), of=ID)]
    deletions += [*finds[-60::3], *_EVERY_FETCH[:40:3]]
    yield Scenario("deletions", [*_FILLED, *deletions])
    opened: list[Step] = [*_FILLED[:2], write(11, Batch(count=3)), write(11, Batch(count=2, time=7))]
    for where, offsets in (("between", (2, 5, 7)), ("within", (1, 3))):
        cut = list(opened)
        for offset in offsets:
            cut += [Delete(2, ((0, offset),)), *(Find(11, ((0, t),), i) for t in (-1, -2, -3, 0, 7) for i in (0, 1))]
            cut += [Fetch(18, ((0, offset, 1 << 20),), i) for i in (0, 1)]
        yield Scenario(f"deletions {where} batches", [*cut, End(3, ID, 0, 0), *cut[-12:]])
    large: list[Step] = [write(11, Batch(size=700_000, time=time)) for time in (90, 80, 70)]
    for offset in (0, 1, 2, 3):
        large += [Delete(2, ((0, offset),)), *(Find(11, ((0, t),)) for t in (-3, 0, 75, 85, 95))]
    yield Scenario("deletions of segments", large, (("segment_bytes", "1048576"),))
