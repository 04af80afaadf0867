"""What can be compiled, as it runs compiled and as text, against the functions that it stands in for.

Whatever the bytes are, it answers as its twin or leaves the answer to it; and what is well-formed it does not leave.
"""

from __future__ import annotations

import array
import gc
import sys
import weakref
from collections import namedtuple
from typing import Any, NamedTuple

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from tests.protocol.drawn_records import BYTES, HEADERS, ODD_RECORDS, RECORDS, TIMESTAMPS
from tests.twins import need_compiled, python_alone

from fencepost.client.records import ConsumerRecord
from fencepost.compiled.in_use import IN_USE
from fencepost.protocol import partitioning, record_scan, records
from fencepost.protocol.batch import HEADER_SIZE, LOG_APPEND_TIME, BatchHeader, read_header
from fencepost.protocol.errors import ProtocolError
from fencepost.protocol.records import BatchBuilder, NewRecord, Record, encode_batch, varint
from fencepost.protocol.steps import Pace, finish

#: Numbers as they stand in a record, too long, cut off and larger than any size.
NUMBERS = st.one_of(
    st.integers(-3, 200).map(varint),
    st.sampled_from([2**31 - 1, 2**31, -(2**31), 2**32, 2**61, 2**62, -(2**62), 2**63 - 1, -(2**63)]).map(varint),
    st.sampled_from([b"\x80\x00", b"\xff" * 5, b"\xff" * 9 + b"\x01", b"\x80" * 10, b"\xff" * 8 + b"\x7f", b"\x81"]),
    st.binary(min_size=1, max_size=11),
)


class Mutation(NamedTuple):
    """How the bytes of a batch are changed: each number by its part of the length of what is left."""

    at: float
    to: bytes
    instead_of: int
    cut: float


MUTATIONS = st.lists(
    st.builds(Mutation, st.floats(0, 1), NUMBERS, st.integers(0, 3), st.sampled_from([1.0, 1.0, 1.0, 0.9, 0.3])),
    max_size=3,
)


def _mutated(body: bytes, mutations: list[Mutation]) -> bytes:
    for at, to, instead_of, cut in mutations:
        place = int(at * len(body))
        body = body[:place] + to + body[place + instead_of :]
        body = body[: int(cut * len(body))]
    return body


def _batch(
    drawn: list[NewRecord], mutations: list[Mutation], count: int, append_time: bool
) -> tuple[bytes, BatchHeader]:
    """Records, maybe damaged, and a header that maybe lies."""
    batch = encode_batch(drawn, base_offset=1_000)
    header = read_header(batch)
    attributes = LOG_APPEND_TIME if append_time else 0
    return _mutated(batch[HEADER_SIZE:], mutations), header._replace(
        record_count=len(drawn) + count, attributes=attributes
    )


BATCHES = st.builds(
    _batch,
    st.one_of(RECORDS, ODD_RECORDS),
    MUTATIONS,
    st.sampled_from([0, 0, 0, 1, -1, -(2**31), 2**31 - 1]),
    st.booleans(),
)
SOUND = st.builds(_batch, RECORDS, st.just([]), st.just(0), st.booleans())


def _decoded_by_python(body: bytes, header: BatchHeader) -> list[Record] | str:
    with python_alone():
        try:
            return records.decode_body(body, header)
        except ProtocolError as wrong:
            return str(wrong)


def _decoded(kernel: Any, kind: Any, named: tuple[Any, ...], body: bytes, header: BatchHeader, first: int) -> Any:
    append_time = header.max_timestamp if header.is_log_append_time else None
    count, base_offset, base_timestamp = header.record_count, header.base_offset, header.base_timestamp
    return kernel.decode_records(body, count, base_offset, base_timestamp, append_time, kind, *named, first)


@given(batch=BATCHES, first=st.integers(998, 1_010))
def test_records_are_read_as_python_reads_them(kernel: Any, batch: tuple[bytes, BatchHeader], first: int) -> None:
    expected = _decoded_by_python(*batch)
    found = _decoded(kernel, Record, (None, 0), *batch, -(2**60))
    for_a_consumer = _decoded(kernel, ConsumerRecord, ("t", 7), *batch, first)
    if found is None:
        assert for_a_consumer is None
        return
    assert found == expected
    assert [type(record) for record in found] == [Record] * len(found)
    assert for_a_consumer == [ConsumerRecord("t", 7, *record) for record in found if record.offset >= first]
    assert [type(record) for record in for_a_consumer] == [ConsumerRecord] * len(for_a_consumer)


