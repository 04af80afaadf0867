"""Records as Arrow columns: what compiled code makes of them is what Python makes of them."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.protocol.drawn_records import BYTES, HEADERS, TIMESTAMPS
from tests.twins import need_compiled

from fencepost.protocol import record_columns as columns
from fencepost.protocol.batch import HEADER_SIZE, headers, set_max_timestamp
from fencepost.protocol.compression import Compression
from fencepost.protocol.errors import ProtocolError
from fencepost.protocol.record_columns import FIELDS, record_batches
from fencepost.protocol.records import NewRecord, decode_batch, encode_batch
from fencepost.protocol.types import Milliseconds, TopicPartition

AT = TopicPartition("orders", 3)
RECORDS = st.lists(
    st.tuples(TIMESTAMPS, BYTES, BYTES, st.just([]) | st.just([]) | st.just([]) | HEADERS), min_size=1, max_size=4
)
BATCHES = st.lists(st.tuples(RECORDS, st.sampled_from(Compression), st.booleans()), max_size=4)


def _data(batches: list[tuple[list[NewRecord], Compression, bool]]) -> bytearray:
    data = bytearray()
    base = 100
    for drawn, compression, append_time in batches:
        batch = bytearray(encode_batch(drawn, base_offset=base, compression=compression))
        if append_time:
            (_, header) = next(headers(batch))
            set_max_timestamp(batch, 0, header, Milliseconds(1_800_000_000_000))
        data += batch
        base += len(drawn) + 1
    return data


def _made(data: bytes | bytearray, start: int, end: int, names: list[str]) -> pa.Table | str:
    try:
        found = list(record_batches(memoryview(data), list(headers(data)), AT, start, end, names))
    except ProtocolError as wrong:
        return str(wrong)
    assert all(batch.validate(full=True) is None and batch.num_rows for batch in found)
    return pa.Table.from_batches(found, pa.schema([pa.field(name, FIELDS[name]) for name in names]))


def _by_python(*what: Any) -> pa.Table | str:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(columns, "_compiled_index", None)
        return _made(*what)


@given(batches=BATCHES, start=st.integers(98, 104), end=st.integers(100, 112), names=st.permutations(list(FIELDS)))
def test_columns_are_those_that_python_makes(
    batches: list[tuple[list[NewRecord], Compression, bool]], start: int, end: int, names: list[str]
) -> None:
    need_compiled()
    data = _data(batches)
    assert _made(data, start, end, names) == _by_python(data, start, end, names)


@given(batches=BATCHES.filter(bool), at=st.floats(0, 0.999), byte=st.integers(0, 255))
def test_damaged_records_end_as_in_python(
    batches: list[tuple[list[NewRecord], Compression, bool]], at: float, byte: int
) -> None:
    need_compiled()
    data = _data([(drawn, Compression.NONE, append_time) for drawn, _, append_time in batches])
    place = HEADER_SIZE + int(at * (len(data) - HEADER_SIZE))
    if all(not begin <= place < begin + HEADER_SIZE for begin, _ in headers(data)):
        data[place] = byte
    assert _made(data, 0, 1_000, list(FIELDS)) == _by_python(data, 0, 1_000, list(FIELDS))


@given(batches=BATCHES, start=st.integers(98, 104), end=st.integers(100, 112))
def test_rows_are_the_records_of_the_range(
    batches: list[tuple[list[NewRecord], Compression, bool]], start: int, end: int
) -> None:
    data = _data(batches)
    records = [record for at, header in headers(data) for record in decode_batch(data, at, header)]
    for made in (_made, _by_python):
        found = made(data, start, end, ["offset", "timestamp", "key", "value", "topic", "partition"])
        assert isinstance(found, pa.Table)
        microseconds = found.column("timestamp").cast(pa.int64()).to_pylist()
        assert microseconds == [record.timestamp * 1000 for record in records if start <= record.offset < end]
        assert [tuple(row.values()) for row in found.drop(["timestamp"]).to_pylist()] == [
            (record.offset, record.key, record.value, AT.topic, AT.partition)
            for record in records
            if start <= record.offset < end
        ]


def test_rows_are_those_of_the_range_whatever_the_header_says_of_its_last_record() -> None:
    data = encode_batch([(0, None, b"%d" % n, ()) for n in range(3)], base_offset=100)
    ((place, header),) = headers(data)
    short = [(place, header._replace(last_offset_delta=0))]
    for compiled in (columns._compiled_index, None):
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(columns, "_compiled_index", compiled)
            (found,) = record_batches(memoryview(data), short, AT, 100, 102, ["offset"])
        assert found.column("offset").to_pylist() == [100, 101]


def test_many_small_batches_become_a_few_large_ones() -> None:
    batch = encode_batch([(0, None, b"value", ())] * 100)
    found = list(record_batches(memoryview(batch * 500), list(headers(batch * 500)), AT, 0, 200, ["value"]))
    assert [each.num_rows for each in found] == [20_000, 20_000, 10_000]


def test_batches_that_unfold_to_much_are_not_unfolded_together() -> None:
    """As many as come in one answer would not fit into memory."""
    data = encode_batch([(0, None, bytes(5 << 20), ())], compression=Compression.ZSTD) * 3
    assert len(data) < 10_000
    found = list(record_batches(memoryview(data), list(headers(data)), AT, 0, 200, ["value"]))
    assert [each.num_rows for each in found] == [1, 1, 1]


def test_records_without_headers_are_not_left_to_python(monkeypatch: pytest.MonkeyPatch) -> None:
    need_compiled()
    monkeypatch.setattr(columns, "_decoded", None)
    data = _data([([(5, None, b"", ()), (6, b"", None, ())], Compression.LZ4, False)])
    found = _made(data, 0, 200, ["key", "value"])
    assert isinstance(found, pa.Table)
    assert found.to_pylist() == [{"key": None, "value": b""}, {"key": b"", "value": None}]


@pytest.mark.parametrize("sign", [1, -1])
def test_a_time_that_has_no_room_in_microseconds_is_named_with_its_record(sign: int) -> None:
    most = (2**63 - 1) // 1000
    data = encode_batch([(sign * most, None, b"a", ()), (sign * (most + 1), None, b"b", ())], base_offset=100)
    for made in (_made, _by_python):
        assert isinstance(made(data, 100, 101, ["timestamp"]), pa.Table)
        assert isinstance(made(data, 100, 102, ["value"]), pa.Table)
        time = sign * (most + 1)
        said = f"^orders-3 has a record at offset 101 with the time {time} ms.*without the column timestamp$"
        with pytest.raises(ValueError, match=said):
            made(data, 100, 102, ["timestamp"])
