"""One file of a partition, damaged in one way at one moment, and what may be read then: for the tests of damage."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from functools import lru_cache
from pathlib import Path
from random import Random
from typing import Any

from tests.log.log_doubles import ROOT, START, Node, append, append_transactional, batch, bytes_of, end, run

from fencepost.log.damage import FileDamaged
from fencepost.log.partition import Appended, Partition, Refused
from fencepost.log.producer_state import Origin
from fencepost.protocol.batch import crc_matches, headers, read_header, stamp
from fencepost.protocol.errors import ErrorCode, ProtocolError
from fencepost.protocol.steps import Pace, finish
from fencepost.protocol.types import Isolation, LeaderEpoch, Milliseconds, Offset
from fencepost.simulation.disk_faults import FaultyDisk

DIRECTORY = ROOT / "t-0"
PARTITIONS = [("t", 0), ("u", 0)]
SETTINGS: dict[str, Any] = {"segment_bytes": 1500, "checkpoint_bytes": 2000, "index_interval_bytes": 150}
EVEN = 128
"""Bytes of a batch: its length becomes that of two by one bit."""
_EVEN_VALUE = EVEN - len(batch()) - 1
#: More than any test here takes: who passes it loops.
MOST_READS = 20_000
#: The batch before which a leader begins -> its epoch.
LEADERS = {12: 1, 40: 3, 41: 4}
LAST_LEADER = 4


class CountedDisk(FaultyDisk):
    """Fails rather than let somebody read for ever."""

    reads = 0

    def meet(self, use: str, node: object) -> None:
        self.reads += 1
        assert self.reads < MOST_READS, "somebody reads for ever"
        super().meet(use, node)  # type: ignore[arg-type]


@lru_cache
def written(*, even: bool = False) -> tuple[CountedDisk, list[bytes], list[tuple[int, int, int]], dict[int, object]]:
    """A closed disk, and of a partition the batches, of each aborted transaction producer, first offset and marker, and
    what is known of producers.

    `even`: of the batches without markers each has EVEN bytes, and any time, rather than a later one than before.
    """
    aborted: list[tuple[int, int, int]] = []

    async def main() -> tuple[CountedDisk, list[bytes], dict[int, object]]:
        disk = CountedDisk(Random(1))
        node, random = Node(disk, PARTITIONS, **SETTINGS), Random(5)
        opened: dict[int, int] = {}
        sequences = dict.fromkeys((1, 2, 3), 0)
        for number in range(70):
            partition, time = node.partition, START + 10 * (random.randrange(70) if even else number)
            producer = random.choice((1, 2, 3))
            if producer in opened and random.random() < 0.4:
                commit = random.random() < 0.4
                marker = end(partition, producer, 0, commit)
                if not commit:
                    aborted.append((producer, opened[producer], marker.base_offset))
                del opened[producer]
            elif random.random() < 0.3:
                append(partition, plain(random, time, even=even))
            else:
                done = append_transactional(
                    partition,
                    (producer, 0, sequences[producer]),
                    size=_EVEN_VALUE if even else random.randrange(80),
                    timestamp=time,
                )
                sequences[producer] += 1
                opened.setdefault(producer, done.base_offset)
            if number in LEADERS:
                await node.settled()
                node.leader_epoch = LEADERS[number]
                node.restart()
        append(node.of("u"), batch(tag="well"))
        for number, producer in enumerate(sorted(opened)):
            marker = end(node.partition, producer, 0, bool(number))
            if not number:
                aborted.append((producer, opened[producer], marker.base_offset))
        assert len(node.partition.segments[-1].transactions), "each kind of file has something in it"
        await node.settled()
        batches, producers = bytes_of(node.partition), producers_of(node.partition)
        node.storage.close()
        return disk, batches, producers

    disk, batches, producers = run(main())
    return disk, batches, aborted, producers


def plain(random: Random, time: int, *, even: bool) -> bytes:
    return batch(size=_EVEN_VALUE, timestamp=time) if even else batch(2, size=random.randrange(60), timestamp=time)


def producers_of(partition: Partition) -> dict[int, object]:
    return {
        producer_id: (entry.epoch, entry.coordinator_epoch, list(entry.batches), entry.open_first_offset)
        for producer_id, entry in partition.producers.entries.items()
    }


def flip_bit(data: bytes, _: Random, at: int, bit: int) -> bytes:
    return data[:at] + bytes([data[at] ^ 1 << bit]) + data[at + 1 :]


def flip(data: bytes, random: Random) -> bytes:
    at = random.randrange(len(data)) if data else 0
    return flip_bit(data, random, at, random.randrange(8)) if data else b"\x01"


def cut(data: bytes, random: Random) -> bytes:
    return data[: random.randrange(len(data) + 1)]


def cut_at_a_boundary(data: bytes, random: Random) -> bytes:
    """Of batches, or of entries of 8 bytes and of 12 and of 34."""
    try:
        ends = [at + header.size for at, header in headers(data)]
    except ProtocolError:
        ends = []
    ends = ends[:-1] or [random.randrange(len(data) // each + 1) * each for each in (8, 12, 34)]
    return data[: random.choice([0, *ends])]


def extend(data: bytes, random: Random) -> bytes:
    return data + random.choice(
        (random.randbytes(random.randrange(1, 200)), bytes(random.randrange(1, 200)), data[:90])
    )


def zero(data: bytes, random: Random) -> bytes:
    start = random.randrange(len(data) + 1)
    stop = min(start + random.choice((1, 20, 512)), len(data))
    return data[:start] + bytes(stop - start) + data[stop:]


def scramble(data: bytes, random: Random) -> bytes:
    return random.randbytes(len(data))


def shift(data: bytes, random: Random) -> bytes:
    """The beginning is lost."""
    return data[random.randrange(len(data) + 1) :]


def of_another(_: bytes, random: Random) -> bytes:
    """A leader-epoch-checkpoint that may be one, but not this partition's, or not the one of now."""
    epochs = sorted(random.sample(range(7), random.randrange(7)))
    starts = sorted(random.sample(range(200), len(epochs)))
    lines = ["0", str(len(epochs)), *(f"{epoch} {start}" for epoch, start in zip(epochs, starts, strict=True))]
    return "".join(f"{line}\n" for line in lines).encode()


