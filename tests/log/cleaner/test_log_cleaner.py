"""Compaction changes nothing that a reader, a producer or a restart can tell, except that what is superseded goes."""

from __future__ import annotations

from collections.abc import Generator
from random import Random
from typing import Any

import pytest
from tests.log.cleaner_doubles import (
    KEYS,
    RETENTION,
    SETTINGS,
    SlowTimers,
    Writer,
    batches_of,
    committed,
    producers_of,
    table,
    until_idle,
)
from tests.log.log_doubles import ROOT, START, Node, append, end, run

from fencepost.log.cleaner import cleaning, rewriting
from fencepost.log.cleaner.cleaning import Pass, Steps
from fencepost.log.cleaner.log_cleaner import LogCleaner
from fencepost.log.cleaner.pace import TOGETHER
from fencepost.log.cleaner.settings import CleanerSettings
from fencepost.log.partition import Partition, Refused
from fencepost.log.settings import LONG
from fencepost.protocol.batch import BatchHeader
from fencepost.protocol.records import Record, decode_batch, encode_batch
from fencepost.protocol.types import Epoch, Offset, ProducerId


class Before:
    """A log before it is cleaned, to compare with."""

    def __init__(self, partition: Partition) -> None:
        self.batches = batches_of(partition)
        self.table = table(committed(partition))
        self.committed = {record.offset for record in committed(partition)}
        self.records = {r.offset: (h, r) for h, data in self.batches for r in decode_batch(data, 0, h)}
        self.producers = producers_of(partition)
        self.stable = partition.last_stable_offset
        self.ends = (partition.log_start_offset, partition.high_watermark, partition.log_end_offset)

    def check(self, partition: Partition) -> None:
        """What is there now is the same log, compacted."""
        after = batches_of(partition)
        assert table(committed(partition)) == self.table
        assert partition.last_stable_offset == self.stable
        assert (partition.log_start_offset, partition.high_watermark, partition.log_end_offset) == self.ends
        assert producers_of(partition) == self.producers
        self._check_batches(after)
        kept = {record.offset for record in committed(partition)}
        assert kept <= self.committed, "an aborted record appears"
        for offset in self.committed - kept:
            key = self.records[offset][1].key
            newer = [o for o in self.committed if o > offset and self.records[o][1].key == key]
            assert newer or self.records[offset][1].value is None, "the newest record of a key is gone"
        for begin in range(0, self.ends[2] + 1, 61):
            suffix = {record.offset for record in committed(partition, begin)}
            assert suffix == {each for each in kept if each >= begin}, "a reader from the middle misses records"

    def _check_batches(self, after: list[tuple[BatchHeader, bytes]]) -> None:
        known = {header.base_offset: (header, data) for header, data in self.batches}
        end = -1
        for header, data in after:
            assert header.base_offset > end, "offsets go up"
            end = header.last_offset
            old = known[header.base_offset][0]
            assert (header.last_offset, header.producer_id, header.producer_epoch, header.base_sequence) == (
                old.last_offset,
                old.producer_id,
                old.producer_epoch,
                old.base_sequence,
            )
            assert (header.is_control, header.is_transactional) == (old.is_control, old.is_transactional)
            assert header.partition_leader_epoch == old.partition_leader_epoch
            records = decode_batch(data, 0, header)
            assert len(records) == header.record_count
            if records:
                assert header.attributes & 7 == old.attributes & 7, "the codec stays"
                assert header.max_timestamp == max(record.timestamp for record in records)
            for record in records:
                assert record == self.records[record.offset][1]
        assert end + 1 == self.ends[2]


def write(node: Node, seed: int, steps: int) -> Writer:
    writer = Writer(node, Random(seed))
    for _ in range(steps):
        writer.step()
    return writer


@pytest.mark.parametrize("seed", range(16))
def test_only_what_is_superseded_goes(seed: int) -> None:
    async def main() -> None:
        random = Random(seed)
        node = Node(**SETTINGS)
        writer = Writer(node, random)
        read = written = 0
        for _ in range(5):
            for _ in range(random.randrange(10, 90)):
                writer.step()
            if random.random() < 0.5:
                # Into the middle of a transaction, too: what is left of it is aborted all the same.
                node.partition.delete_records(Offset(random.randint(0, node.partition.high_watermark)))
                node.storage.checkpoint_soon()
            await node.settled()
            before = Before(node.partition)
            # A buffer of a few keys takes several passes.
            capacity = random.choice((2, 5, 1000))
            cleaner = await until_idle(node, dedupe_buffer_size=280 * capacity, io_buffer_load_factor=1.0)
            assert not cleaner.uncleanable
            before.check(node.partition)
            read, written = read + cleaner.metrics.bytes_read, written + cleaner.metrics.bytes_written
            random.choice((lambda: None, node.kill, node.lose_power, node.restart))()
            before.check(node.partition)
            node.clock.at += random.choice((0, 0, RETENTION + 1))
        assert written < read

    run(main())


