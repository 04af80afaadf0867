"""Any one file of a partition damaged in any way, at rest or under the node: the right records or an error, never else.

A history of plain, transactional, committed and aborted batches in several segments is written and closed.  Then one
file is damaged.  Every read at every offset, of either isolation and by time, gives what the history says or
KAFKA_STORAGE_ERROR; what is aborted is never missing from the list of aborted transactions; the other partition is
served; the node neither ends nor loops; and what could be read once can be read after another start.

Two things cannot be told from the files, and are the reader's to see: bytes within a batch, or a length that takes in
the next batch, by its CRC, and the leader epoch in front of it, which nothing covers.  Of the leader epochs, whose file
has no checksum, what is answered is what was, or what the batches that are there say.
"""

from __future__ import annotations

import asyncio
from contextlib import suppress
from functools import partial
from itertools import combinations, count, islice
from random import Random

import pytest
from tests.log.damaged_files import DIRECTORY, LAST_LEADER, PARTITIONS, SETTINGS, Case, check, flip_bit, written
from tests.log.log_doubles import START, Node, append, batch, run
from tests.seeds import seeds

from fencepost.log import commit_log
from fencepost.log.damage import FileDamaged
from fencepost.log.outcome import Refused
from fencepost.protocol.batch import headers
from fencepost.protocol.steps import Pace, finish
from fencepost.protocol.types import Isolation, Milliseconds, Offset
from fencepost.simulation.disk_faults import FaultyDisk


@pytest.fixture(autouse=True)
def files(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of a size that is copied fast."""
    monkeypatch.setattr(commit_log, "_ALLOCATION", 4096)


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


COUNT = 8
#: Byte of a batch -> bits of it: base offset and length.
NOT_COVERED = {0: (0,), 3: (5,), 6: (0,), 7: (0, 1, 2, 3), 8: (0,), 10: (0,), 11: (0, 3, 7)}


@pytest.mark.parametrize("number", range(6))
@pytest.mark.parametrize("even", [False, True])
def test_what_stands_around_a_batch_tells_of_the_fields_that_no_checksum_covers(number: int, *, even: bool) -> None:
    whole, _, _, _ = written(even=even)
    name = [name for name in whole.list(DIRECTORY) if name.endswith(".log")][number]
    begins = [begin for begin, _ in headers(whole.bytes_at(DIRECTORY / name))]
    for begin in (begins[0], begins[len(begins) // 2], begins[-1]):
        for byte, bit in ((byte, bit) for byte, bits in NOT_COVERED.items() for bit in bits):
            case = Case(begin + 8 * byte + bit, even=even)
            case.name, case.older = name, False
            case.how = partial(flip_bit, at=begin + byte, bit=bit)
            try:
                check(case)
            except (AssertionError, FileDamaged) as failure:
                raise AssertionError(f"{case}: bit {bit} of byte {byte} of the batch at {begin}") from failure


@pytest.mark.parametrize("was_read", [False, True])
def test_no_record_is_passed_over_where_batches_are_cut_out_under_the_node(was_read: bool) -> None:
    """What is behind them comes to stand where they were."""

    async def main() -> None:
        node = Node(FaultyDisk(Random(1)), index_interval_bytes=100)
        for number in range(COUNT):
            append(node.partition, batch(timestamp=START + number))
        await node.settled()
        path, disk = DIRECTORY / f"{0:020d}.log", node.disk
        assert isinstance(disk, FaultyDisk)
        data = disk.bytes_at(path)
        begins = [at for at, _ in headers(data)] + [len(data)]
        for first, following in combinations(range(COUNT + 1), 2):
            if was_read:
                assert all(offsets_from(node, offset) for offset in range(COUNT))
            disk.overwrite(path, data[: begins[first]] + data[begins[following] :])
            for offset in range(COUNT):
                found = offsets_from(node, offset)
                assert found == list(range(offset, offset + len(found))), (first, following, offset)
                newer = node.partition.reader.offset_for_timestamp(
                    Milliseconds(START + offset), Isolation.READ_UNCOMMITTED, Pace()
                )
                with suppress(FileDamaged):
                    there = finish(newer)
                    assert there is not None and there.offset == offset
            disk.overwrite(path, data)

    run(main())


def offsets_from(node: Node, offset: int) -> list[int]:
    """Of the batches that a reader is given; none where it is refused."""
    fetched = node.partition.read(Offset(offset), 100_000, Isolation.READ_UNCOMMITTED)
    return [] if isinstance(fetched, Refused) else [header.base_offset for _, header in headers(fetched.records)]


def test_the_newest_record_is_not_passed_over_where_its_offset_is_damaged() -> None:
    async def main() -> None:
        node = Node(FaultyDisk(Random(1)), segment_bytes=300)
        for number in (0, 1, 2, 3, 0, 0):
            append(node.partition, batch(timestamp=START + 10 * number))
        assert node.partition.segments.bases == [0, 4]
        await node.settled()
        node.storage.close()
        path = DIRECTORY / f"{0:020d}.log"
        assert isinstance(node.disk, FaultyDisk)
        data = node.disk.bytes_at(path)
        newest = [at for at, _ in headers(data)][-1]
        node.disk.overwrite(path, flip_bit(data, Random(), newest + 7, 3))
        node.start()
        with pytest.raises(FileDamaged, match="cannot stand there"):
            finish(node.partition.reader.max_timestamp_offset(Isolation.READ_UNCOMMITTED, Pace()))

    run(main())


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


def test_what_comes_after_damage_was_met_in_the_newest_segment_is_in_another_one() -> None:
    """A copy that is put in the place of the damaged one would lack it."""

    async def main() -> None:
        node = Node()
        for _ in range(2):
            append(node.partition, batch())
        await node.settled()
        file = node.disk.open(DIRECTORY / f"{0:020d}.log")
        file.pwrite(bytes(20), 0)
        assert isinstance(node.partition.read(Offset(0), 1000, Isolation.READ_UNCOMMITTED), Refused)
        append(node.partition, batch())
        append(node.partition, batch())
        assert node.partition.segments.bases == [0, 2]

    run(main())
