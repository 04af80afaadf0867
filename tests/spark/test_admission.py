"""How far a micro-batch goes, and into which parts it is cut."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from fencepost.protocol.types import TopicPartition
from fencepost.spark.admission import is_too_little, limited, split

PARTITIONS = st.builds(TopicPartition, st.sampled_from("ab"), st.integers(0, 3))
RANGES = st.dictionaries(PARTITIONS, st.tuples(st.integers(0, 50), st.integers(0, 50)), min_size=1)


@given(RANGES, st.integers(0, 200))
def test_a_limit_is_used_up_and_never_exceeded(ranges: dict[TopicPartition, tuple[int, int]], most: int) -> None:
    start = {at: begin for at, (begin, _) in ranges.items()}
    end = {at: begin + more for at, (begin, more) in ranges.items()}
    waiting = sum(more for _, more in ranges.values())
    found = limited(start, end, most)
    assert all(start[at] <= found[at] <= end[at] for at in ranges)
    assert sum(found[at] - start[at] for at in ranges) == min(waiting, most)


@given(RANGES, st.integers(1, 40), st.none() | st.integers(1, 60))
def test_parts_cover_everything_once_and_in_order(
    ranges: dict[TopicPartition, tuple[int, int]], pieces: int, most: int | None
) -> None:
    start = {at: begin for at, (begin, _) in ranges.items()}
    end = {at: begin + more for at, (begin, more) in ranges.items()}
    parts = split(start, end, pieces, most)
    assert most is None or all(high - low <= most for _, low, high in parts)
    covered = [(at, offset) for at, low, high in parts for offset in range(low, high)]
    assert covered == [(at, offset) for at in sorted(ranges) for offset in range(start[at], end[at])]
    assert len(parts) >= min(pieces, len(covered))
    assert split(start, end, 2**63 - 1) == [(at, offset, offset + 1) for at, offset in covered]


@given(RANGES, st.integers(1, 300), st.none() | st.integers(-5, 20))
def test_a_micro_batch_waits_for_enough_but_not_the_first_one_and_not_too_long(
    ranges: dict[TopicPartition, tuple[int, int]], least: int, waited: int | None
) -> None:
    start = {at: begin for at, (begin, _) in ranges.items()}
    end = {at: begin + more for at, (begin, more) in ranges.items()}
    waits = is_too_little(start, end, least, waited, 10)
    enough = sum(more for _, more in ranges.values()) >= least
    assert waits == (not enough and waited is not None and 0 <= waited < 10)
