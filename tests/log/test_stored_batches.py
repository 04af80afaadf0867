"""What is in a log stays readable, whatever it is: an older version of ours took batches that are none."""

from __future__ import annotations

from typing import Any

import pytest
from crc32c import crc32c
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.log.log_doubles import START, Node, append, batch, run

from fencepost.log.partition import Partition
from fencepost.log.producer_state import Origin
from fencepost.log.reading import Fetched, TimestampOffset
from fencepost.protocol.batch import CRC_START, HEADER_SIZE, headers, read_header
from fencepost.protocol.compression import Compression
from fencepost.protocol.records import encode_batch, seal
from fencepost.protocol.steps import STEP, Pace, finish
from fencepost.protocol.types import Isolation, Milliseconds, Offset

UNCOMMITTED, COMMITTED = Isolation.READ_UNCOMMITTED, Isolation.READ_COMMITTED
TIMES = (0, START - 1, START, START + 1, START + 2, START + 100, START + 1000, 2**62)

#: Bytes changed in the records, cut off or behind them; whether changed before they were compressed; codec; count;
#: largest time; attributes.
STORED = st.lists(
    st.tuples(
        st.lists(st.tuples(st.integers(0, 10**6), st.integers(0, 255)), max_size=3),
        st.integers(-10, 3),
        st.booleans(),
        st.sampled_from(Compression),
        st.one_of(st.integers(1, 5), st.sampled_from([10**6, 2**31 - 1])),
        st.sampled_from([-1, START - 500, START + 2, START + 500, 2**62, -(2**62)]),
        st.sampled_from([0, 0, 0, 8, 0x40, 0x88]),
    ),
    min_size=1,
    max_size=4,
)


def changed(data: bytes, changes: list[tuple[int, int]], more: int) -> bytes:
    anew = bytearray(data)
    for place, value in changes:
        anew[place % len(anew)] = value
    return bytes(anew[: len(anew) + more] if more <= 0 else anew + bytes(more))


def stored(
    changes: list[tuple[int, int]],
    more: int,
    before: bool,
    compression: Compression,
    count: int,
    largest: Milliseconds,
    attributes: int,
) -> bytes:
    """A batch that its leader took for its header and its checksum, and that may be anything inside."""
    body = encode_batch([(START + n, None if n else b"k", b"v" * 9, [("h", b"x")]) for n in range(3)])[HEADER_SIZE:]
    if before:
        body = changed(body, changes, more)
    whole = bytearray(seal(body, count, START, largest, compression=compression))
    if not before:
        whole[HEADER_SIZE:] = changed(bytes(whole[HEADER_SIZE:]), changes, more)
    whole[8:12] = (len(whole) - 12).to_bytes(4, "big")
    whole[22] |= attributes
    whole[17:21] = crc32c(memoryview(whole)[CRC_START:]).to_bytes(4, "big")
    return bytes(whole)


def read_all(partition: Partition) -> None:
    """Every way to read, from everywhere; nothing may be raised, and offsets must be ones that there are."""
    ends = [0, *(header.last_offset + 1 for header, _ in partition.scan())]
    start, end = partition.log_start_offset, partition.high_watermark
    for isolation in (UNCOMMITTED, COMMITTED):
        for offset in {max(at, start) for end in ends for at in (end - 1, end, end + 1)}:
            for max_bytes in (1, 200, 100_000):
                fetched = partition.read(Offset(offset), max_bytes, isolation)
                if offset < end:
                    assert isinstance(fetched, Fetched)
                    (_, first), *_ = headers(fetched.records)
                    assert first.base_offset <= offset <= first.last_offset
        for timestamp in TIMES:
            found = finish(partition.reader.offset_for_timestamp(Milliseconds(timestamp), isolation, Pace()))
            assert found is None or (start <= found.offset < end and found.timestamp >= timestamp)
        finish(partition.reader.max_timestamp_offset(isolation, Pace()))
    partition.reader.position_of(end)


