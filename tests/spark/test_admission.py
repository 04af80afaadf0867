"""How far a micro-batch goes, and into which parts it is cut."""

from __future__ import annotations

from hypothesis import example, given
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
    if waiting > most:
        shares = {at: more * most // waiting for at, (_, more) in ranges.items()}
        over = {at: found[at] - start[at] - share for at, share in shares.items()}
        assert set(over.values()) <= {0, 1}, "as much of each as there is of it"
        left = {at: more - shares[at] for at, (_, more) in ranges.items()}
        assert min((left[at] for at in over if over[at]), default=0) >= max(
            (left[at] for at in over if not over[at] and any(over.values())), default=0
        ), "and what cannot be shared is of those that have most left"


@example({TopicPartition("a", 0): (0, 48), TopicPartition("a", 1): (0, 1), TopicPartition("a", 2): (0, 1)}, 3, None)
@example({TopicPartition("a", 0): (0, 48), TopicPartition("a", 1): (0, 1), TopicPartition("b", 0): (0, 1)}, 1, None)
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
    if most is None:
        sizes = [more for _, more in ranges.values() if more]
        assert len(parts) == max(len(sizes), min(pieces, len(covered))), "no more than are asked for"
        largest = max((high - low for _, low, high in parts), default=0)
        assert largest <= 1 or sum(-(-size // (largest - 1)) for size in sizes) > len(parts), "none needs be smaller"
    assert split(start, end, 2**63 - 1) == [(at, offset, offset + 1) for at, offset in covered]


@given(RANGES)
def test_a_micro_batch_waits_for_enough_but_not_the_first_one_and_not_too_long(
    ranges: dict[TopicPartition, tuple[int, int]],
) -> None:
    start = {at: begin for at, (begin, _) in ranges.items()}
    end = {at: begin + more for at, (begin, more) in ranges.items()}
    total = sum(more for _, more in ranges.values())
    for missing in (-1, 0, 1, 100):
        for waited, may_wait in ((None, False), (-1, False), (0, True), (9, True), (10, False), (20, False)):
            assert is_too_little(start, end, total + missing, waited, 10) == (missing > 0 and may_wait)
