"""Which batch of a partition goes out next, and what becomes of those behind one that failed."""

from __future__ import annotations

from itertools import pairwise, product

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fencepost.client.batches import Batch
from fencepost.client.lanes import MOST_IN_FLIGHT, Lane, Next, portions, what_goes_next
from fencepost.protocol.batch import MAX_INT32, read_header
from fencepost.protocol.compression import Compression
from fencepost.protocol.types import ProducerIdAndEpoch, TopicPartition

FIRST, SECOND = ProducerIdAndEpoch.of(7, 0), ProducerIdAndEpoch.of(7, 1)
STATES = [state for length in range(MOST_IN_FLIGHT + 2) for state in product((True, False), repeat=length)]


@pytest.mark.parametrize("most", range(1, MOST_IN_FLIGHT + 1))
@pytest.mark.parametrize("same_producer", [True, False])
def test_what_goes_out_next_is_next_in_order_and_known_again(most: int, same_producer: bool) -> None:
    """In every state: what is on the wire are the first batches afterwards, no more than the broker remembers."""
    for on_wire in STATES:
        following = what_goes_next(on_wire, most, same_producer=same_producer)
        if following is Next.NOTHING:
            gap = False in on_wire and any(on_wire[on_wire.index(False) :])
            assert gap or sum(on_wire) >= most or (all(on_wire) and on_wire and not same_producer), on_wire
            continue
        sent = list(on_wire) if following is Next.AGAIN else [*on_wire, False]
        place = sent.index(False)
        assert (following is Next.AGAIN) == (False in on_wire), on_wire
        sent[place] = True
        assert sent == [True] * (place + 1) + [False] * (len(sent) - place - 1), on_wire
        assert place < most
        assert following is Next.AGAIN or same_producer or not on_wire


def batch_of(count: int) -> Batch:
    batch = Batch(TopicPartition("t", 0), Compression.NONE, 0.0)
    for _ in range(count):
        batch.builder.append(0, None, b"v")
    return batch


def lane_with(*counts: int) -> Lane:
    lane = Lane(TopicPartition("t", 0))
    lane.queue.extend(batch_of(count) for count in counts)
    return lane


def sequences(lane: Lane) -> list[int]:
    return [read_header(batch.data or b"").base_sequence for batch in lane.in_flight]


@given(
    counts=st.lists(st.integers(1, 4), min_size=2, max_size=MOST_IN_FLIGHT), start=st.integers(MAX_INT32 - 9, MAX_INT32)
)
def test_sequences_follow_each_other_whatever_is_sent_again(counts: list[int], start: int) -> None:
    lane = lane_with(*counts)
    lane.producer_id_and_epoch, lane.next_sequence, lane.is_known = FIRST, start, True
    for _ in counts:
        assert lane.next(FIRST, MOST_IN_FLIGHT) is Next.NEW
        lane.take(FIRST, None, False)
    expected = [(start + sum(counts[:n])) % (MAX_INT32 + 1) for n in range(len(counts))]
    assert sequences(lane) == expected
    for batch in lane.in_flight:
        batch.on_wire = False
    again = list(lane.in_flight)
    for number, batch in enumerate(again):
        assert lane.next(FIRST, MOST_IN_FLIGHT) is Next.AGAIN
        assert lane.take(FIRST, None, False) is batch
        assert lane.next(FIRST, MOST_IN_FLIGHT) is Next.NOTHING, "it goes alone"
        assert sequences(lane) == expected[number:]
        lane.acknowledged(batch)
    assert lane.next_sequence == (start + sum(counts)) % (MAX_INT32 + 1)


def test_the_first_batch_of_an_identity_goes_alone() -> None:
    """A leader that knows nothing of a producer takes any sequence: the second batch must not be the first there."""
    lane = lane_with(1, 1, 1)
    first = lane.take(FIRST, None, False)
    assert lane.next(FIRST, MOST_IN_FLIGHT) is Next.NOTHING
    lane.acknowledged(first)
    second = lane.take(FIRST, None, False)
    assert lane.next(FIRST, MOST_IN_FLIGHT) is Next.NEW
    assert lane.next(SECOND, MOST_IN_FLIGHT) is Next.NOTHING, "the next epoch waits for the end of this one"
    lane.acknowledged(second)
    third = lane.take(SECOND, None, False)
    assert (third.producer_id_and_epoch, third.base_sequence, lane.is_known) == (SECOND, 0, False)


@pytest.mark.parametrize(("before", "is_known"), [(0, False), (1, True), (MAX_INT32, True)])
def test_where_others_have_written_several_go_at_once_from_the_first_on(before: int, is_known: bool) -> None:
    """The leader has what comes before, and takes no other number; where nothing does, the first one goes alone."""
    lane = lane_with()
    lane.go_on(FIRST, before)
    lane.queue.extend([batch_of(1), batch_of(1)])
    lane.take(FIRST, None, False)
    assert lane.next(FIRST, MOST_IN_FLIGHT) is (Next.NEW if is_known else Next.NOTHING)
    assert sequences(lane) == [before]


def test_what_was_known_is_not_where_nothing_was_written_under_this_epoch() -> None:
    lane = lane_with(1)
    lane.acknowledged(lane.take(FIRST, None, False))
    lane.go_on(SECOND, 0)
    lane.queue.extend([batch_of(1), batch_of(1)])
    lane.take(SECOND, None, False)
    assert lane.next(SECOND, MOST_IN_FLIGHT) is Next.NOTHING


