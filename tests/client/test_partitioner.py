"""Where a record goes that is sent without a partition: by the user's function, by its key, or where the last went."""

from __future__ import annotations

import threading
import uuid
from collections.abc import Sequence
from random import Random
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fencepost.client.bulk import AS_ANY, Chunk, Column, Own
from fencepost.client.partitioner import Partitioner
from fencepost.client.topic_view import TopicView
from fencepost.protocol.partitioning import partition_for_key

BATCH = 100
#: What a record has beside its value, about: 100 bytes are full after ten records without one.
EMPTY_RECORDS = 10
KEYS = st.one_of(st.none(), st.just(b""), st.binary(max_size=3))


def topic(*leaders: int, name: str = "t") -> TopicView:
    return TopicView(name, uuid.UUID(int=1), dict(enumerate(leaders)))


def partitioner(by_user: Any = None, seed: int = 0) -> Partitioner:
    return Partitioner(Random(seed), BATCH, by_user)


def chunk(keys: Column, own: Sequence[int] | None = None) -> Chunk:
    values: Column = [b"%d" % number for number in range(len(keys))]
    said: list[Own] | None = None if own is None else [(number, 0, ()) for number in own]
    return Chunk(keys, values, 20, 11 * len(keys), None, said)


@pytest.mark.parametrize("key", [None, b"", b"key"])
@pytest.mark.parametrize("by_user", [None, lambda *_: 1])
def test_a_partition_that_is_given_is_taken_whatever_its_leader_or_the_key(key: bytes | None, by_user: Any) -> None:
    found = partitioner(by_user)
    chosen = [found.choose(topic(-1, 0, 0), key, number, 1) for number in (0, 1, 2, 3, -1)]
    assert chosen == [0, 1, 2, -1, -1]


@given(st.binary(max_size=5), st.lists(st.integers(-1, 2), min_size=1, max_size=12))
def test_a_key_goes_by_the_number_of_all_partitions_whoever_leads_them(key: bytes, leaders: list[int]) -> None:
    assert partitioner().choose(topic(*leaders), key, None, 1) == partition_for_key(key, len(leaders))


@given(st.lists(st.integers(-1, 2), min_size=1, max_size=5), st.integers(0, 100))
def test_without_a_key_it_goes_to_one_that_somebody_leads_if_there_is_one(leaders: list[int], seed: int) -> None:
    led = [number for number, leader in enumerate(leaders) if leader >= 0]
    assert partitioner(seed=seed).choose(topic(*leaders), None, None, 1) in (led or range(len(leaders)))


def test_without_a_key_all_go_to_one_until_a_batch_is_full_and_come_everywhere_in_time() -> None:
    found, at = partitioner(), topic(*[0] * 50)
    runs = [{found.choose(at, None, None, 0) for _ in range(EMPTY_RECORDS)} for _ in range(400)]
    assert all(len(run) == 1 for run in runs)
    assert set().union(*runs) == set(range(50))


def test_the_bytes_of_a_value_count_for_a_full_batch() -> None:
    found, at = partitioner(), topic(*[0] * 1000)
    assert len({found.choose(at, None, None, BATCH) for _ in range(20)}) > 10


def test_each_topic_has_a_place_of_its_own_and_a_full_batch_changes_that_of_one() -> None:
    for seed in range(20):
        found, one, two = partitioner(seed=seed), topic(*[0] * 1000, name="one"), topic(*[0] * 1000, name="two")
        first, other = found.choose(one, None, None, 1), found.choose(two, None, None, 1)
        found.another("one")
        assert found.choose(one, None, None, 1) != first != other
        assert found.choose(two, None, None, 1) == other


def test_a_place_that_is_no_more_is_left() -> None:
    """The topic was made anew, with fewer partitions."""
    for seed in range(20):
        found = partitioner(seed=seed)
        found.choose(topic(*[0] * 50), None, None, 1)
        assert found.choose(topic(0), None, None, 1) == 0


