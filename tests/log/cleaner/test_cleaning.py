"""One pass over one log, driven step by step: what stays, up to where it is clean, and what others may do meanwhile."""

from __future__ import annotations

from collections.abc import Callable, Generator, Sequence
from typing import Any, cast

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.log.cleaner_doubles import SETTINGS
from tests.log.log_doubles import START, Node, append, bytes_of, run

from fencepost.log.cleaner import cleaning, rewriting, swapping
from fencepost.log.cleaner.choice import Range
from fencepost.log.cleaner.cleaning import STEP, Abandoned, Log, Pass
from fencepost.log.cleaner.offset_map import OffsetMap
from fencepost.protocol.compression import Compression
from fencepost.protocol.records import decode_batch, encode_batch
from fencepost.protocol.types import Isolation, Milliseconds, Offset

Between = Callable[[object], None]
ENOUGH = 1000


async def written(*keys: Sequence[bytes], together: int = 1) -> Node:
    """A closed segment for each sequence of keys, and a newest one; values are their offsets."""
    node, offset = Node(**SETTINGS), 0
    for segment in keys:
        for at in range(0, len(segment), together):
            some = segment[at : at + together]
            records = [(START, key, b"%d" % (offset + number), ()) for number, key in enumerate(some)]
            append(node.partition, encode_batch(records))
            offset += len(some)
        node.clock.at += 1000
        node.partition.roll()
    node.storage.checkpoint_soon()  # what was not checkpointed is not removed either
    await node.settled()
    return node


def clean(node: Node, capacity: int = ENOUGH, between: Between = lambda _: None) -> Pass:
    """Do one pass over all but the newest segment; `between` is shown what it stops with, before that is done."""
    bound = node.partition.segments[-1].base_offset
    log = cast(Log, node.partition)
    one = Pass(log, Range(Offset(0), bound, 0, 1), OffsetMap(Offset(0), capacity), Milliseconds(node.clock.at))
    steps, answer = one.steps(), None
    while True:
        try:
            wanted: Any = steps.send(answer)
        except StopIteration:
            return one
        between(wanted)
        answer = wanted() if callable(wanted) else None
        if wanted and not callable(wanted):
            node.partition.disk.sync_now(wanted)


def kept(node: Node) -> list[int]:
    return [record.offset for data in bytes_of(node.partition) for record in decode_batch(data)]


KEYS = st.lists(st.sampled_from([b"a", b"b", b"c", b"d"]), min_size=1, max_size=6)


@settings(max_examples=40)
@given(st.lists(KEYS, min_size=1, max_size=3), st.integers(1, 5), st.integers(1, 3))
def test_up_to_the_first_key_without_room_the_newest_record_of_each_stays_and_behind_it_all(
    segments: list[list[bytes]], capacity: int, together: int
) -> None:
    keys = [key for segment in segments for key in segment]
    known: dict[bytes, int] = {}
    end = len(keys)
    for offset, key in enumerate(keys):
        if key not in known and len(known) == capacity:
            end = offset
            break
        known[key] = offset

    async def main() -> None:
        node = await written(*segments, together=together)
        assert clean(node, capacity).end_offset == end
        assert kept(node) == sorted({*known.values(), *range(end, len(keys))})
        node.restart()
        assert kept(node) == sorted({*known.values(), *range(end, len(keys))})

    run(main())


def test_a_batch_of_which_all_stays_is_left_byte_for_byte() -> None:
    """Only where it has a tombstone it must say when that may go."""

    async def main() -> None:
        node = await written([b"a", b"b"], [b"c"], together=2)
        before = bytes_of(node.partition)
        clean(node)
        assert bytes_of(node.partition) == before
        append(node.partition, encode_batch([(START, b"a", None, ()), (START, b"d", b"1", ())]))
        node.partition.roll()
        await node.settled()
        (*_, tombstone) = bytes_of(node.partition)
        clean(node)
        (*_, anew) = bytes_of(node.partition)
        assert anew != tombstone
        assert [record.value for record in decode_batch(anew)] == [None, b"1"]

    run(main())


def test_the_new_segment_is_as_old_as_the_newest_that_it_is_made_of() -> None:
    async def main() -> None:
        node = await written([b"a"], [b"b"], [b"a"])
        *sources, _ = node.partition.segments
        created = [segment.created for segment in sources]
        assert created == sorted(set(created)) and created[0] >= 0
        clean(node)
        fresh, _ = node.partition.segments
        assert fresh.created == created[-1]

    run(main())


def test_no_pass_leaves_a_file_open_or_one_behind_it() -> None:
    async def main() -> None:
        node = await written([b"a", b"a"], [b"b", b"a"])
        clean(node)
        disk = cast(Any, node.disk)
        open_before = disk.descriptors_used
        for _ in range(5):
            clean(node)
        assert disk.descriptors_used == open_before
        names = node.disk.list(node.partition.directory)
        assert not [name for name in names if name.endswith((swapping.CLEANED, ".swap"))]

    run(main())


