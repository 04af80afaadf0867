"""What a start makes of files that a crash has left: each test is a way in which it once went wrong."""

from __future__ import annotations

from contextlib import suppress
from itertools import product
from random import Random
from struct import pack

import pytest
from tests.log.log_doubles import (
    ROOT,
    START,
    Node,
    append,
    append_transactional,
    batch,
    bytes_of,
    end,
    run,
    topic_id,
    values_of,
)

from fencepost.log import storage
from fencepost.log.commit_log import StorageFailed
from fencepost.log.producer_snapshot import read_snapshot
from fencepost.log.reading import Fetched
from fencepost.log.recovery import uncounted
from fencepost.log.replay import KnownFile
from fencepost.log.segment_sums import read_sums, were_dropped
from fencepost.log.upkeep import upkeep
from fencepost.protocol.batch import read_header
from fencepost.protocol.steps import Pace, finish
from fencepost.protocol.types import Isolation, Milliseconds, Offset
from fencepost.runtime import at_once
from fencepost.simulation.disk import PowerCut, SimulatedDisk
from fencepost.simulation.disk_faults import FaultyDisk

DIRECTORY = ROOT / "t-0"


def known_file(state: str) -> KnownFile:
    file = KnownFile("t-0/0.log", bytes(16), 10, Offset(5 if state == "synced" else -1))
    file.removed = state == "removed"
    return file


@pytest.mark.parametrize("states", [*product(("unknown", "begun", "synced", "removed"), repeat=3)], ids="-".join)
def test_no_segment_is_removed_that_may_be_part_of_the_log(states: tuple[str, ...]) -> None:
    """What the commit log does not know is kept in front of what was synced, and where it need not know all."""
    bases = [Offset(base) for base in range(3)]
    known = {base: known_file(state) for base, state in zip(bases, states, strict=True) if state != "unknown"}
    removed = {base for base in bases if states[base] == "removed"}
    # Where no checkpoint is known, all that was begun is.
    in_vain = {base for base in bases if states[base] == "unknown" and "synced" in states[:base]}
    in_vain |= {base for base in bases if states[base] == "unknown" and "synced" not in states}
    assert set(uncounted(bases, known, by_scan=True)) == removed
    assert set(uncounted(bases, known, by_scan=False)) == removed | in_vain
    assert set(uncounted([], known, by_scan=False)) == set()


@pytest.mark.parametrize("more", [0, 100])
def test_what_was_said_of_a_segment_that_had_more_counts_no_longer(more: int) -> None:
    """Else it would count when as many bytes as that had are there again."""

    async def main() -> None:
        node = Node()
        append(node.partition, batch())
        await node.settled()
        node.restart()
        path = DIRECTORY / f"{0:020d}.checksums"
        said = read_sums(node.disk, path)
        assert said is not None and said.log_size == node.partition.segments[0].size
        said._replace(log_size=said.log_size + more, next_offset=Offset(said.next_offset + bool(more))).write(
            node.disk, path
        ).close()
        node.restart()
        assert were_dropped(node.disk, path) == bool(more)

    run(main())


def test_a_lost_segment_is_not_passed_over() -> None:
    async def main() -> None:
        node = Node(segment_bytes=100_000)
        append(node.partition, batch(size=70_000))
        await node.settled()
        node.disk.remove(DIRECTORY / f"{0:020d}.log")
        node.kill()
        assert "0.log is missing and once had 70" in node.storage.offline["t", 0].reason

    run(main())


