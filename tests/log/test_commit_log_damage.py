"""What cannot be read in the commit log: torn by a power loss, or damaged behind everybody's back."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterator
from itertools import combinations
from random import Random

import pytest
from tests.log.histories import World, live, small_files
from tests.log.log_doubles import ROOT, Node, append, append_transactional, batch, bytes_of, end, run, values_of

from fencepost.log.commit_log import REST_SECONDS, CommitLog
from fencepost.log.commit_log_entries import DURABLE_SIZE, FRAME, HEADER_SIZE
from fencepost.log.commit_log_reading import Ending, read_generation
from fencepost.log.disk import File
from fencepost.log.storage import DirectoryUnusable, Storage
from fencepost.simulation.disk import SimulatedDisk
from fencepost.simulation.disk_faults import FaultyDisk

LOG = ROOT / "commit-log"


@pytest.fixture(autouse=True)
def files(monkeypatch: pytest.MonkeyPatch) -> None:
    small_files(monkeypatch)


def generation_file(node: Node) -> File:
    (name,) = node.disk.list(LOG)
    return node.disk.open(LOG / name)


async def used(node: Node) -> list[list[bytes]]:
    """Several syncs over two partitions; the batches of each."""
    for number in range(6):
        append(node.of("t"), batch(tag=f"t{number}"))
        append_transactional(node.of("u"), (7, number, 0), tag=f"u{number}")
        end(node.of("u"), 7, number, number % 2 == 0)
        await node.settled()
    await asyncio.sleep(2 * REST_SECONDS)
    return [bytes_of(node.of(topic)) for topic in ("t", "u")]


def two() -> Node:
    return Node(FaultyDisk(Random(1)), [("t", 0), ("u", 0)])


def raised(start: Callable[[], object]) -> str:
    with pytest.raises(DirectoryUnusable) as refusal:
        start()
    return str(refusal.value)


def start_from_segments(node: Node) -> None:
    """As the person does who was told to."""
    assert isinstance(node.disk, SimulatedDisk)
    node.disk.crash()
    storage = Storage(node.disk, node.root, node.settings, node.clock, flush=node.flush, recover_from_segments=True)
    node.start(storage)


def test_one_flipped_bit_anywhere_in_the_commit_log_cuts_nothing() -> None:
    """After a kill: the start is refused, or everything is there."""

    async def main() -> None:
        node = two()
        written = await used(node)
        used_bytes = generation_file(node).pread(10_000, 0).rstrip(b"\0")
        # Every byte of the front, then some: the entries are alike.
        places = [*range(HEADER_SIZE + 80), *range(HEADER_SIZE + 80, len(used_bytes), 7)]
        refused = 0
        for at in places:
            disk = node.disk
            assert isinstance(disk, FaultyDisk)
            disk.crash()
            backup = disk.copy()
            generation_file(node).pwrite(bytes([used_bytes[at] ^ 1 << at % 8]), at)
            segments = [disk.open(ROOT / f"{t}-0" / f"{0:020d}.log").pread(9999, 0) for t in "tu"]
            try:
                node.start()
            except DirectoryUnusable:
                refused += 1
                after = [disk.open(ROOT / f"{t}-0" / f"{0:020d}.log").pread(9999, 0) for t in "tu"]
                assert after == segments, "nothing is changed"
                start_from_segments(node)
            assert [bytes_of(node.of(topic)) for topic in ("t", "u")] == written, f"byte {at}"
            node.disk = backup
        assert refused >= len(places) - DURABLE_SIZE

    run(main())


def test_a_mark_that_is_damaged_alone_takes_nothing_with_it() -> None:
    async def main() -> None:
        node = two()
        written = await used(node)
        file = generation_file(node)
        end_of_it = len(file.pread(10_000, 0).rstrip(b"\0"))
        file.pwrite(b"\xff", end_of_it - 1)
        node.kill()
        assert [bytes_of(node.of(topic)) for topic in ("t", "u")] == written

    run(main())


@pytest.mark.parametrize("rested", [False, True])
def test_damage_to_the_last_sync_before_a_kill_is_told_from_a_torn_write_after_a_rest(rested: bool) -> None:
    async def main() -> None:
        node = Node()
        for number in range(5):
            append(node.partition, batch(tag=f"{number}"))
            await node.settled()
            await asyncio.sleep(REST_SECONDS / 2)
        if rested:
            await asyncio.sleep(1.5 * REST_SECONDS)
        file = generation_file(node)
        file.pwrite(b"\xff", file.pread(10_000, 0).rindex(b"4"))
        if rested:
            assert "is damaged: bytes" in raised(node.kill)
            start_from_segments(node)
            assert values_of(node.partition) == [b"0", b"1", b"2", b"3", b"4"]
        else:
            node.kill()
            assert values_of(node.partition) == [b"0", b"1", b"2", b"3"]

    run(main())


@pytest.mark.parametrize("damage", ["cut", "zeros", "removed header"])
def test_a_file_with_a_part_missing_is_refused(damage: str) -> None:
    async def main() -> None:
        node = two()
        written = await used(node)
        for clean in (False, True):
            if clean:
                node.storage.close()
            file = generation_file(node)
            half = (HEADER_SIZE + len(file.pread(10_000, 0).rstrip(b"\0"))) // 2
            if damage == "cut":
                file.truncate(half)
            elif damage == "zeros":
                file.pwrite(bytes(20), half)
            else:
                file.pwrite(bytes(HEADER_SIZE), 0)
            told = raised(node.kill)
            assert str(LOG) in told and "is damaged: bytes" in told and "--recover-from-segments" in told
            start_from_segments(node)
            assert [bytes_of(node.of(topic)) for topic in ("t", "u")] == written

    run(main())


def put_in(random: Random, content: bytes, at: int, count: int) -> Iterator[bytes]:
    """The content with so many bytes more at a place: garbage, zeros, and what stands there twice."""
    for more in (random.randbytes(count), bytes(count), content[at : at + count]):
        yield content[:at] + more + content[at:]


def taken_out(content: bytes, at: int, count: int) -> Iterator[bytes]:
    """The content without so many bytes, in a file that is shorter, and in one of the length that it had.

    The last mark stays: what is cut off with it looks as if it had never been.
    """
    if at + count <= len(content.rstrip(b"\0")) - DURABLE_SIZE:
        rest = content[:at] + content[at + count :]
        yield rest
        yield rest + bytes(count)


async def rested_log() -> bytes:
    """A commit log of a few syncs, some bytes of what is allocated behind them, and a mark that says of all: synced."""
    node = Node(SimulatedDisk(Random(1)))
    for number in range(3):
        append(node.partition, batch(tag=f"{number}", size=10))
        if number:
            await node.settled()
    await asyncio.sleep(2 * REST_SECONDS)
    (name,) = node.disk.list(LOG)
    content = generation_file(node).pread(10_000, 0)
    assert int(name[:20]) == 1
    return content


def test_no_bytes_put_in_or_taken_out_anywhere_go_unseen() -> None:
    async def main() -> None:
        random, content = Random(1), await rested_log()
        whole = read_generation(content, 1, True)
        assert (whole.gaps, whole.ending, len(whole.entries) >= 5) == ([], Ending.CLEAN, True)
        used, said = len(content.rstrip(b"\0")), [bytes(each) for each in whole.entries]
        counts = [*range(1, 40), *(end - start for start, end in ((31, 56), (56, 200), (100, 400)))]
        for at in range(used):
            for count in counts:
                garbage = content[:at] + b"\xff" * count + content[at:]
                assert len(read_generation(garbage, 1, True).gaps) == (at <= used - DURABLE_SIZE), "it is named once"
                for changed in (*put_in(random, content, at, count), *taken_out(content, at, count)):
                    found = read_generation(changed, 1, True)
                    assert found.gaps or [bytes(each) for each in found.entries] == said, f"{count} bytes at {at}"

    run(main())


def test_whole_entries_put_in_or_taken_out_are_seen() -> None:
    """Each entry that is there is right then."""

    async def main() -> None:
        content = await rested_log()
        used, starts = len(content.rstrip(b"\0")), [HEADER_SIZE]
        while starts[-1] < used:
            starts.append(starts[-1] + FRAME.size + FRAME.unpack_from(content, starts[-1])[0])
        for first, last in combinations([start for start in starts if start < used], 2):
            assert read_generation(content[:first] + content[last:] + bytes(last - first), 1, True).gaps
            assert read_generation(content[:last] + content[first:], 1, True).gaps

    run(main())


@pytest.mark.parametrize("count", [3, -3, 40, -40, 4096])
def test_a_commit_log_with_bytes_put_in_or_taken_out_is_refused_and_nothing_is_lost(count: int) -> None:
    async def main() -> None:
        node = two()
        written = await used(node)
        file = generation_file(node)
        content = file.pread(20_000, 0)
        half = (HEADER_SIZE + len(content.rstrip(b"\0"))) // 2
        shifted = content[:half] + bytes(max(count, 0)) + content[half + max(-count, 0) :] + bytes(max(-count, 0))
        file.pwrite(shifted, 0)
        assert "is damaged: bytes" in raised(node.kill)
        assert generation_file(node).pread(20_000, 0) == shifted, "nothing is changed"
        start_from_segments(node)
        assert [bytes_of(node.of(topic)) for topic in ("t", "u")] == written

    run(main())


def test_damage_in_a_generation_that_was_followed_by_another_is_seen_to_its_last_byte() -> None:
    async def main() -> None:
        node = two()
        written = await used(node)
        file = generation_file(node)
        whole = file.pread(10_000, 0).rstrip(b"\0")
        file.pwrite(bytes(len(whole) - DURABLE_SIZE - 10), len(whole) - DURABLE_SIZE - 10)
        file.pwrite(bytes(DURABLE_SIZE), len(whole) - DURABLE_SIZE)
        log = CommitLog(node.disk, LOG, lambda _: None)
        log.begin(log.generations()[-1] + 1)
        assert "is damaged" in raised(node.kill)
        start_from_segments(node)
        assert [bytes_of(node.of(topic)) for topic in ("t", "u")] == written

    run(main())


def test_what_was_kept_is_said_by_partition(caplog: pytest.LogCaptureFixture) -> None:
    """The FILE entries are lost, and with them what belongs to whom."""

    async def main() -> None:
        node = two()
        written = await used(node)
        generation_file(node).pwrite(b"\xff" * 200, HEADER_SIZE + DURABLE_SIZE)
        raised(node.kill)
        start_from_segments(node)
        assert [bytes_of(node.of(topic)) for topic in ("t", "u")] == written

    caplog.set_level(logging.WARNING)
    run(main())
    said = [record.getMessage() for record in caplog.records]
    for topic, offset in (("t", 6), ("u", 12)):
        (line,) = [line for line in said if f"topic={topic} partition=0 log_end_offset={offset} " in line]
        assert "kept records that the damaged commit log does not know of" in line
    assert sum("going on with what the segments hold, as told" in line for line in said) == 1


def test_segments_that_have_less_than_what_can_still_be_read_of_the_log_are_not_cut_to_it() -> None:
    async def main() -> None:
        node = two()
        await used(node)
        segment = node.disk.open(ROOT / "u-0" / f"{0:020d}.log")
        for file in (generation_file(node), segment):
            file.pwrite(b"\xff", file.pread(10_000, 0).index(b"u3"))
        size = segment.size()
        start_from_segments(node)
        assert "whole bytes and once had" in node.storage.offline["u", 0].reason
        assert len(bytes_of(node.of("t"))) == 6
        assert isinstance(node.disk, SimulatedDisk)
        node.disk.crash()
        assert node.disk.open(ROOT / "u-0" / f"{0:020d}.log").size() == size

    run(main())


def test_records_of_which_nothing_said_whose_they_are_are_no_ones_at_the_next_starts_either() -> None:
    """Until the person does what is said, who finds that the others are served meanwhile."""

    async def main() -> None:
        node = two()
        written = await used(node)
        generation_file(node).pwrite(b"\xff" * 200, HEADER_SIZE + DURABLE_SIZE)
        identity = node.disk.open(ROOT / "u-0" / "partition.metadata")
        right = identity.pread(999, 0)
        identity.truncate(0)  # as a power loss leaves it
        start_from_segments(node)
        for start in (node.restart, node.kill, node.restart):
            assert "nothing else says whose" in node.storage.offline["u", 0].reason
            assert bytes_of(node.of("t")) == written[0]
            start()
        node.disk.open(ROOT / "u-0" / "partition.metadata").pwrite(right, 0)
        for start in (node.restart, node.kill):
            start()
            assert [bytes_of(node.of(topic)) for topic in ("t", "u")] == written

    run(main())


def unmarked(log: CommitLog) -> bytes:
    """As an older Fencepost began a sync."""
    del log
    return b""


@pytest.mark.parametrize("found", ["clean", "torn", "damaged"])
def test_the_commit_log_of_an_older_version_still_opens(found: str, monkeypatch: pytest.MonkeyPatch) -> None:
    async def main() -> None:
        node = two()
        with monkeypatch.context() as older:
            older.setattr(CommitLog, "_durable_entry", unmarked)
            node.restart()
            written = await used(node)
        file = generation_file(node)
        whole = len(file.pread(10_000, 0).rstrip(b"\0"))
        if found == "torn":
            file.pwrite(bytes(30), whole - 30)
        elif found == "damaged":
            file.pwrite(b"\xff", file.pread(10_000, 0).index(b"u3"))
            assert "of an older Fencepost" in raised(node.kill)
            start_from_segments(node)
        if found != "damaged":
            node.kill()
        now = [bytes_of(node.of(topic)) for topic in ("t", "u")]
        assert now == ([written[0], written[1][:-1]] if found == "torn" else written)
        node.restart()
        assert [bytes_of(node.of(topic)) for topic in ("t", "u")] == now

    run(main())


@pytest.mark.parametrize("is_there", [False, True])
def test_a_commit_log_that_is_gone_or_empty_is_said(caplog: pytest.LogCaptureFixture, is_there: bool) -> None:
    async def main() -> None:
        node = two()
        written = await used(node)
        for name in node.disk.list(LOG):
            if is_there:
                node.disk.open(LOG / name).truncate(0)
            else:
                node.disk.remove(LOG / name)
        if not is_there:
            node.disk.remove_directory(LOG)
        node.kill()
        assert [bytes_of(node.of(topic)) for topic in ("t", "u")] == written

    caplog.set_level(logging.WARNING)
    run(main())
    (line,) = [record.getMessage() for record in caplog.records]
    assert line.startswith(f"there is no commit log in {LOG}") and "2 partitions" in line


def test_a_torn_write_is_no_damage_and_is_said(caplog: pytest.LogCaptureFixture) -> None:
    async def main() -> None:
        torn = 0
        for seed in range(80):
            node = Node(SimulatedDisk(Random(seed)))
            for number in range(3):
                append(node.partition, batch(tag=f"{number}"))
                await node.settled()
            for _ in range(4):
                append(node.partition, batch(tag="unsynced", size=700))
            node.storage._flush()
            caplog.clear()
            node.lose_power()
            assert values_of(node.partition)[:3] == [b"0", b"1", b"2"]
            said = [record.getMessage() for record in caplog.records]
            torn += any("the last write to the commit log is not whole" in line for line in said)
            assert len(said) <= 1
        assert torn > 5

    caplog.set_level(logging.WARNING)
    run(main())


def test_a_data_record_that_looks_like_a_mark_is_none() -> None:
    """A copy of a DURABLE stands at another position than it names."""

    async def main() -> None:
        node = Node()
        await node.settled()
        mark = generation_file(node).pread(DURABLE_SIZE, HEADER_SIZE)
        append(node.partition, batch(tag="x", size=100))
        await node.settled()
        data = bytearray(generation_file(node).pread(10_000, 0))
        whole = len(bytes(data).rstrip(b"\0"))
        torn = data[: whole - DURABLE_SIZE - 50] + b"\xff" + mark * 2 + bytes(4096)
        (name,) = node.disk.list(LOG)
        found = read_generation(bytes(torn), int(name[:20]), True)
        assert (found.gaps, found.ending) == ([], Ending.TORN)

    run(main())


def test_no_history_of_crashes_looks_like_damage() -> None:
    """Power losses at every step: a refusal would be a Violation, and marks must not be trusted too far either."""
    for seed in range(1000, 1020):
        world = World(seed, SimulatedDisk(Random(seed)))
        run(live(world, lives=6, steps=60))