@pytest.mark.parametrize("seed", range(8))
def test_what_a_cleaned_log_says_of_transactions_needs_nothing_beside_its_batches(seed: int) -> None:
    """The commit log and the snapshots are lost: a batch that only its producer still needs opens nothing for ever."""

    async def main() -> None:
        random = Random(seed)
        node = Node(**SETTINGS)
        write(node, seed, random.randrange(10, 60))
        for _ in range(5):
            # Only others go on to write, so that these batches are the last of their producers.
            append(node.partition, encode_batch([(node.clock.at, b"other", b"1", ())]))
            node.partition.roll()
            await node.settled()
            await until_idle(node)
            node.clock.at += RETENTION + 1
        before, opened = Before(node.partition), node.partition.producers.open_transactions()
        node.storage.close()
        for directory in (ROOT / "commit-log", ROOT / "t-0"):
            for name in node.disk.list(directory):
                if directory.name == "commit-log" or name.endswith((".snapshot", ".window")):
                    node.disk.remove(directory / name)
        node.start()
        assert node.partition.producers.open_transactions() == opened
        assert node.partition.last_stable_offset == before.stable
        assert table(committed(node.partition)) == before.table

    run(main())


def latest_only(partition: Partition) -> list[Record]:
    return [record for header, data in batches_of(partition) if not header.is_control for record in decode_batch(data)]


@pytest.mark.parametrize("capacity", [3, 1000])
def test_in_the_end_only_the_newest_records_are_left_however_few_keys_a_pass_has_room_for(capacity: int) -> None:
    room = {"dedupe_buffer_size": 280 * capacity, "io_buffer_load_factor": 1.0}

    async def main() -> None:
        node = Node(**SETTINGS)
        writer = write(node, 3, 400)
        for producer_id in sorted(writer.open):
            writer.end(producer_id)
        node.partition.roll()
        await node.settled()
        expected = table(committed(node.partition))
        for _ in range(3):
            await until_idle(node, **room)
            node.clock.at += RETENTION + 1
            # Something dirty, so that there is a pass.
            writer.keys = (b"other",)
            writer.step()
            writer.end(0)
            node.partition.roll()
            await node.settled()
        await until_idle(node, **room)
        left = [record for record in latest_only(node.partition) if record.key != b"other"]
        assert {record.key: record.value for record in left} == expected
        assert len(left) == len(expected) <= len(KEYS)
        markers = [header for header, _ in batches_of(node.partition) if header.is_control and header.record_count]
        assert len(markers) <= 8, "markers of which nothing is left are gone"

    run(main())


@pytest.mark.parametrize(("waited", "there"), [(RETENTION - 1, True), (RETENTION, False)])
@pytest.mark.parametrize("passes", [1, 3])
def test_a_tombstone_stays_until_its_horizon_whatever_passes_come_meanwhile(
    waited: int, there: bool, passes: int
) -> None:
    async def main() -> None:
        node = Node(**SETTINGS)

        async def put(*records: tuple[bytes, bytes | None]) -> None:
            append(node.partition, encode_batch([(node.clock.at, key, value, ()) for key, value in records]))
            node.partition.roll()
            await node.settled()
            await until_idle(node)

        await put((b"k", b"1"), (b"o", b"1"))
        await put((b"k", None))
        records = latest_only(node.partition)
        assert [(r.key, r.value, r.offset, r.timestamp) for r in records] == [
            (b"o", b"1", 1, START),
            (b"k", None, 2, START),
        ]
        for number in range(1, passes):
            node.clock.at = START + waited * number // passes
            await put((b"q", b"1"))
        node.clock.at = START + waited
        await put((b"p", b"1"))
        assert (b"k" in {record.key for record in latest_only(node.partition)}) is there

    run(main())


def test_tombstones_may_be_kept_for_as_long_as_a_setting_can_say() -> None:
    async def main() -> None:
        node = Node(None, [("t", 0), ("other", 0)], **SETTINGS)
        node.partition.settings = node.partition.settings.with_(delete_retention_ms=LONG)
        for key, value in ((b"k", b"1"), (b"o", b"1"), (b"k", None)):
            for partition in (node.partition, node.of("other")):
                append(partition, encode_batch([(START, key, value, ()), (-1000, key, value, ())]))
                partition.roll()
        await node.settled()
        await until_idle(node)
        node.clock.at += 10 * RETENTION
        for partition in (node.partition, node.of("other")):
            append(partition, encode_batch([(START, b"p", b"1", ())]))
            partition.roll()
        await until_idle(node)
        kept = [(r.key, r.value, r.timestamp) for r in latest_only(node.partition)]
        assert kept == [(b"o", b"1", -1000), (b"k", None, -1000), (b"p", b"1", START)]
        assert [r.key for r in latest_only(node.of("other"))] == [b"o", b"p"]

    run(main())