@pytest.mark.parametrize("decided", [False, True])
def test_no_segment_is_replaced_under_whoever_goes_over_them(decided: bool) -> None:
    """Whether he began before it was decided, or after."""

    async def main() -> None:
        node = await written([b"a"], [b"a"])
        partition, waited = node.partition, list[list[Any]]()
        before = [*partition.segments]
        begun = False

        def between(wanted: object) -> None:
            nonlocal begun
            if not begun and wanted and partition.is_held == decided:
                begun, partition.scans = True, 1
            elif wanted == ():
                waited.append([*partition.segments])
                if len(waited) == 3:
                    partition.scans = 0

        clean(node, between=between)
        assert waited == [before] * 3
        assert len(partition.segments) == 2 and kept(node) == [1]

    run(main())


def test_a_scan_that_is_given_up_keeps_nobody_waiting() -> None:
    """As that of a coordinator that is none any more: no segment would be swapped again."""

    async def main() -> None:
        node = await written([b"a"])
        scan = node.partition.scan()
        next(scan)
        assert node.partition.scans == 1
        assert isinstance(scan, Generator)
        scan.close()
        assert node.partition.scans == 0

    run(main())


@pytest.mark.parametrize("when", ["while it is read", "while it is synced"])
def test_what_went_meanwhile_does_not_come_back(when: str) -> None:
    async def main() -> None:
        node = await written([b"a"] * 3, [b"b"] * 3, [b"c"] * 3)
        partition = node.partition

        def between(wanted: object) -> None:
            if bool(wanted) == (when == "while it is synced") and partition.log_start_offset == 0:
                partition.delete_records(Offset(4))
                partition.drop_segments()

        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(cleaning, "STEP", 1)
            with pytest.raises(Abandoned):
                clean(node, between=between)
        assert partition.segments[0].base_offset == 3 and kept(node)[0] >= 3
        assert not partition.is_held
        assert not [name for name in node.disk.list(partition.directory) if name.endswith(swapping.CLEANED)]

    run(main())


def test_what_is_to_go_while_segments_are_swapped_goes_right_after_it() -> None:
    async def main() -> None:
        node = await written([b"a"] * 3, [b"b"] * 3, [b"a"])
        partition = node.partition

        def between(_: object) -> None:
            if partition.is_held and partition.log_start_offset == 0:
                partition.delete_records(partition.high_watermark)
                partition.drop_segments()
                assert len(partition.segments) > 1, "not now"

        clean(node, between=between)
        assert not partition.is_held
        assert len(partition.segments) == 1

    run(main())


def test_a_reader_finds_what_stands_in_the_new_segment() -> None:
    """Whatever he remembers of where he was in the old ones."""

    async def main() -> None:
        node = await written([b"a", b"b", b"a", b"c"], [b"d", b"a", b"e"])
        partition = node.partition

        def read() -> list[tuple[int, bytes]]:
            found, offset = list[tuple[int, bytes]](), 0
            while offset < partition.high_watermark:
                fetched = partition.read(Offset(offset), 1, Isolation.READ_UNCOMMITTED)
                records = decode_batch(bytes(getattr(fetched, "records", b"")))
                found += [(each.offset, each.key or b"") for each in records]
                offset = records[-1].offset + 1
            return found

        assert [offset for offset, _ in read()] == [*range(7)]
        clean(node)
        assert read() == [(1, b"b"), (3, b"c"), (4, b"d"), (5, b"a"), (6, b"e")]

    run(main())


def test_much_that_is_unfolded_is_work_for_several_steps() -> None:
    """Others are served in between, however few bytes it has on disk."""

    async def main() -> None:
        node, stops = Node(**{**SETTINGS, "segment_bytes": 1 << 20}), list[object]()
        for number in range(30):
            records = [(START, b"%d" % number, bytes(50_000), ()), (START, b"x%d" % number, bytes(50_000), ())]
            append(node.partition, encode_batch(records, compression=Compression.ZSTD))
        assert node.partition.segments[0].size // 2048 + 2 * 30 < STEP
        node.partition.roll()
        await node.settled()
        clean(node, between=stops.append)
        assert stops.count(None) >= 4

    run(main())


@pytest.mark.parametrize("waits", ["for its next turn", "for a thread that unfolds"])
def test_a_pass_ends_at_the_next_step_when_the_segment_that_it_reads_is_taken_away(
    waits: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is closed then, and nothing is wrong with it."""

    async def main() -> None:
        node = Node(**SETTINGS)
        append(node.partition, encode_batch([(START, b"k", b"v", ())]))
        over, newest = Range(Offset(0), Offset(1), 0, 1), OffsetMap(Offset(0), 10)
        reading = Pass(cast(Log, node.partition), over, newest, Milliseconds(START))
        ((_, header, data),) = list(reading._batches(node.partition.segments[0]))
        monkeypatch.setattr(rewriting, "records_section", lambda *_: lambda: b"")
        steps: Any = reading._pause() if waits == "for its next turn" else reading._section(header, data)
        next(steps)
        node.partition.segments.ordered.clear()
        with pytest.raises(Abandoned):
            steps.send(b"unfolded")

    run(main())
