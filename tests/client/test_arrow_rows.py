"""Rows of Arrow tables: what each column may be, what a row says as a record, and what is told of one that is none."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import pandas as pd
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fencepost.client.arrow_rows import Rows
from fencepost.client.bulk import AS_ANY, MOST, NOW
from fencepost.client.errors import RecordTooLargeError

HEADERS = pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())]))
LARGE_HEADERS = pa.large_list(pa.struct([("value", pa.large_string()), ("key", pa.dictionary(pa.int8(), pa.string()))]))
UTC_MICROSECONDS = pa.timestamp("us", "UTC")
SOME = st.none() | st.binary(max_size=30)
NAMED = st.tuples(st.text(max_size=5), SOME)
ROW = st.tuples(
    SOME,
    SOME,
    st.none() | st.lists(NAMED, max_size=3),
    st.none() | st.integers(0, 2**52),
    st.none() | st.integers(0, 9),
)
Row = tuple[bytes | None, bytes | None, list[Any] | None, int | None, int | None]


def table(rows: list[Row]) -> pa.Table:
    keys, values, headers, times, partitions = zip(*rows, strict=True) if rows else ((), (), (), (), ())
    named = [each and [{"key": name, "value": value} for name, value in each] for each in headers]
    return pa.table(
        {
            "headers": pa.array(named, HEADERS),
            "value": pa.array(values, pa.binary()),
            "timestamp": pa.array([each and each * 1000 + 999 for each in times], UTC_MICROSECONDS),
            "key": pa.array(keys, pa.binary()),
            "partition": pa.array(partitions, pa.int32()),
            "offset": pa.array(range(len(rows)), pa.int64()),
        }
    )


def records(rows: object, limit: int = 1 << 20, chunk_bytes: int = 1 << 20) -> list[Row]:
    found: list[Row] = []
    for chunk in Rows("t", rows, limit).chunks(chunk_bytes):
        own = chunk.own or [(AS_ANY, NOW, ())] * len(chunk.values)
        for key, value, (partition, time, headers) in zip(chunk.keys, chunk.values, own, strict=True):
            said = None if time == NOW else time, None if partition == AS_ANY else partition
            found.append((key, value, [*headers] or None, *said))
    return found


def values(column: pa.Array) -> list[bytes | None]:
    return [value for _, value, *_ in records(pa.table({"value": column}))]


@settings(max_examples=60)
@given(rows=st.lists(ROW, max_size=40), cuts=st.lists(st.integers(0, 40), max_size=5), chunk_bytes=st.integers(1, 2000))
def test_every_row_is_a_record_however_its_table_is_cut_and_sliced(
    rows: list[Row], cuts: list[int], chunk_bytes: int
) -> None:
    whole = table([(b"before", b"", [("h", b"")], 5, 5), *rows, (b"behind", b"", None, None, None)])
    places = sorted({1, *(1 + min(cut, len(rows)) for cut in cuts), 1 + len(rows)})
    cut = pa.concat_tables(
        [whole.slice(first, last - first) for first, last in pairwise(places)] or [whole.slice(0, 0)]
    )
    assert records(cut, chunk_bytes=chunk_bytes) == [(*row[:2], row[2] or None, *row[3:]) for row in rows]


@given(sizes=st.lists(st.sampled_from([0, 1, 500]), max_size=50), chunk_bytes=st.integers(1, 3000))
def test_a_chunk_is_no_larger_than_it_may_be_unless_it_is_one_row(sizes: list[int], chunk_bytes: int) -> None:
    found = list(Rows("t", pa.table({"value": pa.array(map(bytes, sizes), pa.binary())}), 1000).chunks(chunk_bytes))
    assert [len(value or b"") for chunk in found for value in chunk.values] == sizes
    assert all(chunk.size <= chunk_bytes or len(chunk.values) == 1 for chunk in found)
    assert all(
        chunk.size == 32 * len(chunk.values) + sum(len(value or b"") for value in chunk.values) for chunk in found
    )


def test_many_rows_are_some_at_a_time_and_many_small_pieces_together() -> None:
    column = pa.chunked_array([[b"%d" % n] for n in range(3 * MOST)])
    found = list(Rows("t", pa.table({"value": column}), 1000).chunks(1 << 20))
    assert [len(chunk.values) for chunk in found] == [MOST] * 3
    assert [value for chunk in found for value in chunk.values] == [b"%d" % n for n in range(3 * MOST)]


def test_rows_that_say_nothing_but_key_and_value_say_nothing() -> None:
    plain: list[dict[str, Any]] = [{"value": [b""]}, {"value": [b""], "headers": pa.array([[]], HEADERS)}]
    for columns in (
        *plain,
        {"value": [b""], "headers": pa.array([None], HEADERS), "offset": [7], "timestampType": [0]},
    ):
        assert [chunk.own for chunk in Rows("t", pa.table(columns), 1000).chunks(1000)] == [None]


@pytest.mark.parametrize(
    "kind",
    [pa.binary(), pa.large_binary(), pa.binary_view(), pa.binary(2), pa.string(), pa.large_string(), pa.string_view()],
    ids=str,
)
def test_keys_and_values_are_bytes_or_text_of_any_kind(kind: pa.DataType) -> None:
    column = pa.array([b"ab", None, b"\xc3\xa9"], pa.binary()).cast(pa.string()).cast(pa.binary())
    column = column.cast(kind) if kind != pa.binary(2) else pa.array([b"ab", None, b"\xc3\xa9"], kind)
    assert values(column) == [b"ab", None, "é".encode()]
    assert values(column.slice(2)) == ["é".encode()]


def test_dictionaries_and_columns_of_nothing_but_null_are_what_they_say() -> None:
    coded = pa.array(["a", None, "b", "a"]).dictionary_encode()
    assert values(coded.slice(1)) == [None, b"b", b"a"]
    assert values(pa.nulls(2)) == [None, None]
    nulls = {name: pa.nulls(1) for name in ("key", "value", "headers", "timestamp", "partition")}
    assert records(pa.table(nulls)) == [(None, None, None, None, None)]


@pytest.mark.parametrize("kind", [pa.string_view(), pa.binary_view(), pa.large_string(), pa.binary()], ids=str)
def test_dictionaries_may_be_of_any_kind_of_text_and_bytes(kind: pa.DataType) -> None:
    """Of views are the categories of polars."""
    entries = pa.array(["a longer one that is beside its view", None], kind)
    coded = pa.DictionaryArray.from_arrays(pa.array([0, None, 1, 0], pa.uint8()), entries)
    assert values(coded.slice(1)) == [None, None, b"a longer one that is beside its view"]
    headers = pa.ListArray.from_arrays([0, 4], pa.StructArray.from_arrays([["k"] * 4, coded], ["key", "value"]))
    [(_, _, found, *_)] = records(pa.table({"value": ["v"], "headers": headers}))
    assert [value for _, value in found or ()] == values(coded)


def test_headers_may_be_large_lists_of_other_texts_in_the_other_order() -> None:
    named = [[{"key": "a", "value": "1"}, {"key": "a", "value": None}], None, [], [{"key": "b", "value": ""}]]
    columns = {"value": pa.nulls(4), "headers": pa.array(named, LARGE_HEADERS)}
    found = [headers for _, _, headers, *_ in records(pa.table(columns).slice(0))]
    assert found == [[("a", b"1"), ("a", None)], None, None, [("b", b"")]]
    assert [headers for _, _, headers, *_ in records(pa.table(columns).slice(3))] == [[("b", b"")]]


@pytest.mark.parametrize(
    ("column", "milliseconds"),
    [
        (pa.array([0, 2], pa.timestamp("s", "UTC")), [0, 2000]),
        (pa.array([0, 2], pa.timestamp("ms", "+01:00")), [0, 2]),
        (pa.array([999, 2001], UTC_MICROSECONDS), [0, 2]),
        (pa.array([999_999, None], pa.timestamp("ns", "Europe/Paris")), [0, None]),
        (pa.array([5, None], pa.int16()), [5, None]),
        (pa.array([2**63 - 1, 0], pa.uint64()), [2**63 - 1, 0]),
    ],
    ids=lambda each: str(getattr(each, "type", "")),
)
def test_times_are_milliseconds_whatever_their_unit_and_zone(column: pa.Array, milliseconds: list[int | None]) -> None:
    found = records(pa.table({"value": pa.nulls(2), "timestamp": column}))
    assert [time for *_, time, _ in found] == milliseconds


@pytest.mark.parametrize(
    "rows",
    [
        pa.record_batch({"value": [b"a"]}),
        pd.DataFrame({"value": ["a"]}),
        pd.DataFrame({"value": ["a", "b"]}, index=[3, 4])[:1],
        pa.RecordBatchReader.from_batches(pa.schema([("value", pa.string())]), [pa.record_batch({"value": ["a"]})]),
    ],
    ids=lambda each: type(each).__name__,
)
def test_rows_are_a_table_of_any_library(rows: object) -> None:
    assert records(rows) == [(None, b"a", None, None, None)]


@pytest.mark.parametrize("rows", [None, "a", [b"a"], {"value": [b"a"]}, pa.array([b"a"]), pa.chunked_array([[b"a"]])])
def test_what_is_no_table_is_told(rows: object) -> None:
    with pytest.raises(TypeError, match=f"{type(rows).__name__}.* is"):
        Rows("t", rows, 1000)


@pytest.mark.parametrize(
    ("columns", "error", "said"),
    [
        ({"key": [b""]}, ValueError, "no column 'value'"),
        ({"value": [b""], "keys": [b""]}, ValueError, "column 'keys' cannot be sent: rename it to one of key, value,"),
        ({"value": [b""], "topic": ["t"]}, ValueError, "column 'topic'"),
        ({"value": [1]}, TypeError, r"column 'value' is int64: cast it to pa.binary\(\)"),
        ({"value": [b""], "key": [[1]]}, TypeError, "column 'key' is list"),
        ({"value": [b""], "partition": ["0"]}, TypeError, "column 'partition' is string"),
        ({"value": [b"", b""], "partition": [0, -1]}, ValueError, "row 1: its partition"),
        ({"value": [b""], "partition": [1 << 31]}, ValueError, "row 0: its partition"),
        ({"value": [b""], "timestamp": [1.5]}, TypeError, "column 'timestamp' is double"),
        ({"value": [b""], "timestamp": pa.array([1], pa.timestamp("ms"))}, TypeError, "without a time zone"),
        ({"value": [b""] * 3, "timestamp": [1, None, -1]}, ValueError, "row 2: its timestamp is before 1970"),
        ({"value": [b""], "timestamp": pa.array([1 << 60], pa.timestamp("s", "UTC"))}, ValueError, "row 0: .* later"),
        ({"value": [b""], "timestamp": pa.array([1 << 63], pa.uint64())}, ValueError, "row 0: .* later"),
        ({"value": [b""], "headers": [[b""]]}, TypeError, "column 'headers' is list<"),
        ({"value": [b""], "headers": [[{"key": "h"}]]}, TypeError, "column 'headers' is list<"),
        (
            {"value": [b""], "headers": [[{"key": b"h", "value": b""}]]},
            TypeError,
            "keys of column 'headers' are binary",
        ),
        ({"value": [b""], "headers": [[{"key": "h", "value": 1}]]}, TypeError, "value of column 'headers' is int64"),
        ({"value": [b""] * 2, "headers": [[], [{"key": None, "value": b""}]]}, ValueError, "row 1: it has a header"),
        ({"value": [b""] * 2, "headers": [[{"key": "h", "value": b""}], [None]]}, ValueError, "row 1: it has a header"),
        ({"value": [b"", bytes(1000)]}, RecordTooLargeError, "row 1: .* 1000 of value"),
        ({"value": [b""], "headers": [[{"key": "h", "value": bytes(1000)}]]}, RecordTooLargeError, "row 0: "),
    ],
)
def test_what_no_record_may_have_is_told(columns: dict[str, Any], error: type[Exception], said: str) -> None:
    with pytest.raises(error, match=said):
        Rows("t", pa.table(columns), 1000)
    if error is not RecordTooLargeError and "row" not in said:
        with pytest.raises(error, match=said):
            Rows("t", pa.table(columns).slice(0, 0), 1000)


def test_a_row_is_named_by_its_place_in_the_whole_table() -> None:
    pieces = [[0] * 200, [1] * 200, [0] * 199 + [-1]]
    rows = pa.concat_tables([pa.table({"value": pa.nulls(200), "partition": piece}) for piece in pieces])
    with pytest.raises(ValueError, match=r"^row 599: "):
        Rows("t", rows, 1000)


@pytest.mark.parametrize("kind", [pa.string(), pa.large_string(), pa.dictionary(pa.int8(), pa.string())])
def test_the_key_of_a_header_is_utf_8_as_its_column_says(kind: pa.DataType) -> None:
    """Arrow takes any bytes for text where they are not looked at, as those of a file."""
    keys = pa.array([b"first", "\u00e4".encode(), b"", b"\xc3", b"\xff"])
    text = kind.value_type if pa.types.is_dictionary(kind) else kind
    names = keys.cast(pa.large_binary() if text == pa.large_string() else pa.binary()).view(text)
    if text != kind:
        names = pa.DictionaryArray.from_arrays(pa.array(range(5), pa.int8()), names)
    named = pa.StructArray.from_arrays([names, keys], ["key", "value"])
    headers = pa.ListArray.from_arrays([0, 2, 2, 3, 3, 4, 5], named)
    rows = pa.table({"value": [b"1"] * 6, "headers": headers})
    with pytest.raises(ValueError, match="row 4: it has a header whose key is no UTF-8"):
        records(rows)
    assert len(records(rows.slice(0, 3))) == 3


def test_two_columns_of_one_name_are_told() -> None:
    with pytest.raises(ValueError, match="2 columns 'value'"):
        Rows("t", pa.table([pa.array([b""])] * 2, names=["value", "value"]), 1000)


@pytest.mark.parametrize("name", ["partition", "timestamp"])
def test_what_is_said_for_all_is_no_column(name: str) -> None:
    with pytest.raises(ValueError, match=f"{name} is given for all rows and as a column"):
        Rows("t", pa.table({"value": [b""], name: [0]}), 1000, [name])