@given(batch=SOUND)
def test_sound_records_are_not_left_to_python(kernel: Any, batch: tuple[bytes, BatchHeader]) -> None:
    body, header = batch
    assert _decoded(kernel, Record, (None, 0), body, header, -(2**60)) == _decoded_by_python(body, header)
    checked = kernel.check_records(body, 0, 0, header.record_count)
    assert kernel.pass_over(body, 0, 0, header.record_count) == len(body)
    assert checked is not None and (checked[1] == header.record_count or body[checked[0]])


class Probe:
    """Something that tells when it is gone, which a tuple cannot."""


def _read(kernel: Any, headers: list[tuple[str, bytes | None]], kind: Any, named: tuple[Any, ...]) -> Any:
    batch = encode_batch([(50, b"a key", b"a value", headers)] * 10)
    return _decoded(kernel, kind, named, batch[HEADER_SIZE:], read_header(batch), 0)


@pytest.mark.parametrize(("kind", "named"), [(Record, (None, 0)), (ConsumerRecord, ("t", 7))])
def test_compiled_records_are_visited_by_the_cycle_collector_if_they_have_headers(
    kind: Any, named: tuple[Any, ...]
) -> None:
    need_compiled()
    assert not any(gc.is_tracked(record) for record in _read(IN_USE.module, [], kind, named))
    assert all(gc.is_tracked(record) for record in _read(IN_USE.module, [("h", b"v")], kind, named))


@pytest.mark.parametrize(("kind", "named"), [(Record, (None, 0)), (ConsumerRecord, ("t", 7))])
def test_a_record_that_somebody_puts_into_its_own_headers_is_collected(
    kernel: Any, kind: Any, named: tuple[Any, ...]
) -> None:
    found, probe = _read(kernel, [("h", b"v")], kind, named), Probe()
    found[3].headers.extend([found, probe])
    gone = weakref.ref(probe)
    del found, probe
    gc.collect()
    assert gone() is None


@pytest.mark.parametrize("headers", [[], [("h", b"v")]])
def test_records_hold_what_they_refer_to_as_long_as_they_are_there(
    kernel: Any, headers: list[tuple[str, bytes | None]]
) -> None:
    kind, topic, partition = namedtuple("Kind", ConsumerRecord._fields), str(object()), 10**9
    before = [sys.getrefcount(each) for each in (kind, topic, partition)]
    found = _read(kernel, headers, kind, (topic, partition))
    assert [sys.getrefcount(each) for each in (kind, topic, partition)] == [each + 10 for each in before]
    value, others = found[3].value, found[:3] + found[4:]
    held = sys.getrefcount(value)
    del found, others
    assert [sys.getrefcount(each) for each in (kind, topic, partition)] == before
    assert sys.getrefcount(value) == held - 1
    assert value == b"a value"


def _passed_by_python(body: bytes, at: int, first: int, until: int) -> Any:
    with python_alone():
        try:
            return record_scan._pass_over(body, at, first, until)
        except ProtocolError as wrong:
            return str(wrong)


def _run_of_python(body: bytes, at: int, first: int, until: int) -> Any:
    with python_alone():
        try:
            return record_scan._run(body, at, first, until, 1 << 63, -(1 << 63))
        except ProtocolError as wrong:
            return str(wrong)


@given(batch=BATCHES, at=st.integers(0, 12), first=st.integers(0, 3))
def test_records_are_checked_as_python_checks_them(
    kernel: Any, batch: tuple[bytes, BatchHeader], at: int, first: int
) -> None:
    body, header = batch
    for begin, number in ((0, 0), (at, first)):
        until = min(header.record_count, number + 20)
        if number < until:
            expected = _run_of_python(body, begin, number, until)
            assert kernel.check_records(memoryview(body), begin, number, until) in (None, expected)
            passed = _passed_by_python(body, begin, number, until)
            assert kernel.pass_over(memoryview(body), begin, number, until) in (-1, passed)


def _padded(number: int, size: int) -> bytes:
    """A number in so many bytes, more than it needs."""
    short = varint(number)
    return bytes([*(byte | 128 for byte in short), *[128] * (size - len(short) - 1), 0]) if size > len(short) else short