def test_what_is_left_of_an_aborted_transaction_stays_aborted_when_its_beginning_was_deleted() -> None:
    async def main() -> None:
        node = Node(**SETTINGS)
        partition = node.partition
        for sequence, key in enumerate((b"a", b"b")):
            guard = partition.start_verification(ProducerId(1), Epoch(0), sequence, False, START)
            assert not isinstance(guard, Refused)
            records = [(START, key, b"1", ())]
            data = encode_batch(
                records, producer_id=ProducerId(1), producer_epoch=Epoch(0), base_sequence=sequence, transactional=True
            )
            append(partition, data, guard=guard)
            partition.roll()
        end(partition, 1, 0, commit=False)
        append(partition, encode_batch([(START, b"c", b"1", ())]))
        partition.roll()
        await node.settled()
        partition.delete_records(Offset(1))
        node.storage.checkpoint_soon()
        await node.settled()
        assert partition.segments.bases[0] == 1, "the segment in which it began is gone"
        await until_idle(node)
        assert [record.key for record in committed(partition)] == [b"c"]
        node.kill()
        assert [record.key for record in committed(node.partition)] == [b"c"]

    run(main())


@pytest.mark.parametrize(("late", "fewest", "most"), [(0.0, 1, 1), (0.005, 4, 8), (60.0, 9, 13)])
def test_it_works_as_long_as_others_have_but_never_long(
    late: float, fewest: int, most: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """However busy the loop is, it gets its share of it, in turns of ten milliseconds at most."""
    monkeypatch.setattr(cleaning, "STEP", 1)

    async def main() -> None:
        node = Node(**SETTINGS)
        writer = write(node, 4, 200)
        for producer_id in sorted(writer.open):
            writer.end(producer_id)
        node.partition.roll()
        await node.settled()
        node.restart()
        timers, steps = SlowTimers(), []
        cleaner = LogCleaner(node.storage, CleanerSettings(), node.clock, timers)
        original = Pass._pause

        def counted(begun: Pass) -> Steps[None]:
            steps.append(timers.now)
            yield from original(begun)

        monkeypatch.setattr(Pass, "_pause", counted)
        cleaner.start()
        timers.ring(0)
        for _ in range(3):
            steps.clear()
            timers.ring(late)
            assert fewest <= len(steps) <= most
        cleaner.close()

    run(main())


@pytest.mark.parametrize(("journals", "most"), [(6, 6), (20, TOGETHER), (0, 1)])
def test_some_journals_are_cleaned_together_and_other_logs_alone(
    journals: int, most: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Every one has its turn, whatever there is beside it; while one waits for the disk the next one works."""
    begun: list[str] = []
    together: list[set[str]] = []
    steps = Pass.steps

    def noted(work: Pass) -> Steps[None]:
        topic = work._log.directory.name
        begun.append(topic)
        try:
            for files in steps(work):
                together.append(set(begun))
                yield files
        finally:
            begun.remove(topic)

    async def main() -> None:
        names = [(f"journal-{number}", 0) for number in range(journals)] + [("user-0", 0), ("user-1", 0)]
        node = Node(None, names, **SETTINGS)
        for number, (name, _) in enumerate(names):
            partition = node.of(name)
            for _ in range(4 + number):
                append(partition, encode_batch([(START, b"k", bytes(700), ())]))
            partition.roll()
        await node.settled()
        node.restart()
        for name, _ in names:
            if name.startswith("journal"):
                node.of(name).settings = node.of(name).settings.with_(journal_roll_bytes=1_000)
        monkeypatch.setattr(Pass, "steps", noted)
        cleaner = await until_idle(node)
        assert cleaner.metrics.passes == len(names)
        assert all(len(list(node.of(name).scan())) <= 2 for name, _ in names)
        for each in together:
            assert len(each) == 1 or not any("user" in name for name in each)
        assert max(map(len, together)) == most
        assert not begun

    run(main())


def test_a_batch_of_very_many_records_leaves_turns_for_others(monkeypatch: pytest.MonkeyPatch) -> None:
    """To write anew what stays of it is as long as to read it: each step of that is a step of the pass."""
    rewritten, done = rewriting.rewritten, 0

    def slow(*asked: Any) -> Generator[None, None, bytes]:
        nonlocal done
        for _ in range(100):
            done += 1
            yield
        return (yield from rewritten(*asked))

    async def main() -> None:
        node, paused_at = Node(**SETTINGS), set()
        pause = Pass._pause

        def counted(begun: Pass) -> Steps[None]:
            paused_at.add(done)
            yield from pause(begun)

        monkeypatch.setattr(rewriting, "rewritten", slow)
        monkeypatch.setattr(Pass, "_pause", counted)
        for _ in range(2):
            append(node.partition, encode_batch([(START, b"a", b"1", ()), (START, b"b", b"2", ())]))
            append(node.partition, encode_batch([(START, b"a", b"3", ())]))
        node.partition.roll()
        await node.settled()
        await until_idle(node)
        assert paused_at >= set(range(1, 101))
        assert table(committed(node.partition)) == {b"a": b"3", b"b": b"2"}

    run(main())
