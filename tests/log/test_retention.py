"""Segments that are too old or too many go, the newest one too, and their files soon after."""

from __future__ import annotations

import asyncio
import errno
from dataclasses import dataclass
from pathlib import Path
from random import Random

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from tests.log.cleaner_doubles import until_idle
from tests.log.log_doubles import (
    ROOT,
    START,
    Node,
    append,
    append_transactional,
    batch,
    delete_topic,
    end,
    run,
    values_of,
)

from fencepost.log.disk import File
from fencepost.log.retention import WORTH_A_ROLL, new_start
from fencepost.log.settings import LogSettings
from fencepost.log.upkeep import upkeep
from fencepost.protocol.records import encode_batch
from fencepost.protocol.types import Milliseconds, Offset
from fencepost.runtime import at_once
from fencepost.simulation.disk import SimulatedDisk

NOW = Milliseconds(1000)


@dataclass
class Stretch:
    """A segment, as far as retention cares."""

    base_offset: Offset
    size: int
    max_timestamp: Milliseconds
    created: int = -1


@st.composite
def logs(draw: st.DrawFn) -> tuple[list[Stretch], int]:
    """Segments of a log, each ten offsets long, the last one perhaps empty; and the log end."""
    segments = []
    for number in range(draw(st.integers(1, 5))):
        time = draw(st.sampled_from((-1, 0, 500, 900, 1500)))
        segments.append(
            Stretch(
                Offset(number * 10),
                draw(st.integers(1, 3)) * 100,
                Milliseconds(time),
                draw(st.sampled_from((-1, 100, 950))),
            )
        )
    if draw(st.booleans()):
        segments.append(Stretch(Offset(len(segments) * 10), 0, Milliseconds(-1)))
        return segments, segments[-1].base_offset
    return segments, len(segments) * 10


def as_kafka_does(segments: list[Stretch], start: int, end: int, limit: int, settings: LogSettings) -> int:
    """UnifiedLog.deleteOldSegments of Apache Kafka, pass by pass."""
    left = list(segments)

    def upto(number: int) -> int:
        return left[number + 1].base_offset if number + 1 < len(left) else end

    while len(left) > 1 and left[1].base_offset <= start:
        left.pop(0)
    surplus = sum(each.size for each in left) - settings.retention_bytes
    while settings.retention_bytes >= 0 and left and left[0].size and surplus >= left[0].size and upto(0) <= limit:
        surplus -= left[0].size
        start = max(start, upto(0))
        left.pop(0)
    while settings.retention_ms >= 0 and left and left[0].size and upto(0) <= limit:
        time = left[0].max_timestamp if left[0].max_timestamp >= 0 else left[0].created
        if time < 0 or NOW - time <= settings.retention_ms:
            break
        start = max(start, upto(0))
        left.pop(0)
    return start


@given(
    logs(),
    st.integers(0, 60),
    st.integers(0, 60),
    st.sampled_from((-1, 0, 50, 400)),
    st.sampled_from((-1, 0, 150, 400)),
)
@example(
    (
        [
            Stretch(Offset(at), size, Milliseconds(time))
            for at, size, time in ((0, 100, 900), (10, 100, 0), (20, 0, -1))
        ],
        20,
    ),
    10,
    20,
    400,
    -1,
)
def test_it_takes_what_apache_kafka_takes(
    log: tuple[list[Stretch], int], start: int, limit: int, milliseconds: Milliseconds, size: int
) -> None:
    segments, end = log
    start, limit = min(start, end), min(limit, end)
    settings = LogSettings(retention_ms=milliseconds, retention_bytes=size)
    expected = as_kafka_does(segments, start, end, limit, settings)
    if segments[-1].size == 0:
        expected = min(expected, segments[-1].base_offset)
    assert new_start(segments, Offset(start), Offset(end), Offset(limit), settings, NOW) == expected


def names(node: Node, suffix: str) -> list[str]:
    return [name for name in node.disk.list(ROOT / "t-0") if name.endswith(suffix)]


