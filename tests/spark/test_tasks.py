"""What a task makes of the batches that it is given, and that what it reports has the same columns everywhere."""

from __future__ import annotations

import asyncio
from itertools import pairwise
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from fencepost.client.shared_transaction import Ticket
from fencepost.protocol.records import BatchBuilder, decode_batch
from fencepost.protocol.types import NO_PRODUCER, TopicPartition
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


def test_a_report_has_the_columns_that_spark_is_told() -> None:
    assert [column.split()[0] for column in RESULT.split(",")] == list(Written._fields) == _RESULT_SCHEMA.names
