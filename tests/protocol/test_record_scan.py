"""The records of a batch looked at without decoding them, against the decoder."""

from __future__ import annotations

from collections.abc import Generator
from typing import TypeVar

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fencepost.protocol.batch import HEADER_SIZE, BatchHeader, read_header
from fencepost.protocol.compression import Compression, TooLarge
from fencepost.protocol.errors import ProtocolError
from fencepost.protocol.record_scan import (
    UNFOLDED_AT_ONCE,
    Scanned,
    first_moment,
    scan,
    scan_at_once,
)
from fencepost.protocol.records import NewRecord, Record, decode_batch, encode_batch, varint
from fencepost.protocol.steps import STEP, Pace, Steps, finish
from fencepost.protocol.types import Milliseconds

pytestmark = pytest.mark.usefixtures("each_twin")

T = TypeVar("T")
NOW = 1_700_000_000_000
LARGE = 1 << 24

_BYTES = st.one_of(st.none(), st.binary(max_size=80), st.sampled_from([b"x" * 64, b"x" * 9000, b"x" * 130]))
_HEADERS = st.lists(st.tuples(st.text(max_size=70), st.one_of(st.none(), st.binary(max_size=70))), max_size=3)
_TIMES = st.one_of(
    st.integers(NOW - 5, NOW + 5), st.integers(NOW - 10**5, NOW + 10**5), st.integers(-(2**60), 2**60), st.just(-1)
)
RECORDS: st.SearchStrategy[list[NewRecord]] = st.lists(
    st.tuples(_TIMES, _BYTES, _BYTES, st.one_of(st.just([]), _HEADERS)), min_size=1, max_size=90
)


def took(steps: Steps[T]) -> tuple[T, int]:
    """The result, and after how many interruptions."""
    pauses = 0
    try:
        while True:
            assert next(steps) is None
            pauses += 1
    except StopIteration as done:
        return done.value, pauses


def body_of(batch: bytes) -> tuple[bytes, BatchHeader]:
    return batch[HEADER_SIZE:], read_header(batch)


def in_order(records: list[Record], header: BatchHeader) -> bool:
    return [record.offset - header.base_offset for record in records] == list(range(len(records)))