@settings(max_examples=150)
@given(STORED, st.integers(0, 12), st.sampled_from([100, 10_000]))
def test_no_stored_batch_makes_a_read_fail(batches: list[tuple[Any, ...]], deleted: int, segment: int) -> None:
    async def main() -> None:
        node = Node(segment_bytes=100_000 if segment > 1000 else 300, index_interval_bytes=segment)
        for each in batches:
            append(node.partition, stored(*each), origin=Origin.COORDINATOR)
            append(node.partition, batch(2))
        await node.settled()
        read_all(node.partition)
        node.partition.delete_records(Offset(min(deleted, node.partition.high_watermark)))
        read_all(node.partition)
        node.restart()
        read_all(node.partition)

    run(main())


@pytest.mark.parametrize("compression", Compression)
def test_a_batch_that_cannot_be_read_is_where_its_header_says(compression: Compression) -> None:
    """Whoever looks for a time must not miss what may be in it."""

    async def main() -> None:
        node = Node()
        append(node.partition, batch(2, timestamp=START - 100))
        broken = seal(b"\x7f" * 40, 3, START, Milliseconds(START + 2), compression=compression)
        append(node.partition, broken, origin=Origin.COORDINATOR)
        append(node.partition, batch(2, timestamp=START - 50))
        await node.settled()
        for wanted in (START - 10, START, START + 2):
            found = finish(node.partition.reader.offset_for_timestamp(Milliseconds(wanted), UNCOMMITTED, Pace()))
            assert found is not None and (found.offset, found.timestamp) == (2, START + 2)
        newest = finish(node.partition.reader.max_timestamp_offset(UNCOMMITTED, Pace()))
        assert newest is not None and (newest.offset, newest.timestamp) == (4, START + 2)
        node.partition.delete_records(Offset(4))
        found = finish(node.partition.reader.offset_for_timestamp(START, UNCOMMITTED, Pace()))
        assert found is not None and found.offset == 4

    run(main())


def test_a_batch_that_unfolds_to_more_than_a_batch_may_is_not_unfolded() -> None:
    async def main() -> None:
        node = Node()
        bomb = seal(bytes(64 << 20), 10**6, START, Milliseconds(START + 1000), compression=Compression.ZSTD)
        assert len(bomb) < 10_000
        append(node.partition, bomb, origin=Origin.COORDINATOR)
        await node.settled()
        reader = node.partition.reader
        for steps in (
            reader.offset_for_timestamp(Milliseconds(START + 500), UNCOMMITTED, Pace()),
            reader.max_timestamp_offset(UNCOMMITTED, Pace()),
        ):
            found = finish(steps)
            assert found is not None
            assert found.timestamp == START + 1000

    run(main())


def test_a_search_looks_at_so_many_records_in_a_step_and_goes_on_where_it_was() -> None:
    """Also where segments go meanwhile."""

    async def main() -> None:
        node = Node(segment_bytes=10_000, checkpoint_bytes=1)
        lying = [(START, None, None, ())] * (2 * STEP)
        for _ in range(4):
            body = encode_batch(lying)[HEADER_SIZE:]
            data = seal(body, len(lying), START, Milliseconds(START + 50), compression=Compression.ZSTD)
            append(node.partition, data, origin=Origin.COORDINATOR)
        append(node.partition, batch(timestamp=START + 60))
        await node.settled()
        assert len(node.partition.segments) > 2
        pauses = 0

        steps = node.partition.reader.offset_for_timestamp(Milliseconds(START + 40), UNCOMMITTED, Pace())
        found: TimestampOffset | None = None
        while found is None:
            try:
                next(steps)
            except StopIteration as done:
                found = done.value
            pauses += 1
            if pauses == 3:
                node.partition.delete_records(Offset(6 * STEP))
                await node.settled()
        assert 5 <= pauses <= 12
        assert found.offset == 8 * STEP

    run(main())


def test_a_search_past_many_batches_is_done_in_steps() -> None:
    async def main() -> None:
        node = Node(index_interval_bytes=1_000_000)
        lying = seal(batch()[HEADER_SIZE:], 1, START, Milliseconds(START + 50))
        append(node.partition, lying, origin=Origin.COORDINATOR)
        for _ in range(2500):
            append(node.partition, batch())
        await node.settled()
        steps = node.partition.reader.offset_for_timestamp(Milliseconds(START + 40), UNCOMMITTED, Pace(10))
        assert len(list(steps)) == 1
        assert read_header(lying).max_timestamp == START + 50

    run(main())