@pytest.mark.parametrize("part", range(5))
def test_no_damaged_byte_of_what_only_the_segment_has_is_served(part: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """The commit log has its checksum: a start names the file, instead of handing out what was never written."""
    monkeypatch.setattr(storage, "EXTENT_THRESHOLD", 200)

    async def main() -> None:
        disk = FaultyDisk(Random(part))
        node = Node(disk)
        for number in range(3):
            append(node.partition, batch(tag=f"{number}", size=100 + 200 * (number % 2)))
        await node.settled()
        whole = bytes_of(node.partition)
        path, at, count = DIRECTORY / f"{0:020d}.log", len(whole[0]), len(whole[1])
        for damaged in range(at + part, at + count, 5):
            disk.crash()
            node.disk = disk.copy()
            file = node.disk.open(path)
            file.pwrite(bytes([file.pread(1, damaged)[0] ^ 1]), damaged)
            node.start()
            told = f"{path} has lost bytes {at} to {at + count}, which were synced; put back a copy"
            assert told in node.storage.offline["t", 0].reason
        node.disk = disk
        node.kill()
        assert bytes_of(node.partition) == whole

    run(main())


def test_removing_segments_survives_a_restart() -> None:
    """A REMOVE entry of a segment that this generation has never named."""

    async def main() -> None:
        node = Node(segment_bytes=100)
        for number in range(5):
            append(node.partition, batch(tag=f"{number}"))
        await node.settled()
        node.restart()
        assert isinstance(node.partition.delete_records(Offset(3)), int)
        await node.settled()
        node.lose_power()
        assert values_of(node.partition) == [b"3", b"4"]

    run(main())


def test_an_abort_that_was_lost_leaves_no_trace_in_the_index() -> None:
    async def main() -> None:
        for seed in range(30):
            disk = SimulatedDisk(Random(seed))
            node = Node(disk, segment_bytes=250)
            append_transactional(node.partition, (7, 0, 0))
            await node.settled()
            end(node.partition, 7, 0, False)
            append(node.partition, batch(size=100))
            append(node.partition, batch(size=100))  # Rolls, and writes the index of the first segment.
            node.storage.failure = StorageFailed("it is dead")
            node.lose_power()
            if node.partition.log_end_offset > 1:
                continue
            end(node.partition, 7, 0, True)
            for _ in range(2):
                await node.settled()
                node.restart()
                fetched = node.partition.read(Offset(0), 1000, Isolation.READ_COMMITTED)
                assert getattr(fetched, "aborted", None) == []

    run(main())


HALF = pack(">hqqqq", 0, 8, 3, 6, 0)
"""Like the entry of an abort at 6, where 8 is still open."""


@pytest.mark.parametrize("left", [bytes(68), HALF, HALF + bytes(40)], ids=["zeros", "half", "half and zeros"])
def test_what_a_power_loss_left_in_an_index_behind_a_checkpoint_misleads_no_reader(left: bytes) -> None:
    async def main() -> None:
        node = Node(index_interval_bytes=0)
        for number in range(2):
            append(node.partition, batch(timestamp=START + 10 * number))
        append_transactional(node.partition, (7, 0, 0), timestamp=START + 20)
        append_transactional(node.partition, (8, 0, 0), timestamp=START + 30)
        append(node.partition, batch(timestamp=START + 40))
        end(node.partition, 7, 0, False)
        append(node.partition, batch(timestamp=START + 60))
        node.restart()
        for committed in (False, True):
            for suffix in (".index", ".timeindex", ".txnindex"):
                file = node.disk.open(DIRECTORY / f"{0:020d}{suffix}")
                file.pwrite(left, file.size())
            node.kill()
            partition = node.partition
            for number in range(5):
                found = finish(
                    partition.reader.offset_for_timestamp(
                        Milliseconds(START + 10 * number), Isolation.READ_UNCOMMITTED, Pace()
                    )
                )
                assert found is not None and found.offset == number
            for offset in range(partition.log_end_offset):
                fetched = partition.read(Offset(offset), 1, Isolation.READ_UNCOMMITTED)
                assert isinstance(fetched, Fetched)
                assert read_header(fetched.records).base_offset == offset
            fetched = partition.read(Offset(0), 10_000, Isolation.READ_COMMITTED)
            assert isinstance(fetched, Fetched)
            assert fetched.aborted == [(7, 2)]
            if not committed:
                end(partition, 8, 0, True)
                node.restart()

    run(main())


def test_a_segment_whose_removal_a_power_loss_undoes_is_removed_again() -> None:
    """The start that removed it was killed before that was durable, and later ones have never seen it."""

    async def main() -> None:
        undone = 0
        for seed in range(20):
            disk = SimulatedDisk(Random(seed))
            node = Node(disk, segment_bytes=100)
            append(node.partition, batch(tag="0"))
            await node.settled()
            node.restart()
            append(node.partition, batch(tag="lost"))  # rolls
            disk.sync_directory(DIRECTORY)
            node.storage.failure = StorageFailed("it is dead")
            disk.crash()
            disk.remove(DIRECTORY / f"{1:020d}.log")
            node.settings = node.settings.with_(segment_bytes=100_000)
            node.start()
            await node.settled()
            for number in range(1, 4):
                append(node.partition, batch(tag=f"{number}"))
            await node.settled()
            node.settings = node.settings.with_(segment_bytes=100)
            node.partition.settings = node.settings
            append(node.partition, batch(tag="4"))
            await node.settled()
            disk.power_loss()
            undone += disk.exists(DIRECTORY / f"{1:020d}.log")
            node.start()
            assert values_of(node.partition) == [b"0", b"1", b"2", b"3", b"4"]
        assert undone > 3

    run(main())


def test_a_start_cut_off_after_one_that_was_cut_off_loses_nothing() -> None:
    """What the first of them began may be in the page cache only, and what the second one began be there without it."""

    async def main() -> None:
        disk = FaultyDisk(Random(1))
        node = Node(disk)
        node.names.append(("made", 0))  # no checkpoint has synced its directory
        node.storage.create_partition("made", topic_id("made"), 0)
        append(node.of("made"), batch(tag="acknowledged"))
        await node.storage.durability.wait(node.storage.last_appended)
        node.storage.abandon()
        disk.crash()
        cuts = 0
        for first, second, luck in product(range(6, 12), range(6, 12), range(30)):
            node.disk = tried = disk.copy(Random(luck))
            for operations, ends in ((first, tried.crash), (second, tried.power_loss)):
                tried.cut_power_after(operations)
                with suppress(PowerCut):
                    node.start()
                    break
                ends()
                cuts += 1
            node.storage.abandon()
            tried.crash()
            node.start()
            assert values_of(node.of("made")) == [b"acknowledged"]
        assert cuts > 1500, "most starts are cut off"

    run(main())


def test_producers_with_old_timestamps_are_not_forgotten_after_a_crash() -> None:
    async def main() -> None:
        node = Node()
        append(node.partition, batch(producer=(7, 0, 0), timestamp=1000))
        await node.settled()
        node.kill()
        at_once(upkeep(node.storage, Milliseconds(node.clock.at + 1000)))
        assert 7 in node.partition.producers.entries
        at_once(upkeep(node.storage, Milliseconds(node.clock.at + node.settings.producer_id_expiration_ms)))
        assert 7 not in node.partition.producers.entries

    run(main())


@pytest.mark.parametrize("damage", ["torn", "corrupt"])
def test_flush_os_cuts_a_torn_tail(damage: str) -> None:
    async def main() -> None:
        node = Node(flush="os")
        for number in range(3):
            append(node.partition, batch(tag=f"{number}"))
        kept = bytes_of(node.partition)
        file = node.disk.open(DIRECTORY / f"{0:020d}.log")
        if damage == "torn":
            file.truncate(file.size() - 1)
        else:
            file.pwrite(b"\xff", file.size() - 1)
        node.kill()
        assert bytes_of(node.partition) == kept[:2]
        append(node.partition, batch(tag="again"))
        assert values_of(node.partition) == [b"0", b"1", b"again"]

    run(main())


def test_a_damaged_snapshot_is_made_again_from_the_log() -> None:
    async def main() -> None:
        node = Node()
        for sequence in range(7):
            append(node.partition, batch(producer=(7, 0, sequence)))
        node.restart()
        expected = node.partition.producers.entries
        node.disk.open(DIRECTORY / f"{7:020d}.snapshot").pwrite(b"x", 12)
        node.kill()
        assert node.partition.producers.entries == expected

    run(main())


@pytest.mark.parametrize("suffix", [".index", ".timeindex", ".txnindex", ".checksums"])
@pytest.mark.parametrize("damage", ["emptied", "flipped", "removed"])
def test_who_wrote_what_is_no_longer_there_is_known_whatever_became_of_an_index(suffix: str, damage: str) -> None:
    """Only the producer snapshot knows them, and an index says nothing against it."""

    async def main() -> None:
        node = Node(segment_bytes=1000, index_interval_bytes=100)
        append(node.partition, batch(producer=(7, 0, 0), size=900))
        append_transactional(node.partition, (8, 0, 0))
        end(node.partition, 8, 0, commit=False)
        append_transactional(node.partition, (8, 0, 1))
        for sequence in range(4):
            append(node.partition, batch(producer=(9, 0, sequence), size=100))
        node.restart()
        node.partition.delete_records(Offset(1))
        await node.settled()
        node.restart()
        # A start from before it would have removed it.
        node.disk.remove(DIRECTORY / f"{1:020d}.snapshot")
        assert [segment.base_offset for segment in node.partition.segments] == [1]
        expected = node.partition.producers.entries
        aborted = node.partition.segments.aborted_transactions(Offset(0), Offset(10))
        assert 7 in expected
        path = DIRECTORY / f"{1:020d}{suffix}"
        if damage == "removed":
            node.disk.remove(path)
        else:
            file = node.disk.open(path)
            file.pwrite(bytes([file.pread(1, 5)[0] ^ 1]), 5)
            file.truncate(0 if damage == "emptied" else file.size())
        for _ in range(2):
            node.kill()
            assert node.partition.producers.entries == expected
            assert node.partition.segments.aborted_transactions(Offset(0), Offset(10)) == aborted
            fetched = node.partition.read(Offset(1), 10_000, Isolation.READ_UNCOMMITTED)
            assert isinstance(fetched, Fetched)
            assert bytes(fetched.records) == b"".join(bytes_of(node.partition))

    run(main())


def test_a_directory_without_commit_log_is_read_with_checksums() -> None:
    async def main() -> None:
        node = Node()
        append(node.partition, batch(tag="1"))
        append_transactional(node.partition, (7, 0, 0))
        await node.settled()
        node.storage.close()
        for name in node.disk.list(ROOT / "commit-log"):
            node.disk.remove(ROOT / "commit-log" / name)
        node.start()
        assert node.partition.high_watermark == 2
        assert node.partition.producers.open_transactions() == [(7, 1)]

    run(main())


@pytest.mark.parametrize("how", ["restart", "kill", "lose_power"])
@pytest.mark.parametrize(("timestamp", "rolled"), [(START, [4, 5]), (START + 3_000_000, [5])])
def test_a_node_that_is_started_often_rolls_by_age_too(timestamp: int, rolled: list[int], how: str) -> None:
    """Be it that max.compaction.lag.ms asks for it: else what was deleted would stay for ever."""

    async def main() -> None:
        node = Node(cleanup_policy="compact", max_compaction_lag_ms=1000)
        append(node.partition, batch(timestamp=timestamp))
        for before, after in (*[(400, 0)] * 4, (0, 1000)):
            await node.settled()
            node.clock.at += before
            getattr(node, how)()
            at_once(upkeep(node.storage, node.clock.now()))
            node.clock.at += after
            append(node.partition, batch(timestamp=node.clock.at))
        assert node.partition.segments.bases == [0, *rolled]

    run(main())


def test_what_was_known_where_a_segment_was_left_out_is_not_known_there_later() -> None:
    """Segments of batches of one size begin at the same offsets again."""

    async def main() -> None:
        node = Node(flush="os", segment_bytes=200)
        for sequence in range(5):
            append(node.partition, batch(producer=(7, 0, sequence)))
        await node.settled()
        node.storage.abandon()
        assert isinstance(node.disk, SimulatedDisk)
        node.disk.crash()
        torn = node.disk.open(DIRECTORY / f"{2:020d}.log")
        torn.truncate(torn.size() - 1)
        node.start()
        assert (node.partition.segments.bases, node.partition.log_end_offset) == ([0, 2], 3)
        for sequence in range(2):
            append(node.partition, batch(producer=(8, 0, sequence)))
        assert node.partition.segments.bases == [0, 2, 4]
        entries = read_snapshot(node.disk, DIRECTORY, Offset(4)) or []
        assert {each.producer_id: each.last_sequence for each in entries} == {7: 2, 8: 0}

    run(main())
