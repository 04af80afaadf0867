"""What a task makes of the batches that it is given, and that what it reports has the same columns everywhere."""

from __future__ import annotations

import asyncio
from itertools import pairwise
from types import SimpleNamespace
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from pyspark import TaskContext

from fencepost.client.security import Security
from fencepost.client.shared_transaction import Ticket
from fencepost.protocol.records import BatchBuilder, decode_batch
from fencepost.protocol.types import NO_PRODUCER, Epoch, ProducerId, TopicPartition
from fencepost.spark import tasks
from fencepost.spark.attempt import Plan
from fencepost.spark.claims import Written
from fencepost.spark.encoding import ENCODED, RECORD_GROWS
from fencepost.spark.tasks import _RESULT_SCHEMA, RESULT

MOST = 1000
PARTITIONS = 3
PLAN = Plan("app", Ticket("app", NO_PRODUCER, True), {}, {"out": PARTITIONS}, batch_bytes=MOST)
#: target, whether it is whole, how many records, bytes of each
GIVEN = st.lists(
    st.tuples(st.integers(0, PARTITIONS - 1), st.booleans(), st.integers(1, 4), st.integers(0, 300)), max_size=40
)


class Attempt:
    """Keeps what is written."""

    def __init__(self) -> None:
        self.written: list[tuple[TopicPartition, list[bytes]]] = []

    async def write(self, at: TopicPartition, records: BatchBuilder) -> None:
        self.written.append((at, [record.value or b"" for record in decode_batch(records.build())]))


def sent(parts: list[tuple[int, bool, bytes]], portion: int) -> tuple[int, list[tuple[TopicPartition, list[bytes]]]]:
    """Rows that were counted, and batches that were written; `portion`: how many come at a time."""
    names = [column.split()[0] for column in ENCODED.split(", ")]
    batches = [
        pa.RecordBatch.from_pylist([dict(zip(names, part, strict=True)) for part in parts[first : first + portion]])
        for first in range(0, len(parts), portion)
    ]
    attempt: Any = Attempt()
    rows = asyncio.run(tasks._send(attempt, PLAN, iter(batches)))
    return rows, attempt.written


@pytest.mark.parametrize("waiting", [0, 700, MOST * PARTITIONS])
@given(GIVEN, st.integers(1, 10))
@example([(0, False, 1, 200)] * 40, 3)  # many times what may wait, a little at a time
def test_batches_are_put_together_in_their_order_as_long_as_they_fit(
    waiting: int, batches: list[tuple[int, bool, int, int]], portion: int
) -> None:
    """Also where a task may keep little: then it writes what waits, and loses no record."""
    parts, sizes, expected = [], dict[tuple[bytes, ...], tuple[int, bool]](), dict[int, list[bytes]]()
    for number, (target, whole, count, size) in enumerate(batches):
        builder, values = BatchBuilder(), [b"%d-%d" % (number, n) + b"x" * size for n in range(count)]
        for value in values:
            builder.append(0, None, value, ())
        parts.append((target, whole, builder.build()))
        sizes[tuple(values)] = builder.size + count * RECORD_GROWS, whole
        expected.setdefault(target, []).extend(values)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(tasks, "_WAITING", waiting)
        rows, written = sent(parts, portion)
    assert rows == sum(count for _, _, count, _ in batches)
    for target in range(PARTITIONS):
        mine = [values for at, values in written if at.partition == target]
        assert [value for values in mine for value in values] == expected.get(target, [])
        made = [_parts_of(values, sizes) for values in mine]
        for each in made:
            assert len(each) == 1 or not any(whole for _, whole in each), "what is whole is a batch of its own"
            assert len(each) == 1 or sum(size for size, _ in each) <= MOST
        if waiting == MOST * PARTITIONS:  # more never waits
            for one, other in pairwise(made):
                together = sum(size for size, _ in one) + other[0][0]
                assert one[0][1] or other[0][1] or together > MOST, "they would have fitted together"


def _parts_of(values: list[bytes], sizes: dict[tuple[bytes, ...], tuple[int, bool]]) -> list[tuple[int, bool]]:
    """Of which given batches one that was written is made: their sizes, and whether they are whole."""
    found, left = [], values
    while left:
        number = next(n for n in range(1, len(left) + 1) if tuple(left[:n]) in sizes)
        found.append(sizes[tuple(left[:number])])
        left = left[number:]
    return found


@pytest.mark.parametrize("kind", [pa.binary(), pa.large_binary()], ids=str)
@pytest.mark.parametrize("first", range(3))
def test_of_a_slice_of_an_arrow_batch_its_own_rows_are_written(first: int, kind: pa.DataType) -> None:
    names = [column.split()[0] for column in ENCODED.split(", ")]
    parts = [(0, False, b"a"), (2, True, b"bcd"), (1, False, b""), (0, False, b"ef")]
    batch = pa.RecordBatch.from_pylist([dict(zip(names, part, strict=True)) for part in parts])
    batch = batch.set_column(2, names[2], batch.column(2).cast(kind))
    found = [(target, whole, bytes(data)) for target, whole, data in tasks._shuffled(batch.slice(first, 2))]
    assert found == parts[first : first + 2]


@pytest.mark.parametrize("fails", ["", "claim", "write", "finish"])
def test_a_task_claims_as_which_attempt_it_is_and_leaves_nothing_open(
    fails: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    claimed: list[tuple[int, int]] = []
    closed: list[str] = []
    loops = [asyncio.new_event_loop()]
    written = Written(3, ProducerId(1), Epoch(2), 1, "out", 0, 1, 7, 7, 1)

    def failing(what: str) -> None:
        if fails == what:
            raise LookupError(what)

    class Claimed(Attempt):
        async def write(self, *written: Any) -> None:
            failing("write")
            await super().write(*written)

        async def finish(self, rows: int) -> list[Written]:
            failing("finish")
            return [written._replace(rows=rows)]

        async def close(self) -> None:
            closed.append("attempt")

    class Connected:
        def __init__(self, *_: Any, **__: Any) -> None:
            pass

        async def close(self) -> None:
            closed.append("cluster")

    async def claim(_: Any, __: Plan, slot: int, attempt_number: int) -> Any:
        claimed.append((slot, attempt_number))
        failing("claim")
        return Claimed()

    monkeypatch.setattr(tasks, "Cluster", Connected)
    monkeypatch.setattr(tasks, "claim", claim)
    monkeypatch.setattr(asyncio, "new_event_loop", lambda: loops[0])
    context = SimpleNamespace(partitionId=lambda: 3, attemptNumber=lambda: 2)
    monkeypatch.setattr(TaskContext, "get", lambda: context)
    builder = BatchBuilder()
    builder.append(0, None, b"value", ())
    names = [column.split()[0] for column in ENCODED.split(", ")]
    rows = pa.RecordBatch.from_pylist([dict(zip(names, (0, False, builder.build()), strict=True))])
    told = tasks.Task("127.0.0.1:1", Security(), PLAN)(iter([rows]))
    if fails:
        with pytest.raises(LookupError, match=fails):
            list(told)
    else:
        assert [row for batch in told for row in batch.to_pylist()] == [written._asdict()]
    assert claimed == [(3, 2)]
    assert closed == (["cluster"] if fails == "claim" else ["attempt", "cluster"])
    assert loops[0].is_closed()


def test_a_report_has_the_columns_that_spark_is_told() -> None:
    assert [column.split()[0] for column in RESULT.split(",")] == list(Written._fields) == _RESULT_SCHEMA.names