def flip_in_front(data: bytes, random: Random) -> bytes:
    """What no CRC covers, of one batch: its base offset and its length."""
    try:
        at = random.choice([at for at, _ in headers(data)])
    except (IndexError, ProtocolError):
        return flip(data, random)
    at += random.choice((6, 7, 7, 8, 9, 10, 11))
    return data[:at] + flip(data[at : at + 1], random) + data[at + 1 :]


CHANGES: list[Callable[[bytes, Random], bytes]] = [
    flip,
    flip_in_front,
    flip_in_front,
    cut,
    cut_at_a_boundary,
    extend,
    zero,
    scramble,
    shift,
    of_another,
]


class Case:
    """One file, damaged in one way at one moment."""

    def __init__(self, seed: int, *, even: bool = False) -> None:
        random = self.random = Random(seed)
        disk, self.batches, self.aborted, self.producers = written(even=even)
        self.disk: CountedDisk = disk.copy()  # type: ignore[assignment]
        names = [name for name in disk.list(DIRECTORY) if name != "partition.metadata"]
        suffix = random.choice([".log", *sorted({Path(name).suffix for name in names})])
        names = [name for name in names if Path(name).suffix == suffix]
        self.name = random.choice((names[-1], random.choice(names)))
        self.running = random.random() < 0.4
        index = self.name.endswith((".index", ".timeindex", ".txnindex"))
        self.older = not self.running and index and random.random() < 0.5
        """Whether it was written by a version that had no checksums."""
        self.how = random.choice([*CHANGES, "remove", "read error", "write error", "another segment's"])
        self.others = [name for name in names if name != self.name]
        self.lacks_bytes = self.how in ("remove", "read error")
        """Whether there are bytes that the disk does not give."""

    def damage(self) -> None:
        path = DIRECTORY / self.name
        if self.how == "remove":
            self.disk.remove(path)
            self.disk.sync_directory(DIRECTORY)
        elif self.how == "read error":
            self.disk.fail(path, "read")
        elif self.how == "write error":
            self.disk.fail(path, "write")
        elif self.how == "another segment's":
            other = self.random.choice(self.others or [self.name])
            self._overwrite(path, self.disk.bytes_at(DIRECTORY / other))
        elif callable(self.how):
            self._overwrite(path, self.how(self.disk.bytes_at(path), self.random))

    def _overwrite(self, path: Path, data: bytes) -> None:
        self.lacks_bytes |= len(data) < len(self.disk.bytes_at(path))
        self.disk.overwrite(path, data)

    def __str__(self) -> str:
        how = self.how if isinstance(self.how, str) else getattr(self.how, "__name__", "")
        return f"{self.name} {how} {'running' if self.running else 'at rest'}"


