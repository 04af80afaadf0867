"""What is noted of how far logs are clean counts for those very logs only."""

from __future__ import annotations

import asyncio
import uuid
from random import Random
from types import SimpleNamespace
from typing import Any

import pytest
from tests.log.cleaner_doubles import RETENTION, SETTINGS, cleaner_of, committed, table, until_idle
from tests.log.log_doubles import ROOT, Node, append, delete_topic, run, topic_id

from fencepost.log.cleaner import first_dirty_offsets
from fencepost.log.cleaner.first_dirty_offsets import FirstDirtyOffsets, LogId, decode, encode
from fencepost.log.partition import Partition
from fencepost.protocol.records import encode_batch
from fencepost.protocol.types import LeaderEpoch, Milliseconds, Offset
from fencepost.simulation.disk import SimulatedDisk

OTHER = uuid.UUID(int=7)
NOTED = {
    LogId("t", 0, topic_id("t")): Offset(0),
    LogId("t", 10, topic_id("t")): Offset(2**63 - 1),
    LogId("t", 0, OTHER): Offset(12),
    LogId("a" * 249, 9999, uuid.UUID(int=2**128 - 1)): Offset(3),
}


@pytest.mark.parametrize("noted", [{}, NOTED])
def test_what_is_written_is_read_again(noted: dict[LogId, Offset]) -> None:
    assert decode(encode(noted)) == noted


def test_a_file_with_any_one_bit_changed_or_any_part_missing_says_nothing() -> None:
    whole = encode(NOTED)
    for place in range(len(whole)):
        assert decode(whole[:place]) == decode(whole[:place] + whole[place + 1 :]) == {}
        for bit in range(8):
            changed = bytearray(whole)
            changed[place] ^= 1 << bit
            assert decode(bytes(changed)) == {}


@pytest.mark.parametrize("content", [b"", b"\n", b"0\n0\n", b"0\n1\nt 0 5\n", b"1\n1\nt 0 5\n"])
def test_a_file_of_an_earlier_version_says_nothing(content: bytes) -> None:
    assert decode(content) == {}


def test_of_a_topic_that_was_made_anew_what_was_noted_of_the_former_one_is_forgotten() -> None:
    """Else the file would have a line for each that ever had its name."""
    disk, former, present = SimulatedDisk(Random(1)), LogId("t", 0, topic_id("t")), LogId("t", 0, OTHER)
    disk.make_directory(ROOT)
    noted = FirstDirtyOffsets(disk, ROOT)
    noted.cleaned(former, Offset(3))
    noted.cleaned(present, Offset(2))
    there: Any = SimpleNamespace(topic="t", index=0, topic_id=OTHER, log_start_offset=0, log_end_offset=5)
    noted.keep(lambda *_: there)

    async def main() -> None:
        noted.note(Milliseconds(0), Milliseconds(0), lambda _: None)
        await asyncio.sleep(1)

    run(main())
    assert first_dirty_offsets.read(disk, ROOT) == {present: 2}


def write(partition: Partition, now: int, *values: bytes | None) -> None:
    """The newest values of one key, and others so that there is something to note."""
    for value in values:
        append(partition, encode_batch([(now, b"key", value, ())]))
    append(partition, encode_batch([(now, b"last", bytes(200), ())]))


async def clean(node: Node) -> None:
    """Have it look a few times."""
    node.partition.roll()
    node.storage.checkpoint_soon()
    await asyncio.sleep(5)


def make_anew(node: Node) -> None:
    """The topic, as long as it was, with a key that was deleted in it."""
    delete_topic(node.storage, "t")
    node.storage.create_partition("t", OTHER, 0, leader_epoch=LeaderEpoch(0))
    write(node.partition, node.clock.at, b"first", None, b"second", None)


@pytest.mark.parametrize("started_again", [False, True])
def test_a_key_that_was_deleted_stays_so_in_a_topic_that_was_made_anew(*, started_again: bool) -> None:
    """What was clean of the deleted one would be taken for clean in this one: the tombstone goes, the value stays."""

    async def main() -> None:
        node = Node(SimulatedDisk(Random(1)), **SETTINGS)
        write(node.partition, node.clock.at, b"1", b"2", b"3", b"4")
        cleaner = cleaner_of(node)
        cleaner.start()
        await clean(node)
        assert list(table(committed(node.partition)).values()) == [b"4", bytes(200)]
        if started_again:
            cleaner.close()
            assert len(first_dirty_offsets.read(node.disk, node.root)) == 1
        make_anew(node)
        if started_again:
            cleaner = cleaner_of(node)
            cleaner.start()
        for _ in range(3):
            await clean(node)
            node.clock.at += RETENTION + 1
            append(node.partition, encode_batch([(node.clock.at, b"another", b"1", ())]))
        assert b"key" not in table(committed(node.partition))
        assert all(record.key != b"key" for record in committed(node.partition))
        cleaner.close()

    run(main())