@pytest.mark.parametrize("size", range(1, 12))
@pytest.mark.parametrize("field", ["record", "timestamp", "offset", "key", "value"])
def test_numbers_of_more_bytes_than_they_need_are_read_as_by_python(kernel: Any, field: str, size: int) -> None:
    """In 5 bytes a size is still taken and in 10 a time, as by Java's reader; not in more."""
    sizes = {name: size if name == field else 1 for name in ("record", "timestamp", "offset", "key", "value")}
    times = b"\0" + _padded(-3, sizes["timestamp"]) + _padded(0, sizes["offset"])
    record = times + _padded(1, sizes["key"]) + b"k" + _padded(2, sizes["value"]) + b"vv" + b"\0"
    body = _padded(len(record), sizes["record"]) + record
    header = read_header(encode_batch([(50, None, None, ())]))
    decoded = _decoded(kernel, Record, (None, 0), body, header, -(2**60))
    assert decoded in (None, _decoded_by_python(body, header))
    checked = kernel.check_records(body, 0, 0, 1)
    assert checked in (None, _run_of_python(body, 0, 0, 1))
    assert kernel.pass_over(body, 0, 0, 1) in (-1, _passed_by_python(body, 0, 0, 1))
    assert (decoded is not None, checked is not None) == (size <= 9, size <= (9 if field == "timestamp" else 5))


@given(batch=BATCHES, most=st.sampled_from([2**31 - 1, 1, 3]))
def test_a_check_of_a_whole_batch_ends_as_in_python(batch: tuple[bytes, BatchHeader], most: int) -> None:
    """What it says of a batch, in the same words, after as many pauses."""
    need_compiled()

    def said() -> tuple[Any, int]:
        pace = Pace(5)
        try:
            return finish(record_scan.scan(*batch, pace, most)), pace.pauses
        except ProtocolError as wrong:
            return str(wrong), pace.pauses

    with_compiled = said()
    with python_alone():
        assert said() == with_compiled


PAIRS = st.lists(st.tuples(BYTES, BYTES), max_size=6)


@given(
    pairs=PAIRS,
    place=st.sampled_from([0, 63, 64, 8191, 2**31 - 1]),
    delta=st.sampled_from([0, -1, 64, -(2**40), 2**60]),
)
def test_records_are_written_as_python_writes_them(
    kernel: Any, pairs: list[tuple[bytes | None, bytes | None]], place: int, delta: int
) -> None:
    out, expected = bytearray(b"before"), b"before"
    for number, (key, value) in enumerate(pairs):
        encoded = records.encode_record(place + number, delta, key, value, ())
        assert kernel.append_record(out, place + number, delta, key, value, len(encoded) - 1) == 0
        assert out == expected
        assert kernel.append_record(out, place + number, delta, key, value, len(encoded)) == len(encoded)
        expected += encoded
        assert out == expected
    together = bytearray(b"before")
    keys, values = [key for key, _ in pairs], [value for _, value in pairs]
    assert kernel.append_records(together, place, delta, keys, values, 2**40) == len(pairs)
    assert together == expected


@given(pairs=PAIRS, room=st.integers(-5, 300))
def test_as_many_records_are_taken_as_python_takes(
    kernel: Any, pairs: list[tuple[bytes | None, bytes | None]], room: int
) -> None:
    keys, values = [key for key, _ in pairs], [value for _, value in pairs]
    expected = records._encode_until(0, 5, keys, values, room)
    out = bytearray()
    assert kernel.append_records(out, 0, 5, keys, values, room) == len(expected)
    assert out == b"".join(expected)


@pytest.mark.parametrize("odd", ["text", bytearray(b"b"), memoryview(b"m"), 5, [1]], ids=lambda odd: type(odd).__name__)
def test_what_is_no_record_is_left_to_python_and_nothing_is_written(kernel: Any, odd: Any) -> None:
    out = bytearray(b"before")
    assert kernel.append_record(out, 0, 0, odd, b"", 100) == -1
    assert kernel.append_record(out, 0, 0, None, odd, 100) == -1
    assert kernel.append_records(out, 0, 0, [b"whole", odd], [b"", b""], 100) == -1
    assert kernel.append_records(out, 0, 0, [b"whole", b""], [b"", odd], 100) == -1
    assert kernel.append_records(out, 0, 0, [b"whole"], [], 100) == -1
    assert out == b"before"


@pytest.mark.parametrize("delta", [2**61, -(2**61), 2**64, 1.5, "0", None, True], ids=repr)
def test_differences_of_time_that_c_cannot_hold_are_left_to_python(kernel: Any, delta: Any) -> None:
    out = bytearray()
    assert kernel.append_record(out, 0, delta, None, None, 100) == -1
    assert kernel.append_records(out, 0, delta, [None], [None], 100) == -1
    assert out == b""


