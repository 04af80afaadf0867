"""Records that are sent together: what each of them is told, and when halves of a batch may be sent in its place."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fencepost.client.batches import Batch, RecordMetadata
from fencepost.client.errors import ClientError, DeliveryError
from fencepost.protocol.compression import Compression
from fencepost.protocol.records import decode_batch
from fencepost.protocol.types import TopicPartition

AT = TopicPartition("t", 3)
Told = list[tuple[RecordMetadata, Exception | None]]


def batch_of(times: list[int], told: Told) -> Batch:
    """A batch of records with these timestamps, each with its number for a value, and a future."""
    batch = Batch(AT, Compression.GZIP, 9.0, lambda metadata, error: told.append((metadata, error)))
    for number, time in enumerate(times):
        future: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        assert batch.append(time, b"k", b"%d" % number, (("h", b"%d" % number),), future)
    return batch


TIMES = st.lists(st.integers(0, 2**40), min_size=1, max_size=9)


@given(TIMES, st.sampled_from([-1, 0, 7, 2**40]), st.sampled_from([-1, 0, 5]))
def test_each_record_is_told_its_offset_and_the_time_that_counts(times: list[int], base: int, appended: int) -> None:
    """Its own, or that of the log where the topic is so; no offset where the leader tells none.  Once."""
    told: Told = []

    async def main() -> list[Any]:
        batch = batch_of(times, told)
        batch.succeed(base, appended)
        batch.succeed(base + 1, appended)
        batch.fail(DeliveryError("x"), reported=True)
        return [future.result() for future in batch.futures]

    offsets = [-1 if base < 0 else base + number for number in range(len(times))]
    counts = times if appended < 0 else [appended] * len(times)
    expected = [(*AT, offset, time) for offset, time in zip(offsets, counts, strict=True)]
    assert asyncio.run(main()) == expected
    assert told == [(metadata, None) for metadata in expected]


@given(TIMES)
def test_each_record_is_told_of_a_failure_once(times: list[int]) -> None:
    told: Told = []
    error = DeliveryError("x")

    async def main() -> list[Any]:
        batch = batch_of(times, told)
        batch.fail(error, reported=False)
        batch.succeed(0, -1)
        return [future.exception() for future in batch.futures]

    assert asyncio.run(main()) == [error] * len(times)
    assert told == [((*AT, -1, time), error) for time in times]


@pytest.mark.parametrize("count", [1, 2])
@pytest.mark.parametrize("in_doubt", [False, True])
@pytest.mark.parametrize("abandoned", [None, ClientError("x")])
@pytest.mark.parametrize("is_whole", [False, True])
def test_halves_are_sent_only_where_nothing_can_be_written_twice_and_nobody_waits_for_the_whole(
    count: int, in_doubt: bool, abandoned: ClientError | None, is_whole: bool
) -> None:
    async def main() -> bool:
        batch = batch_of([0] * count, [])
        batch.in_doubt, batch.abandoned = in_doubt, abandoned
        batch.whole = asyncio.get_running_loop().create_future() if is_whole else None
        return batch.can_be_split

    assert asyncio.run(main()) == (count > 1 and not in_doubt and abandoned is None and not is_whole)


@given(st.lists(st.integers(0, 2**40), min_size=2, max_size=9))
def test_halves_have_all_that_their_batch_had(times: list[int]) -> None:
    told: Told = []

    async def main() -> None:
        batch = batch_of(times, told)
        whole = list(decode_batch(batch.builder.build()))
        halves = batch.halves()
        parts = [record for half in halves for record in decode_batch(half.builder.build())]
        assert [record[1:] for record in parts] == [record[1:] for record in whole]
        assert [future for half in halves for future in half.futures] == batch.futures
        assert {(half.at, half.deadline, half.builder.compression) for half in halves} == {(AT, 9.0, Compression.GZIP)}
        for half in halves:
            half.succeed(0, -1)
        assert [metadata.timestamp for metadata, _ in told] == times

    asyncio.run(main())