def test_the_users_function_decides_for_every_record_that_names_no_partition() -> None:
    asked: list[tuple[str, bytes | None, list[int]]] = []

    def by_user(name: str, key: bytes | None, partitions: Sequence[int]) -> int:
        asked.append((name, key, list(partitions)))
        return len(asked) % 2

    found, at = partitioner(by_user), topic(0, -1)
    assert [found.choose(at, key, None, 1) for key in (None, b"", b"k")] == [1, 0, 1]
    assert asked == [("t", key, [0, 1]) for key in (None, b"", b"k")]


@pytest.mark.parametrize("returned", [2, -1, None, "1", 1.0, True])
def test_what_the_users_function_returns_must_be_one_of_the_partitions(returned: Any) -> None:
    with pytest.raises(ValueError, match=rf"partitioner returned {returned!r} .* here 0 to 1"):
        partitioner(lambda *_: returned).choose(topic(0, 0), b"k", None, 1)


def test_the_users_function_may_ask_for_a_partition_itself_but_no_other_thread_beside_it() -> None:
    found, at, beside = partitioner(), topic(0, 0), list[bool]()

    def by_user(_: str, key: bytes | None, __: Sequence[int]) -> int:
        if key is not None:
            other = threading.Thread(target=lambda: beside.append(found._asking.acquire(blocking=False)))
            other.start()
            other.join()
            return found.choose(at, None, None, 1)
        return 1

    found._by_user = by_user
    assert found.choose(at, b"k", None, 1) == 1
    assert beside == [False]


@given(st.lists(KEYS, min_size=1, max_size=8), st.sampled_from([None, 0, 2]), st.booleans(), st.integers(0, 50))
def test_records_of_a_chunk_go_where_each_would_and_those_without_a_key_together(
    keys: Column, partition: int | None, asks: bool, seed: int
) -> None:
    at = topic(0, 0, 0)

    def by_user(_: str, key: bytes | None, __: Sequence[int]) -> int:
        return len(key or b"12") % 3

    given_chunk = chunk(keys)
    found = partitioner(by_user if asks else None, seed).spread(at, given_chunk, partition)
    pairs = {number: [*zip(*those, strict=True)] for number, those in found.items()}
    places = {value: number for number, those in pairs.items() for _, value in those}
    assert sorted(places, key=lambda each: each or b"") == given_chunk.values
    assert all([value for _, value in those] == sorted(value or b"" for _, value in those) for those in pairs.values())
    keyless = {places[value] for key, value in zip(keys, given_chunk.values, strict=True) if key is None}
    for key, value in zip(keys, given_chunk.values, strict=True):
        if partition is not None:
            assert places[value] == partition
        elif asks:
            assert places[value] == by_user("t", key, ())
        elif key is not None:
            assert places[value] == partition_for_key(key, 3)
    assert len(keyless) <= 1


@given(st.lists(st.tuples(KEYS, st.sampled_from([AS_ANY, AS_ANY, 0, 1, 2])), min_size=1, max_size=8), st.booleans())
def test_a_record_that_says_its_partition_goes_there_and_the_others_as_if_none_did(
    records: list[tuple[bytes | None, int]], asks: bool
) -> None:
    at, by_user = topic(0, 0, 0), (lambda _, key, __: len(key or b"12") % 3) if asks else None
    keys, own = [key for key, _ in records], [number for _, number in records]
    for partition in (None, 1):
        alone = partitioner(by_user).numbers(at, chunk(keys, [AS_ANY] * len(keys)), partition)
        found = partitioner(by_user).numbers(at, chunk(keys, own), partition)
        assert found == [said if said != AS_ANY else other for said, other in zip(own, alone, strict=True)]
        spread = partitioner(by_user).spread(at, chunk(keys), partition)
        assert {value: number for number, (_, values) in spread.items() for value in values} == dict(
            zip(chunk(keys).values, alone, strict=True)
        )


def test_a_chunk_of_records_without_a_key_counts_as_all_of_them_for_a_full_batch() -> None:
    found, at = partitioner(), topic(*[0] * 1000)
    full = chunk([None] * EMPTY_RECORDS)
    assert full.size >= BATCH
    assert len({place for _ in range(20) for place in found.spread(at, full, None)}) > 10
    own = chunk([None] * EMPTY_RECORDS, [AS_ANY] * EMPTY_RECORDS)
    assert len({place for _ in range(20) for place in found.numbers(at, own, None)}) > 10
