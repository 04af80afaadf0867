"""Producer ids are never given twice."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fencepost.coordinator.transaction import BlockProducerIds


class Store:
    """Hands out blocks; what it gave is never given again, whatever becomes of the answer."""

    def __init__(self) -> None:
        self.following = 0
        self.down = False

    def allocate(self, count: int) -> int | None:
        if self.down:
            return None
        self.following += count
        return self.following - count


def test_blocks_of_a_thousand() -> None:
    store = Store()
    ids = BlockProducerIds(store)
    assert store.following == 0
    assert [ids.next() for _ in range(1001)] == list(range(1001))
    assert store.following == 2000
    assert BlockProducerIds(store).next() == 2000


def test_a_store_that_is_down_gives_none_until_it_is_back() -> None:
    store = Store()
    ids = BlockProducerIds(store, 2)
    store.down = True
    assert ids.next() is None
    store.down = False
    assert [ids.next(), ids.next()] == [0, 1]
    store.down = True
    assert [ids.next(), ids.next()] == [None, None]
    store.down = False
    assert ids.next() == 2


def test_kafka_20031_a_block_that_overlaps_is_not_used() -> None:
    store = Store()
    ids = BlockProducerIds(store, 10)
    for _ in range(10):
        ids.next()
    store.following = 5
    with pytest.raises(AssertionError, match="begins after every id"):
        ids.next()


def test_kafka_19990_20058_20114_a_store_that_fails_is_asked_again() -> None:
    """An exception, or none to be had, is the trouble of one request: the next one asks anew, at once."""
    store = Store()
    ids = BlockProducerIds(store, 2)
    allocate = store.allocate

    def fail(count: int) -> int | None:  # noqa: ARG001
        raise OSError("the disk is away")

    given_ids = [ids.next(), ids.next()]
    for _ in range(3):
        store.allocate = fail  # type: ignore[method-assign]
        with pytest.raises(OSError, match="away"):
            ids.next()
        store.allocate = lambda count: None  # type: ignore[method-assign]  # noqa: ARG005
        assert ids.next() is None
        store.allocate = allocate  # type: ignore[method-assign]
        given_ids += [ids.next(), ids.next()]
    assert given_ids == list(range(8))


@given(st.lists(st.sampled_from(["first", "second", "restart", "down", "up"]), max_size=60), st.integers(1, 4))
def test_kafka_15552_no_id_is_given_twice_by_any_node(steps: list[str], block_size: int) -> None:
    store = Store()
    nodes = {"first": BlockProducerIds(store, block_size), "second": BlockProducerIds(store, block_size)}
    given_ids: list[int] = []
    for step in steps:
        if step in nodes:
            fresh = nodes[step].next()
            given_ids += [] if fresh is None else [fresh]
        elif step == "restart":
            nodes["first"] = BlockProducerIds(store, block_size)
        else:
            store.down = step == "down"
    assert len(set(given_ids)) == len(given_ids)