@pytest.mark.parametrize("open_at_the_end", [False, True])
def test_the_newest_segment_goes_too_and_its_files_soon_after(open_at_the_end: bool) -> None:
    async def main() -> None:
        node = Node(retention_ms=1000, segment_bytes=200, file_delete_delay_ms=60_000)
        for number in range(5):
            append(node.partition, batch(tag=f"{number}"))
        if open_at_the_end:
            append_transactional(node.partition, (7, 0, 0))
        await node.settled()
        at_once(upkeep(node.storage, Milliseconds(node.clock.at + 500)))
        assert node.partition.log_start_offset == 0
        at_once(upkeep(node.storage, Milliseconds(node.clock.at + 1500)))
        kept = 4 if open_at_the_end else 5
        assert node.partition.log_start_offset == kept
        await asyncio.sleep(1)
        assert names(node, ".log") == [f"{kept:020d}.log"]
        assert len(names(node, ".log.deleted")) == (2 if open_at_the_end else 3)
        await asyncio.sleep(60)
        assert names(node, ".deleted") == []
        if open_at_the_end:
            end(node.partition, 7, 0, True)
            await node.settled()
            at_once(upkeep(node.storage, Milliseconds(node.clock.at + 1500)))
            assert node.partition.log_start_offset == 7
        append(node.partition, batch(tag="later"))
        await node.settled()
        node.lose_power()
        assert values_of(node.partition) == [b"later"]

    run(main())


def test_a_partition_that_a_checkpoint_has_whole_goes_whole() -> None:
    async def main() -> None:
        node = Node(retention_ms=1000, file_delete_delay_ms=0)
        append(node.partition, batch())
        await node.settled()
        node.restart()
        at_once(upkeep(node.storage, Milliseconds(node.clock.at + 1500)))
        await asyncio.sleep(1)
        assert names(node, ".log") == [f"{1:020d}.log"]
        append(node.partition, batch(producer=(7, 0, 0), tag="a"))
        await node.settled()
        node.lose_power()
        assert values_of(node.partition) == [b"a"]
        assert node.partition.log_start_offset == 1

    run(main())


def test_what_has_no_time_is_as_old_as_it_was_seen() -> None:
    async def main() -> None:
        node = Node(retention_ms=1000)
        append(node.partition, batch(timestamp=-1))
        await node.settled()
        node.restart()
        at_once(upkeep(node.storage, Milliseconds(node.clock.at)))
        at_once(upkeep(node.storage, Milliseconds(node.clock.at + 1000)))
        assert node.partition.log_start_offset == 0
        at_once(upkeep(node.storage, Milliseconds(node.clock.at + 1001)))
        assert node.partition.log_start_offset == 1

    run(main())


@pytest.mark.parametrize("how", ["restart", "kill", "lose_power"])
def test_so_is_what_stands_before_the_newest_segment(how: str) -> None:
    async def main() -> None:
        node = Node(retention_ms=1000, segment_bytes=100)
        for time in (-1, -1, START, -1):
            append(node.partition, batch(timestamp=time))
        await node.settled()
        getattr(node, how)()
        assert len(node.partition.segments) == 4
        for waited, start in ((0, 0), (1000, 0), (1001, 4)):
            at_once(upkeep(node.storage, Milliseconds(node.clock.at + waited)))
            assert node.partition.log_start_offset == start

    run(main())


def test_a_segment_of_which_compaction_left_nothing_keeps_none_behind_it() -> None:
    async def main() -> None:
        node = Node(
            retention_ms=1000, cleanup_policy="compact,delete", segment_bytes=200, min_cleanable_dirty_ratio=0.0
        )
        for value in (bytes(60), bytes(61), bytes(62)):
            append(node.partition, encode_batch([(START, b"k", value, ())]))
            node.partition.roll()
        await node.settled()
        await until_idle(node)
        assert [segment.size > 0 for segment in node.partition.segments] == [False, False, True, False]
        node.restart()
        at_once(upkeep(node.storage, Milliseconds(START + 1000)))
        assert node.partition.log_start_offset == 0
        at_once(upkeep(node.storage, Milliseconds(START + 1001)))
        assert node.partition.log_start_offset == 3

    run(main())


