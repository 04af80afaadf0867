"""Positions in commit order, as a group keeps them and where they lead."""

from __future__ import annotations

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from fencepost.client.commit_order.position import Position, after, behind_what_is_gone, position_of
from fencepost.client.errors import PositionMetadataError
from fencepost.client.transactional_id import OffsetAndMetadata
from fencepost.protocol.types import Offset, TopicPartition

AT = TopicPartition("t", 0)
LARGEST = 2**63 - 1


@st.composite
def positions(draw: st.DrawFn, most: int = LARGEST) -> Position:
    delivered = draw(st.integers(0, most) | st.integers(0, 20))
    start = draw(st.integers(0, delivered) | st.just(delivered))
    inside = draw(st.integers(start, delivered - 1)) if start < delivered and draw(st.booleans()) else -1
    return Position(start, delivered, inside)


@pytest.mark.promise("2014.offset-pair", "2014.inside-transaction")
@given(positions())
@example(Position(0, 1, 0))
def test_what_is_committed_is_read_back(position: Position) -> None:
    committed = position.committed()
    assert committed.offset == position.start and len(committed.metadata) <= 54
    assert position_of(AT, committed) == position


@pytest.mark.parametrize(
    ("metadata", "said"),
    [
        ("host-7", "not written by a consumer"),
        ("commit-order/1", "not written"),
        ("commit-order/1 ", "not written"),
        ("commit-order/1 12x", "not written"),
        ("commit-order/1 12 ", "not written"),
        (" commit-order/1 12", "not written"),
        ("commit-order/1  12", "not written"),
        ("commit-order/1 012", "not written"),
        ("commit-order/1 +12", "not written"),
        ("commit-order/1 -1", "not written"),
        ("commit-order/1 12 11 10", "not written"),
        ("commit-order/1 12\n", "not written"),
        ("commit-order/1 ١٢", "not written"),
        ("commit-order/01 12", "not written"),
        ("commit-order/1 9", "contradicts"),
        ("commit-order/1 10", "contradicts"),
        ("commit-order/1 12 12", "contradicts"),
        ("commit-order/1 12 9", "contradicts"),
        ("commit-order/1 10 10", "contradicts"),
        ("commit-order/1 9223372036854775808", "contradicts"),
        ("commit-order/2 12", "version 2"),
        ("commit-order/17 anything\nelse", "version 17"),
        ("x" * 5000, "not written"),
    ],
)
def test_foreign_and_damaged_metadata_is_refused_and_says_what_to_do(metadata: str, said: str) -> None:
    with pytest.raises(PositionMetadataError, match=said) as raised:
        position_of(AT, OffsetAndMetadata(10, metadata))
    assert "t-0" in str(raised.value) and "seek()" in str(raised.value) and len(str(raised.value)) < 500


@given(st.integers(0, 30), st.text("commit-order/1 2790", max_size=24))
def test_whatever_is_understood_is_what_would_be_written(offset: int, metadata: str) -> None:
    committed = OffsetAndMetadata(offset, metadata)
    try:
        found = position_of(AT, committed)
    except PositionMetadataError:
        return
    assert found.committed() == committed


#: All that there are, by what is delivered.
EVERY = [
    [Position(delivered, delivered)]
    + [Position(start, delivered) for start in range(delivered)]
    + [Position(start, delivered, inside) for start in range(delivered) for inside in range(start, delivered)]
    for delivered in range(7)
]


@pytest.mark.parametrize("log_start", range(8))
def test_behind_what_is_gone_nothing_undelivered_is_passed_over_and_nothing_is_doubled(
    log_start: int,
) -> None:
    for delivered in range(7):
        for position in EVERY[delivered]:
            found = behind_what_is_gone(position, log_start)
            if log_start <= position.start or log_start > delivered:
                assert found is None
                continue
            assert found is not None
            assert found.start == log_start and found.delivered == delivered
            still_there = [offset for offset in range(log_start, delivered) if offset > position.inside]
            assert [offset for offset in range(log_start, delivered) if offset > found.inside] == still_there
            assert position_of(AT, found.committed()) == found


@given(st.integers(0, 20), st.integers(0, 20))
def test_from_now_on_begins_where_the_oldest_open_transaction_does(stable: int, end: int) -> None:
    found = after(Offset(stable), Offset(end))
    assert found == Position(min(stable, end), end)
    assert position_of(AT, found.committed()) == found


@pytest.mark.parametrize(
    ("position", "log_start", "found"),
    [
        (Position(0, 10, 5), 3, Position(3, 10, 5)),
        (Position(0, 10, 5), 5, Position(5, 10, 5)),
        (Position(0, 10, 5), 6, Position(6, 10)),
        (Position(0, 10), 3, Position(3, 10)),
        (Position(0, 10, 5), 10, Position(10, 10)),
        (Position(0, 10, 5), 11, None),
        (Position(3, 10, 5), 3, None),
    ],
)
def test_what_was_delivered_of_a_transaction_is_known_as_long_as_it_is_there(
    position: Position, log_start: int, found: Position | None
) -> None:
    assert behind_what_is_gone(position, log_start) == found
