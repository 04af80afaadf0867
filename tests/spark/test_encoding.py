"""Rows become batches of their topic-partition, and those what a task writes: whole, once, and in their order."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Iterator
from contextlib import nullcontext
from datetime import UTC, datetime, timedelta
from itertools import groupby
from typing import Any, NamedTuple, cast

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.twins import python_alone

from fencepost.client.shared_transaction import Ticket
from fencepost.protocol.batch import HEADER_SIZE, headers, read_header
from fencepost.protocol.compression import Compression, compress
from fencepost.protocol.partitioning import partition_for_key
from fencepost.protocol.records import BatchBuilder, Headers, decode_batch
from fencepost.protocol.types import Epoch, ProducerId, ProducerIdAndEpoch, TopicPartition
from fencepost.runtime import SystemClock
from fencepost.spark import encoding
from fencepost.spark.attempt import BATCH_BYTES, Attempt, Plan, batch_bytes
from fencepost.spark.encoding import Encoder, targets, targets_of, together
from fencepost.spark.tasks import _send

COUNTS = {"late": 3, "early": 2, "one": 1}
IDENTITY = ProducerIdAndEpoch.of(7, 3)


class Written(NamedTuple):
    """A record as it was sent."""

    timestamp: int
    key: bytes | None
    value: bytes | None
    headers: Headers


class Recording:
    """An attempt that keeps what it is given, as a broker would be sent it."""

    def __init__(self, compression: Compression) -> None:
        self.written: dict[TopicPartition, list[Written]] = {}
        self.sizes: list[int] = []
        self._compression = compression

    async def write(self, at: TopicPartition, records: BatchBuilder) -> None:
        data = memoryview(records.build(*IDENTITY, 11, True))
        self.sizes.append(len(data))
        for place, header in headers(data):
            assert (header.producer_id, header.producer_epoch, header.base_sequence) == (*IDENTITY, 11)
            assert header.is_transactional
            if header.compression is not self._compression:  # it would have been larger so
                body = compress(self._compression, bytes(data[place + HEADER_SIZE :]))
                assert header.compression is Compression.NONE and len(body) > len(data) - HEADER_SIZE
            found = decode_batch(data, place, header)
            assert len(found) == header.record_count == records.count > 0
            assert header.max_timestamp == max(each.timestamp for each in found)
            kept = [Written(each.timestamp, each.key, each.value, tuple(each.headers)) for each in found]
            self.written.setdefault(at, []).extend(kept)


class Row(NamedTuple):
    topic: str
    partition: int | None
    key: bytes | None
    value: bytes | None
    timestamp: datetime | None
    headers: list[dict[str, Any]] | None

    @property
    def at(self) -> TopicPartition:
        """Where it is to go."""
        count = COUNTS[self.topic]
        hashed = partition_for_key(self.key if self.key is not None else self.value or b"", count)
        return TopicPartition(self.topic, hashed if self.partition is None else self.partition % count)


BYTES = st.one_of(st.none(), st.binary(max_size=60))
MOMENTS = st.integers(0, 4 * 10**15).map(lambda n: datetime.fromtimestamp(0, UTC) + timedelta(microseconds=n))
HEADERS = st.lists(st.fixed_dictionaries({"key": st.text(max_size=3), "value": BYTES}), max_size=2)
ROWS = st.builds(
    *(Row, st.sampled_from(sorted(COUNTS)), st.none() | st.integers(0, 2), BYTES, BYTES),
    *(st.none() | MOMENTS, st.none() | HEADERS),
)
ARROW = {
    "topic": pa.string(),
    "partition": pa.int32(),
    "key": pa.binary(),
    "value": pa.binary(),
    "timestamp": pa.timestamp("us", tz="UTC"),
    "headers": pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())])),
}


def arrow(rows: list[Row], names: list[str]) -> pa.RecordBatch:
    def cell(row: Row, name: str) -> Any:
        return row.at.partition if name == "partition" and row.partition is not None else getattr(row, name)

    schema = pa.schema([(name, ARROW[name]) for name in names])
    return pa.RecordBatch.from_pylist([{name: cell(row, name) for name in names} for row in rows], schema=schema)


@pytest.mark.parametrize("alone", [False, True], ids=["compiled", "python"])
@settings(max_examples=60)
@given(
    st.lists(st.lists(st.lists(ROWS, max_size=9), max_size=3), max_size=3),
    st.sets(st.sampled_from(["timestamp", "headers"])),
    st.sampled_from(Compression),
    st.sampled_from([(400, 10**7), (1, 400), (10**4, 10**7), (10**6, 10**7), (2000, 200), (10**6, 1)]),
)
def test_every_row_is_written_once_where_it_is_to_go_whole_and_in_its_order(
    alone: bool, tasks: list[list[list[Row]]], extra: set[str], compression: Compression, sizes: tuple[int, int]
) -> None:
    """Of the tasks before the shuffle each gives its rows in their order; one task has those of all after it.

    The sizes have batches that are full, ones that are put together, and ones that leave for want of room.
    """
    names = ["topic", "partition", "key", "value", *sorted(extra)]
    most, room = sizes
    plan = Plan("app", Ticket("app", ProducerIdAndEpoch.of(1, 0), True), {}, COUNTS, compression, batch_bytes=most)
    recording, began = Recording(compression), SystemClock().now()
    with pytest.MonkeyPatch.context() as patch, python_alone() if alone else nullcontext():
        patch.setattr(encoding, "_UNFINISHED", room)
        encoder = Encoder(None, COUNTS, most)
        shuffled = [batch for task in tasks for batch in encoder(iter([arrow(rows, names) for rows in task]))]
        given_rows = asyncio.run(_send(cast(Attempt, recording), plan, iter(shuffled)))
    rows = [row for task in tasks for batch in task for row in batch]
    assert given_rows == len(rows)
    for at in targets(COUNTS):
        expected = [row for row in rows if row.at == at]
        written = recording.written.get(at, [])
        assert [(each.key, each.value) for each in written] == [(row.key, row.value) for row in expected]
        for each, row in zip(written, expected, strict=True):
            if "timestamp" in extra and row.timestamp is not None:
                assert each.timestamp == (row.timestamp - datetime.fromtimestamp(0, UTC)) // timedelta(milliseconds=1)
            else:
                assert began <= each.timestamp <= SystemClock().now()
            wanted = row.headers if "headers" in extra else None
            assert each.headers == tuple((one["key"], one["value"]) for one in wanted or ())


def test_few_rows_of_many_tasks_become_one_batch_of_their_partition() -> None:
    """Or a log would have one for each task before the shuffle."""
    rows = [Row("one", None, None, b"%d" % n, None, None) for n in range(50)]
    shuffled = [
        batch
        for _, some in groupby(enumerate(rows), lambda each: each[0] // 5)
        for batch in Encoder("one", COUNTS)(iter([arrow([row for _, row in some], ["key", "value"])]))
    ]
    assert len(shuffled) == 10
    plan = Plan("app", Ticket("app", ProducerIdAndEpoch.of(1, 0), True), {}, COUNTS)
    recording = Recording(Compression.NONE)
    asyncio.run(_send(cast(Attempt, recording), plan, iter(shuffled)))
    assert len(recording.sizes) == 1
    assert [each.value for each in recording.written[TopicPartition("one", 0)]] == [row.value for row in rows]


def test_what_is_put_together_keeps_the_time_and_the_headers_of_each_row() -> None:
    first = datetime.fromtimestamp(1_000_000, UTC)
    rows = [
        Row("one", None, None, b"%d" % n, first + timedelta(milliseconds=n), [{"key": "n", "value": b"%d" % n}])
        for n in range(9)
    ]
    names = ["key", "value", "timestamp", "headers"]
    shuffled = [
        batch for place in (0, 3, 6) for batch in Encoder("one", COUNTS)(iter([arrow(rows[place : place + 3], names)]))
    ]
    plan = Plan("app", Ticket("app", ProducerIdAndEpoch.of(1, 0), True), {}, COUNTS)
    recording = Recording(Compression.NONE)
    asyncio.run(_send(cast(Attempt, recording), plan, iter(shuffled)))
    assert len(recording.sizes) == 1
    told = [(each.timestamp, each.headers) for each in recording.written[TopicPartition("one", 0)]]
    assert told == [(10**9 + n, (("n", b"%d" % n),)) for n in range(9)]


def test_of_batches_that_are_not_full_a_task_holds_a_bounded_number_of_bytes(monkeypatch: pytest.MonkeyPatch) -> None:
    """However many targets it has: a little for each of thousands is much."""
    monkeypatch.setattr(encoding, "_UNFINISHED", 10_000)
    counts, given_on = {"wide": 1000}, list[int]()

    def pieces() -> Iterator[pa.RecordBatch]:
        for n in range(100):
            assert 1000 * n - sum(given_on) < 15_000
            cells = [{"partition": n, "key": None, "value": b"v" * 1000}]
            yield pa.RecordBatch.from_pylist(cells, schema=pa.schema([(name, ARROW[name]) for name in cells[0]]))

    for batch in Encoder("wide", counts)(pieces()):
        given_on += [len(each) for each in batch.column("batch").to_pylist()]
    assert sum(given_on) > 100_000


def test_a_task_keeps_little_however_many_partitions_it_writes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("fencepost.spark.tasks._WAITING", 100_000)
    counts, given = {"wide": 200}, list[int]()
    pieces = [[Row("wide", n, None, b"v" * 1000, None, None) for n in range(200)] for _ in range(40)]
    recording = Recording(Compression.NONE)

    def shuffled() -> Iterator[pa.RecordBatch]:
        for piece in pieces:
            cells = [{"partition": row.partition, "key": None, "value": row.value} for row in piece]
            rows = pa.RecordBatch.from_pylist(cells, schema=pa.schema([(name, ARROW[name]) for name in cells[0]]))
            for batch in Encoder("wide", counts)(iter([rows])):
                for place in range(batch.num_rows):
                    given.append(len(batch.column("batch")[place].as_py()))
                    assert sum(given) - sum(recording.sizes) < 110_000
                    yield batch.slice(place, 1)

    plan = Plan("app", Ticket("app", ProducerIdAndEpoch.of(1, 0), True), {}, counts)
    assert asyncio.run(_send(cast(Attempt, recording), plan, shuffled())) == 8000
    assert sum(map(len, recording.written.values())) == 8000


def test_many_rows_are_shuffled_as_few_batches() -> None:
    rows = [Row("late", n % 3, None, b"v" * 1000, None, None) for n in range(3000)]
    shuffled = list(Encoder("late", COUNTS)(iter([arrow(rows, ["partition", "key", "value"])])))
    found = [read_header(batch) for each in shuffled for batch in each.column("batch").to_pylist()]
    assert sum(header.record_count for header in found) == len(rows)
    assert len(found) == 9
    assert max(header.size for header in found) <= BATCH_BYTES


@pytest.mark.parametrize("row", [1000, 200_000], ids=["put together", "alone"])
def test_what_is_encoded_leaves_before_all_of_a_large_arrow_batch_is(row: int) -> None:
    """However large that one is: Spark may hand over 2 GiB, and records take some bytes more."""
    count, partitions = 24_000_000 // row, 60
    cells = [{"partition": n % partitions, "key": None, "value": b"v" * row} for n in range(count)]
    rows = pa.RecordBatch.from_pylist(cells, schema=pa.schema([(name, ARROW[name]) for name in cells[0]]))
    encoded = list(Encoder("wide", {"wide": partitions})(iter([rows])))
    assert (
        sum(read_header(batch).record_count for each in encoded for batch in each.column("batch").to_pylist()) == count
    )
    assert max(each.nbytes for each in encoded) < 2.6 * 1024 * 1024
    assert len(encoded) < 24_000_000 // (2 * 1024 * 1024) + 2, "they leave one by one"


@pytest.mark.parametrize("limit", [1_048_588, 100_000, 2000])
@pytest.mark.parametrize("extra", [[], ["timestamp"]])
@pytest.mark.parametrize("column", ["key", "value"])
def test_no_batch_is_larger_than_its_topic_takes_unless_one_row_is(limit: int, column: str, extra: list[str]) -> None:
    """Small rows beside a large one, ones that fill a batch nearly, and tasks whose rows are months apart."""
    large, most = limit - 150, batch_bytes([10**9, limit])
    sizes = [0, *[limit // 40] * 50, large, 20, large, *[most // 5 - 33] * 9, *[most // 5 - 32] * 9, large] + [5] * 9999
    times = [datetime(2020 + n // 200 % 2, 1, 1, tzinfo=UTC) for n in range(len(sizes))]
    rows = [Row("one", 0, None, b"v" * size, time, None) for size, time in zip(sizes, times, strict=True)]
    if column == "key":
        rows = [row._replace(key=row.value, value=None) for row in rows]
    pieces = [arrow(rows[start : start + 40], ["key", "value", *extra]) for start in range(0, len(rows), 40)]
    tasks, encoder = [pieces[start : start + 5] for start in range(0, len(pieces), 5)], Encoder("one", COUNTS, most)
    shuffled = [batch for task in tasks for batch in encoder(iter(task))]
    plan = Plan("app", Ticket("app", ProducerIdAndEpoch.of(1, 0), True), {}, COUNTS, batch_bytes=most)
    recording = Recording(Compression.NONE)
    asyncio.run(_send(cast(Attempt, recording), plan, iter(shuffled)))
    written = [(each.key, each.value) for each in recording.written[TopicPartition("one", 0)]]
    assert written == [(row.key, row.value) for row in rows]
    assert max(recording.sizes) <= limit
    assert len(recording.sizes) < 8 + sum(sizes) / most * 4


@pytest.mark.parametrize(
    ("topic", "rows", "said"),
    [
        ("late", [(None, 2), (None, 3)], "topic late has no partition 3"),
        ("late", [(None, -1)], "topic late has no partition -1"),
        (None, [("one", 0), ("one", 1)], "topic one has no partition 1"),
        (None, [("late", None), ("other", None)], "topic other is not one of those of this write: early, late, one"),
        (None, [("late", None), ("é\nx", None)], r"topic é\\nx is not one of those of this write: early, late, one"),
        (None, [("late", None), (None, None)], "topic null is not one of those of this write: early, late, one"),
        ("other", [(None, None)], "topic other is not one of those of this write: early, late, one"),
    ],
)
def test_a_row_that_has_nowhere_to_go_is_named(
    topic: str | None, rows: list[tuple[str | None, int | None]], said: str
) -> None:
    names = ["topic", "partition"] if topic is None else ["partition"]
    cells = [{"topic": name, "partition": n, "key": None, "value": b"v"} for name, n in rows]
    schema = pa.schema([(name, ARROW[name]) for name in [*names, "key", "value"]])
    with pytest.raises(ValueError, match=f"^{said}$"):
        targets_of(pa.RecordBatch.from_pylist(cells, schema=schema), topic, COUNTS)


@pytest.mark.parametrize("amiss", [None, {"key": None, "value": b"v"}])
@pytest.mark.parametrize("place", [0, 1])
def test_a_header_that_kafka_does_not_have_is_named(amiss: dict[str, Any] | None, place: int) -> None:
    given: list[dict[str, Any] | None] = [{"key": "k", "value": None}]
    given.insert(place, amiss)
    schema = pa.schema([(name, ARROW[name]) for name in ("key", "value", "headers")])
    rows = pa.RecordBatch.from_pylist([{"key": None, "value": b"v", "headers": given}], schema=schema)
    with pytest.raises(ValueError, match="has a header that is null, or has no key"):
        list(Encoder("late", COUNTS)(iter([rows])))


@pytest.mark.parametrize(
    ("microseconds", "amiss"), [(0, False), (999, False), (-1, True), (-1_000, True), (-(10**15), True)]
)
def test_a_time_that_kafka_does_not_have_is_named(microseconds: int, amiss: bool) -> None:
    schema = pa.schema([("key", pa.binary()), ("value", pa.binary()), ("timestamp", pa.timestamp("us", tz="UTC"))])
    times = pa.array([None, microseconds, None], pa.timestamp("us", tz="UTC"))
    cells = [pa.array([None] * 3, pa.binary()), pa.array([b"v"] * 3, pa.binary()), times]
    rows = pa.RecordBatch.from_arrays(cells, schema=schema)
    if amiss:
        with pytest.raises(ValueError, match="has a time before 1970"):
            list(Encoder("late", COUNTS)(iter([rows])))
    else:
        assert list(Encoder("late", COUNTS)(iter([rows])))


@pytest.mark.parametrize("codec", Compression)
@pytest.mark.parametrize("length", [0, 10, 1000, 100_000])
@pytest.mark.parametrize("count", [1, 2])
@pytest.mark.parametrize("noise", [True, False])
def test_compression_makes_no_batch_larger(codec: Compression, length: int, count: int, noise: bool) -> None:
    """What cannot be compressed takes some bytes more with it, and a row that had just room in its topic has none."""
    values = [random.Random(number).randbytes(length) if noise else b"x" * length for number in range(count)]
    batches, whole = [], BatchBuilder()
    for value in values:
        single = BatchBuilder()
        single.append(5, None, value, ())
        batches.append(single.build())
        whole.append(5, None, value, ())
    for _ in range(2):  # it may be sent again
        made = together(batches, codec).build(ProducerId(7), Epoch(3), 11, True)
        header = read_header(made)
        assert len(made) <= whole.size
        assert [record.value for record in decode_batch(made)] == values
        assert (header.producer_id, header.producer_epoch, header.base_sequence) == (7, 3, 11)
        assert header.is_transactional
        if not noise and length >= 1000:
            assert header.attributes & 7 == codec, "what can be compressed is"