@given(
    records=st.lists(
        st.tuples(st.sampled_from([0, 5, -5, 2**62, 2**70, 1.5, "t"]), BYTES | st.just("text"), BYTES, HEADERS),
        max_size=4,
    ),
    limit=st.sampled_from([2**60, 200, 2**80]),
)
def test_a_builder_ends_as_in_python(records: list[Any], limit: int) -> None:
    """The same bytes or the same error, and after an error the records from before it."""
    need_compiled()

    def built() -> list[Any]:
        builder = BatchBuilder()
        told: list[Any] = []
        for timestamp, key, value, headers in records:
            for together in (False, True):
                try:
                    if together:
                        told.append(builder.extend(timestamp, [key, value], [value, key], limit))
                    else:
                        told.append(builder.append(timestamp, key, value, headers, limit))
                except (TypeError, ValueError, AttributeError) as error:
                    told.append((type(error), str(error)))
                told.append((builder.count, builder.size, bytes(builder._body)))
        return told

    with_compiled = built()
    with python_alone():
        assert built() == with_compiled


def _room(rows: int) -> dict[str, Any]:
    return {
        "places": array.array("i", bytes(16 * rows)),
        "nulls": bytearray(rows),
        "offsets": array.array("q", bytes(8 * rows)),
        "timestamps": array.array("q", bytes(8 * rows)),
    }


#: Columns have no room for headers, so that records with some are left to Python.
WITHOUT_HEADERS = st.lists(st.tuples(TIMESTAMPS, BYTES, BYTES, st.just(())), min_size=1, max_size=8)
_ROWS = 9


def _indexed(kernel: Any, body: bytes, header: BatchHeader, low: int, high: int, rows: int) -> list[Record] | None:
    """Records as the columns have them, that are made from row 1 on; None if this is left to Python."""
    append_time = header.max_timestamp if header.is_log_append_time else None
    room, shift = _room(rows), 100
    count, base_offset, base_timestamp = header.record_count, header.base_offset, header.base_timestamp
    came_to = kernel.index_records(
        body, shift, count, base_offset, base_timestamp, append_time, low, high, *room.values(), 1
    )
    if came_to < 0:
        return None
    shifted, found = bytes(shift) + body, []
    for row in range(1, came_to):
        key_begin, key_end, value_begin, value_end = room["places"][4 * row : 4 * row + 4]
        key = None if room["nulls"][row] & 1 else shifted[key_begin:key_end]
        value = None if room["nulls"][row] & 2 else shifted[value_begin:value_end]
        assert key_begin <= key_end <= value_begin <= value_end
        found.append(Record(room["offsets"][row], room["timestamps"][row], key, value, ()))
    return found


@given(drawn=WITHOUT_HEADERS, append_time=st.booleans(), low=st.integers(998, 1_004), high=st.integers(1_000, 1_009))
def test_columns_of_sound_records_are_not_left_to_python(
    kernel: Any, drawn: list[NewRecord], append_time: bool, low: int, high: int
) -> None:
    body, header = _batch(drawn, [], 0, append_time)
    expected = [record for record in _decoded_by_python(body, header) if isinstance(record, Record)]
    assert len(expected) == len(drawn)
    assert _indexed(kernel, body, header, 0, 2_000, _ROWS) == expected
    within = [record for record in expected if low <= record.offset < high]
    assert _indexed(kernel, body, header, low, high, _ROWS) == within
    assert _indexed(kernel, body, header, 0, 2_000, len(drawn)) is None, "no room for the last"


@given(batch=st.builds(_batch, WITHOUT_HEADERS, MUTATIONS, st.sampled_from([0, 0, 1, -1]), st.booleans()) | BATCHES)
def test_columns_of_damaged_records_are_those_of_python_or_left_to_it(
    kernel: Any, batch: tuple[bytes, BatchHeader]
) -> None:
    found = _indexed(kernel, *batch, 0, 2_000, _ROWS)
    assert found is None or found == _decoded_by_python(*batch)


@given(st.binary(max_size=40))
@example(b"\xff" * 11)
def test_keys_hash_as_in_python(kernel: Any, key: bytes) -> None:
    with python_alone():
        expected = partitioning.murmur2(key)
    assert kernel.murmur2(key) == expected
    assert kernel.murmur2(memoryview(b"x" + key)[1:]) == expected
