"""An index that leads astray is made again in steps, and what is found then is what is found with a whole one."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from random import Random
from typing import Any

import pytest
from tests.log.log_doubles import ROOT, START, Node, append, batch, bytes_of, run
from tests.seeds import seeds

from fencepost.log import segment_indexes
from fencepost.log.damage import FileDamaged
from fencepost.log.partition import Partition, Refused
from fencepost.log.segment import Segment
from fencepost.log.segment_indexes import IndexesBeingMade, SegmentIndexes, with_indexes, with_indexes_at_once
from fencepost.protocol.batch import read_header
from fencepost.protocol.steps import Pace, finish
from fencepost.protocol.types import Isolation, Milliseconds, Offset
from fencepost.simulation.disk_faults import FaultyDisk

UNCOMMITTED = Isolation.READ_UNCOMMITTED
SETTINGS: dict[str, Any] = {"segment_bytes": 8000, "index_interval_bytes": 200}
BATCHES = 150
Question = Callable[[Partition, Pace], Any]


@pytest.fixture(autouse=True)
def short_steps(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(segment_indexes, "HEADERS_AT_ONCE", 10)


async def with_damaged_indexes(random: Random | None, damaged: Sequence[str] = (".index", ".timeindex")) -> Node:
    """Two segments; with `random` the indexes of the first are so many other bytes."""
    node = Node(FaultyDisk(Random(1)), **SETTINGS)
    for number in range(BATCHES):
        append(node.partition, batch(2, timestamp=START + 7 * number % 100))
    assert len(node.partition.segments) > 1
    await node.settled()
    node.storage.close()
    if random is not None:
        assert isinstance(node.disk, FaultyDisk)
        for path in (ROOT / "t-0" / f"{0:020d}{suffix}" for suffix in damaged):
            node.disk.overwrite(path, random.randbytes(len(node.disk.bytes_at(path))))
    node.start()
    return node


def read_at(offset: int, partition: Partition, pace: Pace) -> Any:
    found = yield from with_indexes(lambda: partition.read(Offset(offset), 100, UNCOMMITTED, at_least_one=True), pace)
    return found if isinstance(found, Refused) else bytes(found.records)


def at_time(time: Milliseconds, partition: Partition, pace: Pace) -> Any:
    return (yield from partition.reader.offset_for_timestamp(time, UNCOMMITTED, pace))


def newest(partition: Partition, pace: Pace) -> Any:
    return (yield from partition.reader.max_timestamp_offset(UNCOMMITTED, pace))


QUESTIONS: list[Question] = [
    *(partial(read_at, offset) for offset in (0, 1, 40, 81, 160, BATCHES * 2 - 1)),
    *(partial(at_time, Milliseconds(START + time)) for time in (-1, 0, 50, 99, 100)),
    newest,
]


@pytest.mark.parametrize("seed", seeds(5))
@pytest.mark.parametrize("question", QUESTIONS)
def test_the_answer_is_that_of_whole_indexes(question: Question, seed: int) -> None:
    async def main(random: Random | None) -> Any:
        node = await with_damaged_indexes(random)
        return finish(question(node.partition, Pace()))

    assert run(main(Random(seed))) == run(main(None))


@pytest.mark.parametrize(("of", "has"), [(0, 1), (1, 0), (1, 2), (2, 0)])
def test_checksums_of_another_segment_are_not_believed(of: int, has: int) -> None:
    async def main(swapped: bool) -> list[Any]:
        node = Node(FaultyDisk(Random(1)), **SETTINGS)
        for number in range(3 * BATCHES):
            append(node.partition, batch(2, timestamp=START + 7 * number % 100))
        await node.settled()
        written = bytes_of(node.partition)
        *closed, _ = [ROOT / "t-0" / f"{base:020d}.checksums" for base in node.partition.segments.bases]
        node.storage.close()
        assert isinstance(node.disk, FaultyDisk)
        if swapped:
            node.disk.overwrite(closed[of], node.disk.bytes_at(closed[has]))
        node.start()
        assert bytes_of(node.partition) == written
        return [finish(question(node.partition, Pace())) for question in QUESTIONS]

    assert run(main(True)) == run(main(False))


@pytest.mark.parametrize("question", [partial(read_at, 160), partial(at_time, Milliseconds(START + 99)), newest])
def test_nobody_waits_for_more_than_a_step(question: Question, monkeypatch: pytest.MonkeyPatch) -> None:
    """However many batches there are: in each step no more are noted than fit into one."""
    noted = 0
    note = segment_indexes.SegmentIndexes.note

    def counted(*arguments: Any) -> None:
        nonlocal noted
        noted += 1
        note(*arguments)

    async def main() -> None:
        nonlocal noted
        node = await with_damaged_indexes(Random(1))
        monkeypatch.setattr(segment_indexes.SegmentIndexes, "note", counted)
        steps, most, pauses = question(node.partition, Pace()), 0, 0
        for _ in steps:
            most, noted, pauses = max(most, noted), 0, pauses + 1
        assert most <= 10 and pauses >= 5

    run(main())


def test_what_is_appended_meanwhile_is_in_them() -> None:
    """The segment that is written to can have an index that leads astray, too."""

    async def main() -> None:
        node = await with_damaged_indexes(None)
        segment, partition = node.partition.segments[-1], node.partition
        segment._making = segment_indexes.Making(segment._no_indexes(), segment.headers_from(0))
        before, added = partition.log_end_offset, 0
        while segment._making is not None:
            for _ in range(3):
                append(partition, batch(2, timestamp=START + 1000 + added))
                added += 1
            segment.make_indexes_further()
        await node.settled()
        assert added > 10 and partition.segments[-1] is segment
        assert partition.log_end_offset == before + 2 * added
        for offset in range(segment.base_offset, before + 2 * added):
            found = partition.read(offset, 1, UNCOMMITTED, at_least_one=True)
            assert not isinstance(found, Refused) and read_header(found.records).base_offset == offset // 2 * 2
        assert segment.max_timestamp == START + 1000 + added
        assert segment.indexes.offsets.last() == _made_at_once(segment).offsets.last()

    run(main())


def _made_at_once(segment: Segment) -> segment_indexes.SegmentIndexes:
    fresh = segment._no_indexes()
    making = segment_indexes.Making(fresh, segment.headers_from(0))
    while not making.is_done_after_a_step():
        pass
    return fresh


def test_two_who_need_them_make_them_together() -> None:
    async def main() -> None:
        node = await with_damaged_indexes(Random(2))
        first, second = read_at(40, node.partition, Pace()), read_at(81, node.partition, Pace())
        waiting, results = [first, second], []
        while waiting:
            for each in list(waiting):
                try:
                    next(each)
                except StopIteration as done:
                    results.append(done.value)
                    waiting.remove(each)
        batches = bytes_of(node.partition)
        assert sorted(results) == [batches[20], batches[40]]

    run(main())


def test_a_segment_that_was_closed_meanwhile_is_left_alone() -> None:
    async def main() -> None:
        node = await with_damaged_indexes(Random(2))
        segment = node.partition.segments[0]
        with pytest.raises(IndexesBeingMade) as caught:
            segment.locate(Offset(40))
        segment.close()
        caught.value.go_on()

    run(main())


def test_batches_that_cannot_be_read_end_it() -> None:
    """What the old index leads to can still be read; for the rest there is an error."""

    async def main() -> None:
        node = await with_damaged_indexes(Random(2), [".timeindex"])
        partition, segment = node.partition, node.partition.segments[0]
        assert isinstance(node.disk, FaultyDisk)
        whole = node.disk.bytes_at(segment.path)
        middle = segment.size // 2
        node.disk.overwrite(segment.path, whole[:middle] + bytes(200) + whole[middle + 200 :])
        answers = [finish(read_at(offset, partition, Pace())) for offset in range(0, segment.next_offset)]
        refused = [isinstance(each, Refused) for each in answers]
        assert answers[0] == whole[: read_header(whole).size] and not refused[-1]
        assert 1 <= sum(refused) <= 20

    run(main())


def test_those_who_keep_nobody_waiting_do_it_at_once() -> None:
    async def main() -> None:
        node = await with_damaged_indexes(Random(2))
        segment = node.partition.segments[0]
        position = with_indexes_at_once(lambda: segment.locate(Offset(40)))
        assert position is not None and next(segment.headers_from(position))[1].base_offset == 40

    run(main())


@pytest.mark.parametrize("interval", [0, 200, 1000])
def test_an_entry_is_made_every_so_many_bytes_and_no_more_often(interval: int) -> None:
    indexes = SegmentIndexes(FaultyDisk(Random(1)), ROOT / f"{0:020d}.log", Offset(0), interval)
    data = batch(1, size=50)
    header, position = read_header(data), 0
    for number in range(100):
        indexes.note(header, Offset(number), position)
        position += header.size
    batches = interval // header.size + 1
    assert indexes.offsets.count == 99 // batches


def test_a_time_index_that_is_damaged_is_begun_again_and_no_write_fails_for_it(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """It may have as few entries as one likes."""
    indexes = SegmentIndexes(FaultyDisk(Random(1)), ROOT / f"{0:020d}.log", Offset(0), 0)
    taken, failed = indexes.times.append, list[bool]()

    def damaged(timestamp: Milliseconds, relative_offset: int) -> None:
        if not failed:
            failed.append(True)
            raise FileDamaged(ROOT / "t", "is torn")
        taken(timestamp, relative_offset)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(indexes.times, "append", damaged)
        for number in range(3):
            indexes.note(read_header(batch(timestamp=START + number)), Offset(number), 100 * number)
    assert indexes.times.last() == (START + 2, 2)
    assert len(caplog.messages) == 1 and caplog.messages[0].startswith("begun again: ")