def test_a_log_that_has_less_than_was_clean_is_dirty_from_its_beginning_however_it_grows() -> None:
    """An older copy of a partition was put back."""

    async def main() -> None:
        node = Node(SimulatedDisk(Random(1)), **SETTINGS)
        write(node.partition, node.clock.at, b"1", b"2")
        await node.settled()
        noted = {LogId("t", 0, topic_id("t")): Offset(5)}
        first_dirty_offsets.write(node.disk, node.root, noted, lambda _: None)
        await asyncio.sleep(1)
        assert first_dirty_offsets.read(node.disk, node.root) == noted
        cleaner = cleaner_of(node)
        cleaner.start()
        write(node.partition, node.clock.at, b"3", None)
        assert node.partition.log_end_offset == 6
        for _ in range(3):
            await clean(node)
            node.clock.at += RETENTION + 1
            append(node.partition, encode_batch([(node.clock.at, b"another", b"1", ())]))
        assert all(record.key != b"key" for record in committed(node.partition))
        cleaner.close()

    run(main())


def test_a_log_that_could_not_be_cleaned_says_nothing_of_one_made_anew() -> None:
    async def main() -> None:
        node = Node(SimulatedDisk(Random(1)), **SETTINGS)
        write(node.partition, node.clock.at, b"1", b"2", b"3", b"4")
        node.partition.roll()
        await node.settled()
        segment = node.partition.segments[0]
        node.disk.open(segment.path).pwrite(b"\x55" * 40, 80)
        cleaner = await until_idle(node)
        assert len(cleaner.uncleanable) == 1
        cleaner = cleaner_of(node)
        cleaner.start()
        await asyncio.sleep(5)
        assert len(cleaner.uncleanable) == 1
        delete_topic(node.storage, "t")
        await asyncio.sleep(5)
        assert not cleaner.uncleanable, "what is gone is not counted"
        node.storage.create_partition("t", OTHER, 0, leader_epoch=LeaderEpoch(0))
        write(node.partition, node.clock.at, b"1", b"2", b"3", b"4")
        await clean(node)
        assert [record.value for record in committed(node.partition)] == [b"4", bytes(200)]
        cleaner.close()

    run(main())


def test_what_is_noted_while_the_disk_is_slow_is_noted_after_that() -> None:
    """The file is written beside its place: two at once would take it from each other, and the node ends by that."""

    async def main() -> None:
        disk = SimulatedDisk(Random(1))
        disk.slowest_sync = 5.0
        node = Node(disk, **SETTINGS)
        log, failures = LogId("t", 0, topic_id("t")), list[OSError]()
        noted = FirstDirtyOffsets(disk, node.root)
        await node.settled()
        before = disk.descriptors_used
        for number in range(60):
            noted.cleaned(log, Offset(number))
            noted.note(Milliseconds(number), Milliseconds(0), failures.append)
            await asyncio.sleep(0.2)
        await asyncio.sleep(5)
        noted.note(Milliseconds(60), Milliseconds(0), failures.append)
        await asyncio.sleep(5)
        assert failures == []
        assert first_dirty_offsets.read(disk, node.root) == {log: 59}
        assert disk.descriptors_used == before, "no file is left open"

    run(main())


def test_what_a_full_disk_did_not_take_is_written_when_there_is_room() -> None:
    """Though nothing was cleaned since: a start would clean all of it once more."""

    async def main() -> None:
        disk = SimulatedDisk(Random(1))
        node = Node(disk, **SETTINGS)
        await node.settled()
        log, failures = LogId("t", 0, topic_id("t")), list[OSError]()
        noted = FirstDirtyOffsets(disk, node.root)
        noted.cleaned(log, Offset(3))
        disk.capacity = disk.used()
        noted.note(Milliseconds(1), Milliseconds(0), failures.append)
        await asyncio.sleep(5)
        assert first_dirty_offsets.read(disk, node.root) == {}
        disk.capacity = None
        noted.note(Milliseconds(2), Milliseconds(0), failures.append)
        await asyncio.sleep(5)
        assert failures == []
        assert first_dirty_offsets.read(disk, node.root) == {log: 3}

    run(main())