def test_what_delete_records_has_passed_goes_at_the_next_tick() -> None:
    async def main() -> None:
        node = Node(segment_bytes=100, file_delete_delay_ms=0)
        for _ in range(4):
            append(node.partition, batch())
        await node.settled()
        node.partition.delete_records(Offset(3))
        await node.settled()
        assert len(names(node, ".log")) == 4, "they are what the producers are made from again after a crash"
        at_once(upkeep(node.storage, Milliseconds(node.clock.at)))
        await asyncio.sleep(1)
        assert names(node, ".log") == [f"{3:020d}.log"]

    run(main())


@pytest.mark.parametrize("policy", ["delete", "compact,delete"])
def test_a_segment_goes_on_when_delete_records_has_passed_some_of_it(policy: str) -> None:
    """As in Apache Kafka: retention begins a new one only to take all of the newest one."""

    async def main() -> None:
        node = Node(cleanup_policy=policy)
        for _ in range(3):
            append(node.partition, batch())
        await node.settled()
        node.partition.delete_records(Offset(1))
        at_once(upkeep(node.storage, Milliseconds(node.clock.at)))
        assert node.partition.segments.bases == [0]
        append(node.partition, batch())
        await node.settled()
        node.partition.delete_records(Offset(-1))
        at_once(upkeep(node.storage, Milliseconds(node.clock.at)))
        assert node.partition.segments.bases[-1] == 4

    run(main())


@pytest.mark.parametrize("size", [WORTH_A_ROLL, 1000])
def test_a_large_segment_that_delete_records_has_passed_goes_although_somebody_goes_on_to_write(size: int) -> None:
    """On a full disk that may be all there is to take.  A small one would make a segment of each record."""

    async def main() -> None:
        node = Node(file_delete_delay_ms=0, max_message_bytes=2 * size)
        append(node.partition, batch(size=size))
        await node.settled()
        for _ in range(3):
            node.partition.delete_records(Offset(-1))
            append(node.partition, batch())
            await node.settled()
        assert node.partition.segments.bases == ([0, 1] if size == WORTH_A_ROLL else [0])
        at_once(upkeep(node.storage, Milliseconds(node.clock.at)))
        await asyncio.sleep(1)
        assert names(node, ".log") == [f"{int(size == WORTH_A_ROLL):020d}.log"]
        node.lose_power()
        assert (node.partition.log_start_offset, node.partition.log_end_offset) == (3, 4)

    run(main())


class Unwritable(SimulatedDisk):
    """No file of one partition can be opened, as long as there is an error."""

    error: OSError | None = None

    def open(self, path: Path) -> File:
        if self.error is not None and path.parent == ROOT / "a-0":
            raise self.error
        return super().open(path)


ERRORS = [OSError(errno.EIO, "Input/output error"), PermissionError(errno.EACCES, "Permission denied")]


@pytest.mark.parametrize("error", ERRORS)
def test_a_partition_that_cannot_begin_a_segment_keeps_no_other_from_its_retention(error: OSError) -> None:
    async def main() -> None:
        disk = Unwritable(Random(1))
        node = Node(disk, [("a", 0), ("b", 0)], retention_ms=1000)
        for topic in "ab":
            append(node.of(topic), batch())
        await node.settled()
        disk.error = error
        at_once(upkeep(node.storage, Milliseconds(node.clock.at + 5000)))
        assert [node.of(topic).log_start_offset for topic in "ab"] == [0, 1]
        disk.error = None
        at_once(upkeep(node.storage, Milliseconds(node.clock.at + 5000)))
        assert node.of("a").log_start_offset == 1

    run(main())