def check(case: Case) -> None:
    async def main() -> None:
        disk = case.disk
        if case.older:
            for name in disk.list(DIRECTORY):
                if name.endswith(".checksums"):
                    disk.remove(DIRECTORY / name)
        if not case.running:
            case.damage()
        node = Node(disk, PARTITIONS, leader_epoch=LAST_LEADER, **SETTINGS)
        if isinstance(found := node.storage.partition("t", 0), Partition):
            assert producers_of(found) == case.producers, "what is a repetition is known"
        if case.running:
            if case.random.random() < 0.5:
                check_reads(case, node.partition)
            case.damage()
        for again in range(2):
            assert len(bytes_of(node.of("u"))) == 1 + again
            partition = node.storage.partition("t", 0)
            if partition is None:
                reason = node.storage.offline["t", 0].reason
                assert (str(DIRECTORY) in reason and "put back a copy" in reason) or "cannot be read" in reason, reason
            else:
                check_reads(case, partition)
                for _ in range(case.random.choice((1, 40))):  # as far as another segment and a checkpoint
                    outcome = partition.append(batch(tag="next"), Origin.CLIENT, START)
                    assert isinstance(outcome, Appended) or outcome.error is ErrorCode.KAFKA_STORAGE_ERROR
                    case.batches = [*case.batches, *([] if isinstance(outcome, Refused) else [stamped(outcome)])]
                    await asyncio.sleep(0)
            append(node.of("u"), batch(tag="still"))
            await node.settled()
            if not again:
                (node.restart, node.kill)[case.random.randrange(2)]()

    run(main())


def stamped(appended: Appended) -> bytes:
    data = bytearray(batch(tag="next"))
    stamp(data, 0, appended.base_offset, LeaderEpoch(LAST_LEADER))
    return bytes(data)


def check_reads(case: Case, partition: Partition) -> None:
    last = read_header(case.batches[-1]).last_offset
    assert partition.log_end_offset == last + 1, "nothing is forgotten"
    for isolation in Isolation:
        for offset in case.random.sample(range(last + 1), 40):
            check_read(case, partition, offset, isolation)
    for time in range(START - 5, START + 800, 70):
        check_time(case, partition, Milliseconds(time))
    check_newest(case, partition)
    if not case.name.endswith(".log"):
        check_leader_epochs(case, partition)


def check_leader_epochs(case: Case, partition: Partition) -> None:
    ends: dict[int, int] = {}
    for header in map(read_header, case.batches):
        ends[header.partition_leader_epoch] = header.last_offset + 1
    known = sorted(ends)
    for epoch in range(LAST_LEADER + 2):
        floor = max(each for each in known if each <= epoch)
        due = (floor, ends[floor]) if epoch <= LAST_LEADER else (-1, -1)
        assert partition.end_offset_for_epoch(LeaderEpoch(epoch)) == due, f"leader epoch {epoch}"


def check_read(case: Case, partition: Partition, offset: int, isolation: Isolation) -> None:
    most = case.random.choice((1, 200, 1000, 100_000))
    fetched = partition.read(Offset(offset), most, isolation)
    if isinstance(fetched, Refused):
        errors = [ErrorCode.CORRUPT_MESSAGE, *([ErrorCode.KAFKA_STORAGE_ERROR] if case.lacks_bytes else [])]
        assert fetched.error in errors, fetched
        return
    if offset >= partition.bound(isolation):
        return
    records, at = bytes(fetched.records), 0
    expected = [each for each in case.batches if read_header(each).last_offset >= offset]
    assert records, f"nothing at {offset}"
    following = offset
    for each in expected:
        if at == len(records):
            break
        got = records[at : at + max(len(each), read_header(records, at).size)]
        assert got[:8] == each[:8], f"at {offset}: batch {read_header(got)[:3]} where {read_header(each)[:3]} stands"
        changed = got[:8] + each[8:16] + got[16:] != each
        assert not changed or not crc_matches(got, 0, read_header(got)), "other bytes with the right CRC"
        if len(got) > len(each):
            return  # the next one counts as its records
        following = read_header(each).last_offset + 1
        at += len(each)
    assert at == len(records)
    if isolation is Isolation.READ_COMMITTED:
        told = set(fetched.aborted or [])
        due = {(p, first) for p, first, marker in case.aborted if first < following and marker >= offset}
        assert told == due, f"aborted at {offset} to {following}: {told} instead of {due}"


def check_time(case: Case, partition: Partition, time: Milliseconds) -> None:
    try:
        found = finish(partition.reader.offset_for_timestamp(time, Isolation.READ_UNCOMMITTED, Pace()))
    except FileDamaged:
        return
    due = None
    for each in map(read_header, case.batches):
        if each.max_timestamp >= time:
            due = each.base_offset + max(time - each.base_timestamp, 0)
            break
    assert (None if found is None else found.offset) == due, f"by time {time - START}"


def check_newest(case: Case, partition: Partition) -> None:
    try:
        found = finish(partition.reader.max_timestamp_offset(Isolation.READ_UNCOMMITTED, Pace()))
    except FileDamaged:
        return
    newest = max(map(read_header, case.batches), key=lambda header: header.max_timestamp)
    due = newest.base_offset + newest.max_timestamp - newest.base_timestamp
    if due < partition.high_watermark:
        assert found is not None and (found.timestamp, found.offset) == (newest.max_timestamp, due), "the newest"
