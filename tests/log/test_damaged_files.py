"""Any one file of a partition damaged in any way, at rest or under the node: the right records or an error, never else.

A history of plain, transactional, committed and aborted batches in several segments is written and closed.  Then one
file is damaged.  Every read at every offset, of either isolation and by time, gives what the history says or
KAFKA_STORAGE_ERROR; what is aborted is never missing from the list of aborted transactions; the other partition is
served; the node neither ends nor loops; and what could be read once can be read after another start.

Two things cannot be told from the files, and are the reader's to see: bytes within a batch, by its CRC, and the leader
epoch in front of it, which nothing covers.  Of the leader epochs, whose file has no checksum, what is answered is what
was, or what the batches that are there say.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from functools import lru_cache
from itertools import count, islice
from pathlib import Path
from random import Random
from typing import Any

import pytest
from tests.log.log_doubles import ROOT, START, Node, append, append_transactional, batch, bytes_of, end, run
from tests.seeds import seeds

from fencepost.log import commit_log
from fencepost.log.damage import FileDamaged
from fencepost.log.partition import Appended, Partition, Refused
from fencepost.log.producer_state import Origin
from fencepost.protocol.batch import crc_matches, headers, read_header, stamp
from fencepost.protocol.errors import ErrorCode, ProtocolError
from fencepost.protocol.steps import Pace, finish
from fencepost.protocol.types import Isolation
from fencepost.simulation.disk_faults import FaultyDisk

DIRECTORY = ROOT / "t-0"
PARTITIONS = [("t", 0), ("u", 0)]
SETTINGS: dict[str, Any] = {"segment_bytes": 1500, "checkpoint_bytes": 2000, "index_interval_bytes": 150}
#: More than any test here takes: who passes it loops.
MOST_READS = 20_000
#: The batch before which a leader begins -> its epoch.
LEADERS = {12: 1, 40: 3, 41: 4}
LAST_LEADER = 4


@pytest.fixture(autouse=True)
def files(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of a size that is copied fast."""
    monkeypatch.setattr(commit_log, "_ALLOCATION", 4096)


class CountedDisk(FaultyDisk):
    """Fails rather than let somebody read for ever."""

    reads = 0

    def meet(self, use: str, node: object) -> None:
        self.reads += 1
        assert self.reads < MOST_READS, "somebody reads for ever"
        super().meet(use, node)  # type: ignore[arg-type]