@pytest.mark.parametrize("error", ERRORS)
def test_records_that_were_deleted_stay_deleted_where_no_segment_can_be_begun(error: OSError) -> None:
    async def main() -> None:
        disk = Unwritable(Random(1))
        node = Node(disk, [("a", 0)], max_message_bytes=2 * WORTH_A_ROLL)
        append(node.partition, batch(size=WORTH_A_ROLL))
        await node.settled()
        disk.error = error
        assert isinstance(node.partition.delete_records(Offset(1)), int)
        await node.settled()
        disk.error = None
        node.kill()
        assert (node.partition.log_start_offset, node.partition.log_end_offset) == (1, 1)

    run(main())


@pytest.mark.parametrize("how", ["kill", "restart", "lose_power"])
def test_what_is_marked_goes_at_the_next_start(how: str) -> None:
    async def main() -> None:
        node = Node(retention_ms=1000, segment_bytes=100)
        for _ in range(3):
            append(node.partition, batch())
        await node.settled()
        at_once(upkeep(node.storage, Milliseconds(node.clock.at + 5000)))
        await asyncio.sleep(1)
        assert names(node, ".deleted")
        getattr(node, how)()
        assert names(node, ".deleted") == []
        assert node.partition.log_start_offset == 3

    run(main())


def test_the_files_of_a_deleted_topic_go_after_the_same_time() -> None:
    async def main() -> None:
        node = Node(file_delete_delay_ms=5000)
        append(node.partition, batch())
        await node.settled()
        delete_topic(node.storage, "t")
        await asyncio.sleep(4)
        assert [name for name in node.disk.list(ROOT) if name.endswith("-delete")]
        await asyncio.sleep(2)
        assert [name for name in node.disk.list(ROOT) if name.startswith("t-0")] == []

    run(main())


@pytest.mark.parametrize("after", range(8))
def test_a_topic_deleted_while_a_checkpoint_syncs_it_takes_nothing_away_from_that(after: int) -> None:
    async def main() -> None:
        partitions = [(topic, n) for topic in "ab" for n in range(6)]
        node = Node(partitions=partitions, open_files=4, file_delete_delay_ms=1)
        for topic, number in partitions:
            append(node.of(topic, number), batch(tag=topic))
        await node.settled()
        node.storage.checkpoint_soon()
        for _ in range(after):
            await asyncio.sleep(0.0005)
        delete_topic(node.storage, "a")
        await asyncio.sleep(1)
        await node.settled()
        assert node.storage.failure is None
        assert [name for name in node.disk.list(ROOT) if name.startswith("a-")] == []
        node.names = [("b", n) for n in range(6)]
        node.lose_power()
        assert all(values_of(node.of("b", n)) == [b"b"] for n in range(6))

    run(main())


def test_a_segment_that_is_rolled_without_anything_new_is_synced_by_the_next_checkpoint() -> None:
    """Its indexes may be in the page cache only: a start cuts them, and says nothing of it to the disk."""

    async def main() -> None:
        node = Node()
        append(node.partition, batch())
        await node.settled()
        node.storage.checkpoint_soon()
        await node.settled()
        await asyncio.sleep(0.1)
        rolled = node.partition.segments[-1]
        assert not node.partition.changed
        node.partition.roll()
        assert node.partition.changed and rolled in node.partition.unsynced_segments()
        node.storage.checkpoint_soon()
        await asyncio.sleep(0.1)
        await node.settled()
        assert not node.partition.changed and rolled not in node.partition.unsynced_segments()
        node.kill()
        assert len(values_of(node.partition)) == 1

    run(main())


@pytest.mark.parametrize(("policy", "start"), [("compact", 0), ("delete", 20), ("compact,delete", 20)])
def test_what_is_only_to_be_compacted_is_never_too_old(policy: str, start: int) -> None:
    segments = [Stretch(Offset(0), 100, Milliseconds(0)), Stretch(Offset(10), 100, Milliseconds(0))]
    settings = LogSettings(retention_ms=Milliseconds(1), retention_bytes=0, cleanup_policy=policy)
    assert new_start(segments, Offset(0), Offset(20), Offset(20), settings, NOW) == start