@given(RECORDS, st.integers(1, 50))
def test_right_records_are_told_as_the_decoder_tells_them(records: list[NewRecord], left: int) -> None:
    batch = encode_batch(records)
    body, header = body_of(batch)
    decoded = decode_batch(batch)
    times = [record.timestamp for record in decoded]
    expected = Scanned(min(times), max(times), any(record.key is None for record in decoded))
    assert finish(scan(body, header, Pace())) == expected
    assert finish(scan(memoryview(bytearray(body)), header, Pace(left))) == expected
    at_once = scan_at_once(body, header, Pace())
    assert at_once == (None if any(record.headers for record in decoded) else expected)
    for most in (0, 1, len(records) // 2):
        finish(scan(body, header, Pace(), most))


@settings(max_examples=600)
@given(
    RECORDS,
    st.lists(st.tuples(st.integers(0, 10**6), st.one_of(st.integers(0, 255), st.sampled_from([0, 1, 127, 128, 255])))),
    st.sampled_from([-1, 0, 0, 0, 1]),
    st.binary(max_size=2),
)
def test_what_is_taken_can_be_decoded(
    records: list[NewRecord], changes: list[tuple[int, int]], more: int, behind: bytes
) -> None:
    batch = bytearray(encode_batch(records) + behind)
    for place, value in changes:
        batch[HEADER_SIZE + place % (len(batch) - HEADER_SIZE)] = value
    body, header = body_of(bytes(batch))
    size, count = len(batch) - 12, max(header.record_count + more, 1)
    header = header._replace(batch_length=size, record_count=count)
    try:
        decoded: list[Record] | None = decode_batch(batch, 0, header)
    except ProtocolError:
        decoded = None
    results: list[Scanned | None] = []
    for at_once in (False, True):
        try:
            results.append(scan_at_once(body, header, Pace()) if at_once else finish(scan(body, header, Pace())))
        except ProtocolError:
            results.append(None)
    if results[0] is None:
        assert results[1] is None
        return
    assert decoded is not None and in_order(decoded, header)
    times = [record.timestamp for record in decoded]
    assert results[0] == Scanned(min(times), max(times), any(record.key is None for record in decoded))
    assert results[1] in (None, results[0])


def one_record(body: bytes, count: int = 1) -> tuple[bytes, BatchHeader]:
    batch = encode_batch([(NOW, None, None, ())])
    return varint(len(body)) + body, read_header(batch)._replace(record_count=count)


@pytest.mark.parametrize(
    "body",
    [
        b"\0\0\x02\x01\x01\0",  # number 1
        b"\0\0\x01\x01\x01\0",  # number -1
        b"\0\0\0\x01\x01\0\0",  # a byte behind the record
        b"\0\0\0\x03\x01\0",  # a key of length -2
        b"\0\0\0\x01\x7f\0",  # a value of length -64
        b"\0\0\0\x01\x01\x02\0\x03",  # a header's value of length -2
        b"\0\0\0\x01\x02\0",  # a value that is not there
        b"\0\0\0\x01\x01\x01",  # -1 headers
        b"\0\0\0\x01\x01\x02\x02\xff\x01",  # a header's key that is not UTF-8
        b"\0\0\0\x01\x01\x02\x01\x01",  # a header without a key
        b"\0\0\0\x01\x01\x02\x01",  # the same, where the length of the key could be read again as that of the value
        b"\0\0\x80\x80\x80\x80\x80\0\x01\x01\0",  # a number of six bytes: Java's reader takes five
        b"\0" + b"\x80" * 10 + b"\0" + b"\0\x01\x01\0",  # a timestamp of eleven
        b"\0" + b"\xfe" + b"\xff" * 8 + b"\x01" + b"\0\x01\x01\0",  # a timestamp behind the last one
    ],
)
def test_records_that_some_reader_cannot_read(body: bytes) -> None:
    data, header = one_record(body)
    with pytest.raises(ProtocolError):
        finish(scan(data, header, Pace()))


def test_a_message_names_the_record() -> None:
    batch = bytearray(encode_batch([(NOW, None, b"v", ())] * 5))
    size = (len(batch) - HEADER_SIZE) // 5
    batch[HEADER_SIZE + 3 * size + 3] = 8
    body, header = body_of(bytes(batch))
    with pytest.raises(ProtocolError, match="record 3 of the batch has number 4"):
        finish(scan(body, header, Pace()))


@pytest.mark.parametrize("count", [STEP - 1, 3 * STEP])
def test_many_records_are_looked_at_in_steps(count: int) -> None:
    body, header = body_of(encode_batch([(NOW, None, None, ())] * count))
    assert took(scan(body, header, Pace()))[1] == count // STEP
    assert took(scan(body, header, Pace(), 10))[1] == 0, "too small to be added up"
    assert (scan_at_once(body, header, Pace()) is None) is (count > STEP)


def test_many_sizes_are_added_up_in_steps() -> None:
    count = 9 * STEP
    body, header = body_of(encode_batch([(NOW, None, bytes(600), ())] * count))
    assert took(scan(body, header, Pace(), 10))[1] == 2
    assert scan_at_once(body, header, Pace(), 10) is None
    with pytest.raises(ProtocolError):
        finish(scan(body + b"\0", header, Pace(), 10))


@pytest.mark.parametrize("width", [1, 2, 3, 5])
@pytest.mark.parametrize("size", [5, 6, 63, 64, 127, 8191, 8192, 30_000])
def test_sizes_are_added_up_however_many_bytes_they_have(size: int, width: int) -> None:
    """Of records that are not looked at otherwise; none is smaller than the smallest record."""
    number = [(size << 1 >> 7 * place & 127) | 128 for place in range(width)]
    if size << 1 >> 7 * width:
        return
    number[-1] &= 127
    first, header = body_of(encode_batch([(NOW, None, bytes(5000), ())]))
    header = header._replace(record_count=3)
    for behind, right in ((b"", size > 5), (b"\0", False)):
        body = first + (bytes(number) + bytes(size)) * 2 + behind
        for check in (
            lambda body: scan_at_once(body, header, Pace(), 1),
            lambda body: took(scan(body, header, Pace(), 1)),
        ):
            if right:
                assert check(body) is not None
            else:
                with pytest.raises(ProtocolError):
                    check(body)


def test_many_headers_are_looked_at_in_steps() -> None:
    body, header = body_of(encode_batch([(NOW, None, None, [("", None)] * (4 * STEP))]))
    assert took(scan(body, header, Pace()))[1] == 3


@given(RECORDS, st.integers(-1, 91), st.integers(0, 90), st.sampled_from(Compression))
def test_the_first_record_of_a_time(
    records: list[NewRecord], number: int, offset: int, compression: Compression
) -> None:
    batch = encode_batch(records, compression=compression)
    wanted = records[number][0] if number < len(records) else 2**61
    expected = next(
        ((r.timestamp, r.offset) for r in decode_batch(batch) if r.timestamp >= wanted and r.offset >= offset), None
    )
    assert finish(first_moment(batch, read_header(batch), wanted, offset, LARGE, Pace())) == expected


def test_all_records_of_log_append_time_have_the_time_of_their_batch() -> None:
    """Whatever their producer said: that is not what a consumer is told."""
    batch = encode_batch([(NOW + n, None, None, ()) for n in range(3)])
    header = read_header(batch)
    header = header._replace(attributes=header.attributes | 8, max_timestamp=Milliseconds(NOW - 5))
    assert header.is_log_append_time
    for wanted, offset, found in ((NOW - 9, 0, (NOW - 5, 0)), (NOW - 5, 2, (NOW - 5, 2)), (NOW, 0, None)):
        assert finish(first_moment(batch, header, wanted, offset, LARGE, Pace())) == found


def test_the_first_record_of_a_time_is_looked_for_in_steps() -> None:
    batch = encode_batch([(NOW + n, None, None, ()) for n in range(5 * STEP)], compression=Compression.ZSTD)
    header = read_header(batch)
    for wanted, found, most in ((NOW, (NOW, 0), 1), (NOW + 3 * STEP, (NOW + 3 * STEP, 3 * STEP), 4)):
        result, pauses = took(first_moment(batch, header, wanted, 0, LARGE, Pace()))
        assert result == found and pauses <= most
    assert took(first_moment(batch, header, NOW + 5 * STEP, 0, LARGE, Pace()))[0] is None
    with pytest.raises(ProtocolError):
        finish(first_moment(batch, header, NOW, 0, 1000, Pace()))


def test_a_time_is_looked_for_in_what_another_thread_unfolds() -> None:
    records = [(NOW + n, None, bytes(UNFOLDED_AT_ONCE // 3), ()) for n in range(4)]
    batch = encode_batch(records, compression=Compression.ZSTD)
    assert callable(next(first_moment(batch, read_header(batch), NOW + 3, 0, 4 * UNFOLDED_AT_ONCE, Pace())))
    assert finish(first_moment(batch, read_header(batch), NOW + 3, 0, 4 * UNFOLDED_AT_ONCE, Pace())) == (NOW + 3, 3)
    with pytest.raises(TooLarge):
        finish(first_moment(batch, read_header(batch), NOW + 3, 0, UNFOLDED_AT_ONCE + 1, Pace()))


def test_a_kilobyte_that_unfolds_to_megabytes_keeps_nobody_waiting() -> None:
    """All who ask at one moment have their first step before anybody else is served."""
    batch = encode_batch([(NOW, None, bytes(15 << 20), ())], compression=Compression.ZSTD)
    assert len(batch) < 4096
    assert callable(next(first_moment(batch, read_header(batch), NOW, 0, 16 << 20, Pace())))


class Room:
    """Nobody has room before it is waited for."""

    def __init__(self) -> None:
        self.taken: list[int] = []

    def claim(self, size: int) -> bool:
        return size == 0

    def wait_for(self, size: int) -> Generator[str, None, None]:
        yield "wait"
        self.taken.append(size)

    def give(self, size: int) -> None:
        self.taken.append(-size)


@pytest.mark.parametrize("ended", [False, True])
def test_what_unfolds_to_much_waits_for_room_and_gives_it_back(*, ended: bool) -> None:
    def batch_of(size: int) -> bytes:
        return encode_batch([(NOW, None, bytes(size), ())], compression=Compression.ZSTD)

    room = Room()
    for size in (UNFOLDED_AT_ONCE - 100, UNFOLDED_AT_ONCE + 1):
        batch = batch_of(size)
        pace = Pace(room=room)
        steps = first_moment(batch, read_header(batch), NOW, 0, LARGE, pace)
        if size < UNFOLDED_AT_ONCE:
            assert finish(steps) == (NOW, 0)
            assert room.taken == []
            continue
        assert next(steps) == "wait"  # type: ignore[comparison-overlap]
        if ended:
            steps.close()
            assert room.taken == []
            return
        assert finish(steps) == (NOW, 0)
        first, spare, rest = room.taken
        assert (first, pace.held) == (LARGE, 0)
        assert -rest > size and first + spare + rest == 0, "while it is looked at only what it needs is held"


def test_who_has_room_and_cannot_unfold_gives_it_back() -> None:
    batch = encode_batch([(NOW, None, bytes(2 * UNFOLDED_AT_ONCE), ())], compression=Compression.ZSTD)
    room = Room()
    steps = first_moment(batch, read_header(batch), NOW, 0, 2 * UNFOLDED_AT_ONCE, Pace(room=room))
    assert next(steps) == "wait"  # type: ignore[comparison-overlap]
    with pytest.raises(TooLarge):
        finish(steps)
    assert room.taken == [2 * UNFOLDED_AT_ONCE, -2 * UNFOLDED_AT_ONCE]


def test_what_is_too_large_for_its_topic_waits_for_no_room_where_that_is_little() -> None:
    """It is known to be without."""
    batch = encode_batch([(NOW, None, bytes(2000), ())], compression=Compression.ZSTD)
    with pytest.raises(TooLarge):
        next(first_moment(batch, read_header(batch), NOW, 0, 1000, Pace(room=Room())))