@lru_cache
def written() -> tuple[CountedDisk, list[bytes], list[tuple[int, int, int]], dict[int, object]]:
    """A closed disk, and of a partition the batches, of each aborted transaction producer, first offset and marker, and
    what is known of producers."""
    aborted: list[tuple[int, int, int]] = []

    async def main() -> tuple[CountedDisk, list[bytes], dict[int, object]]:
        disk = CountedDisk(Random(1))
        node, random = Node(disk, PARTITIONS, **SETTINGS), Random(5)
        opened: dict[int, int] = {}
        sequences = dict.fromkeys((1, 2, 3), 0)
        for number in range(70):
            partition, time = node.partition, START + 10 * number
            producer = random.choice((1, 2, 3))
            if producer in opened and random.random() < 0.4:
                commit = random.random() < 0.4
                marker = end(partition, producer, 0, commit)
                if not commit:
                    aborted.append((producer, opened[producer], marker.base_offset))
                del opened[producer]
            elif random.random() < 0.3:
                append(partition, batch(2, size=random.randrange(60), timestamp=time))
            else:
                done = append_transactional(
                    partition, (producer, 0, sequences[producer]), size=random.randrange(80), timestamp=time
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


def producers_of(partition: Partition) -> dict[int, object]:
    return {
        producer_id: (entry.epoch, entry.coordinator_epoch, list(entry.batches), entry.open_first_offset)
        for producer_id, entry in partition.producers.entries.items()
    }


def flip(data: bytes, random: Random) -> bytes:
    at = random.randrange(len(data)) if data else 0
    return data[:at] + bytes([data[at] ^ 1 << random.randrange(8)]) + data[at + 1 :] if data else b"\x01"


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

    def __init__(self, seed: int) -> None:
        random = self.random = Random(seed)
        disk, self.batches, self.aborted, self.producers = written()
        self.disk: CountedDisk = disk.copy()  # type: ignore[assignment]
        names = [name for name in disk.list(DIRECTORY) if name != "partition.metadata"]
        suffix = random.choice([".log", *sorted({Path(name).suffix for name in names})])
        names = [name for name in names if Path(name).suffix == suffix]
        self.name = random.choice((names[-1], random.choice(names)))
        self.running = random.random() < 0.4
        index = self.name.endswith((".index", ".timeindex", ".txnindex"))
        self.older = not self.running and index and random.random() < 0.5
        """Whether it was written by a version that had no checksums."""
        self.how = random.choice([*CHANGES, "remove", "read error", "write error"])

    def damage(self) -> None:
        path = DIRECTORY / self.name
        if self.how == "remove":
            self.disk.remove(path)
            self.disk.sync_directory(DIRECTORY)
        elif self.how == "read error":
            self.disk.fail(path, "read")
        elif self.how == "write error":
            self.disk.fail(path, "write")
        elif callable(self.how):
            self.disk.overwrite(path, self.how(self.disk.bytes_at(path), self.random))

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
                    outcome = partition.append(batch(tag="next"), Origin.CLIENT)
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
    stamp(data, 0, appended.base_offset, LAST_LEADER)
    return bytes(data)


def check_reads(case: Case, partition: Partition) -> None:
    last = read_header(case.batches[-1]).last_offset
    assert partition.log_end_offset == last + 1, "nothing is forgotten"
    for isolation in Isolation:
        for offset in case.random.sample(range(last + 1), 40):
            check_read(case, partition, offset, isolation)
    for time in range(START - 5, START + 800, 70):
        check_time(case, partition, time)
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
        assert partition.end_offset_for_epoch(epoch) == due, f"leader epoch {epoch}"


def check_read(case: Case, partition: Partition, offset: int, isolation: Isolation) -> None:
    most = case.random.choice((1, 200, 1000, 100_000))
    fetched = partition.read(offset, most, isolation)
    if isinstance(fetched, Refused):
        assert fetched.error is ErrorCode.KAFKA_STORAGE_ERROR
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
        got = records[at : at + len(each)]
        assert got[:12] == each[:12], f"at {offset}: batch {read_header(got)[:3]} where {read_header(each)[:3]} stands"
        changed = got[:12] + each[12:16] + got[16:] != each
        assert not changed or not crc_matches(got, 0, read_header(got)), "other bytes with the right CRC"
        following = read_header(each).last_offset + 1
        at += len(each)
    assert at == len(records)
    if isolation is Isolation.READ_COMMITTED:
        told = set(fetched.aborted or [])
        due = {(p, first) for p, first, marker in case.aborted if first < following and marker >= offset}
        assert told == due, f"aborted at {offset} to {following}: {told} instead of {due}"


def check_time(case: Case, partition: Partition, time: int) -> None:
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


@pytest.mark.parametrize("seed", range(6))
def test_any_one_file_damaged_in_any_way(seed: int) -> None:
    for number in range(20):
        case = Case(100 * seed + number)
        try:
            check(case)
        except BaseException as failure:
            raise AssertionError(f"{case} (seed {100 * seed + number}): {failure!r}") from failure


@pytest.mark.parametrize("suffix", [".index", ".timeindex", ".txnindex"])
def test_what_an_older_version_left_without_checksums_is_not_believed(suffix: str) -> None:
    cases = (case for case in map(Case, count()) if case.older and case.name.endswith(suffix))
    for case in islice(cases, 8):
        check(case)


def test_no_transaction_index_is_made_from_a_damaged_marker() -> None:
    """Where both are damaged: what was aborted is never shown, and what was committed is never hidden."""
    whole, _, aborted, _ = written()
    name = next(name for name in whole.list(DIRECTORY) if name.endswith(".log"))
    data = whole.bytes_at(DIRECTORY / name)
    aborting = {marker for _, _, marker in aborted}
    at, marker = next((at, header) for at, header in headers(data) if header.base_offset in aborting)

    async def main(changed: int) -> None:
        disk = whole.copy()
        disk.remove((DIRECTORY / name).with_suffix(".txnindex"))
        disk.overwrite(DIRECTORY / name, data[:changed] + bytes([data[changed] ^ 1]) + data[changed + 1 :])
        node = Node(disk, PARTITIONS, leader_epoch=LAST_LEADER, **SETTINGS)
        assert node.storage.partition("t", 0) is None
        assert "put back a copy" in node.storage.offline["t", 0].reason
        node.storage.close()

    for changed in range(at + 21, at + marker.size):
        run(main(changed))


def test_an_index_that_is_damaged_under_the_node_is_not_written_down_as_whole() -> None:
    """What a start has found in it counts, not what is there when it is written on."""

    async def main() -> None:
        node = Node(FaultyDisk(Random(1)), segment_bytes=300)
        for number in range(5):
            append(node.partition, batch(timestamp=START + 10 * number))
        assert node.partition.segments.bases == [0, 4]
        await node.settled()
        node.restart()
        path = DIRECTORY / f"{4:020d}.timeindex"
        assert isinstance(node.disk, FaultyDisk)
        node.disk.overwrite(path, b"\x7f" * len(node.disk.bytes_at(path)))
        append(node.partition, batch(timestamp=START))
        await node.settled()
        node.storage.checkpoint_soon()
        await asyncio.sleep(0.001)
        await node.settled()
        node.kill()
        found = finish(node.partition.reader.max_timestamp_offset(Isolation.READ_UNCOMMITTED, Pace()))
        assert found is not None
        assert (found.timestamp, found.offset) == (START + 40, 4)

    run(main())


@pytest.mark.soak
@pytest.mark.parametrize("seed", [100 + seed for seed in seeds(200)])
def test_any_one_file_damaged_in_any_way_at_length(seed: int) -> None:
    test_any_one_file_damaged_in_any_way(seed)