def test_only_one_connection_is_used_at_a_time() -> None:
    lane, here, there = lane_with(1, 1), object(), object()
    assert lane.may_use(here)
    batch = lane.take(FIRST, here, False)
    assert lane.may_use(here) and not lane.may_use(there)
    batch.on_wire = False
    assert lane.may_use(there)


@pytest.mark.parametrize("place", range(4))
@pytest.mark.parametrize(("is_spent", "others_fail"), [(True, True), (False, True), (False, False)])
def test_what_is_behind_a_failed_batch_fails_unless_that_failed_by_itself(
    place: int, is_spent: bool, others_fail: bool
) -> None:
    """Then it gets new numbers, if it was refused at every try."""
    lane = lane_with(1, 2, 3, 4)
    lane.producer_id_and_epoch, lane.is_known = FIRST, True
    batches = [lane.take(FIRST, None, False) for _ in range(4)]
    failed, behind = batches[place], batches[place + 1 :]
    failed.on_wire = False
    assert lane.give_up(failed, is_spent=is_spent, others_fail=others_fail) == (is_spent or bool(behind))
    assert [batch.is_stranded for batch in batches] == [n > place for n in range(4)]
    if behind:
        assert lane.take_stranded() == [], "they are on the wire"
        assert lane.next(FIRST, MOST_IN_FLIGHT) is Next.NOTHING
        assert lane.next_sequence == 10
    elif not is_spent:
        assert lane.next_sequence == failed.base_sequence
    for batch in behind:
        batch.on_wire = False
    for batch in behind[1:2]:
        batch.in_doubt = True
    failing = behind if others_fail else behind[1:2]
    assert lane.take_stranded() == failing
    assert list(lane.queue) == [batch for batch in behind if batch not in failing]
    assert list(lane.in_flight) == batches[:place]
    assert all(batch.data is None and not batch.is_stranded for batch in lane.queue)


@pytest.mark.parametrize("first", [True, False])
@pytest.mark.parametrize("second", [True, False])
def test_what_fails_with_one_before_it_fails_whatever_comes_of_the_others(first: bool, second: bool) -> None:
    """Also where what comes of it is that it is split."""
    lane = lane_with(1, 1, 2)
    lane.producer_id_and_epoch, lane.is_known = FIRST, True
    batches = [lane.take(FIRST, None, False) for _ in range(3)]
    for failed, others_fail in zip(batches, (first, second), strict=False):
        failed.on_wire = False
        lane.give_up(failed, is_spent=False, others_fail=others_fail)
    batches[2].futures, batches[2].on_wire = [None] * 2, False  # type: ignore[list-item]
    halves = lane.split(batches[2], False)
    assert lane.take_stranded() == (halves if first or second else [])
    assert list(lane.queue) == ([] if first or second else halves)


@given(
    counts=st.lists(st.integers(2, 9), min_size=1, max_size=4),
    place=st.integers(0, 3),
    start=st.one_of(st.just(0), st.integers(MAX_INT32 - 20, MAX_INT32)),
)
def test_halves_stand_in_the_place_of_their_batch_and_have_its_numbers(
    counts: list[int], place: int, start: int
) -> None:
    lane = lane_with()
    for count in counts:
        batch = batch_of(count)
        batch.futures = [None] * count  # type: ignore[list-item]
        lane.queue.append(batch)
    lane.is_known, lane.producer_id_and_epoch, lane.next_sequence = True, FIRST, start
    batches = [lane.take(FIRST, None, False) for _ in counts]
    split = batches[place % len(batches)]
    halves = lane.split(split, False)
    assert [batch.builder.count for batch in halves] == [split.builder.count // 2, (split.builder.count + 1) // 2]
    found = list(lane.in_flight)
    assert found == [each for batch in batches for each in (halves if batch is split else [batch])]
    numbers = [batch.base_sequence for batch in found]
    before = [sum(batch.builder.count for batch in found[:n]) for n in range(len(found))]
    assert numbers == [(start + count) % (MAX_INT32 + 1) for count in before]
    assert lane.next_sequence == (start + sum(counts)) % (MAX_INT32 + 1)


@given(sizes=st.lists(st.integers(1, 40), max_size=12), room=st.integers(1, 4))
def test_portions_have_every_lane_once_in_order_and_as_many_as_there_is_room_for(sizes: list[int], room: int) -> None:
    """One in any case, however large it is."""
    lanes, largest = [lane_with(size) for size in sizes], room * batch_of(10).builder.size
    found = list(portions(lanes, largest))
    assert [lane for portion in found for lane in portion] == lanes
    assert all(found)
    weights = [[lane.upcoming().builder.size for lane in portion] for portion in found]
    assert all(len(each) == 1 or sum(each) <= largest for each in weights)
    assert all(sum(each) + following[0] > largest for each, following in pairwise(weights))


def test_a_pause_is_over_when_something_is_sent() -> None:
    """Whatever has to be sent again after that has a pause of its own."""
    lane = lane_with(1, 1)
    batch = lane.take(FIRST, None, False)
    batch.on_wire, lane.retry_at = False, 5.0
    assert lane.take(FIRST, None, False) is batch
    assert lane.retry_at is None
