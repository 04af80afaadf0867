"""A micro-batch was committed before only if its number and the positions of its sources say so."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fencepost.spark.committed import VERDICTS, End, Number, Verdict, end_of, judge
from fencepost.spark.progress import Progress

LAST = Progress("query", 5, [{"in": {"0": 10, "1": 20}}])


def batch(number: int, *offsets: Any, query: str = "query") -> Progress:
    return Progress.of(query, number, offsets)


@pytest.mark.parametrize(
    ("number", "positions", "verdict"),
    [
        (5, {"0": 10, "1": 20}, Verdict.SKIP),
        (5, {"0": 9, "1": 20}, Verdict.REFUSE),
        (5, {"0": 11, "1": 20}, Verdict.REFUSE),
        (5, {"0": 10, "1": 20, "2": 0}, Verdict.REFUSE),
        (4, {"0": 10, "1": 20}, Verdict.SKIP),
        (4, {"0": 8, "1": 20}, Verdict.SKIP),
        (4, {"0": 8}, Verdict.SKIP),
        (4, {"0": 8, "1": 21}, Verdict.REFUSE),
        (4, {"0": 8, "1": 20, "2": 1}, Verdict.REFUSE),
        (4, {"0": 8, "1": 20, "2": 0}, Verdict.SKIP),
        (6, {"0": 12, "1": 20}, Verdict.WRITE),
        (6, {"0": 10, "1": 20}, Verdict.WRITE),
    ],
)
def test_number_and_positions_decide(number: int, positions: dict[str, int], verdict: Verdict) -> None:
    judgement = judge("orders", LAST, batch(number, {"in": positions}), new_query=False)
    assert judgement.verdict is verdict
    if verdict is Verdict.REFUSE:
        for needed in ("'orders'", '{"in":{"0":10,"1":20}}', "older copy", "new application_id", "startingOffsets"):
            assert needed in judgement.reason


def test_another_query_is_refused_unless_it_is_meant() -> None:
    other = batch(0, {"in": {"0": 1}}, query="another")
    assert "belongs to another query" in judge("orders", LAST, other, new_query=False).reason
    assert judge("orders", LAST, other, new_query=True).verdict is Verdict.WRITE
    assert judge("orders", LAST, batch(5), new_query=True).verdict is Verdict.SKIP


def test_the_first_batch_of_an_application_is_written() -> None:
    assert judge("orders", None, batch(0), new_query=False).verdict is Verdict.WRITE
    assert judge("orders", None, batch(7, {"in": {"0": 1}}), new_query=False).verdict is Verdict.WRITE


def test_every_cell_of_the_table_is_filled() -> None:
    assert set(VERDICTS) == {(number, end) for number in Number for end in End}


@pytest.mark.parametrize(
    ("offsets", "last", "found"),
    [
        ([], [{"in": {"0": 1}}], End.UNKNOWN),
        ([{"in": {"0": 1}}], [], End.UNKNOWN),
        ([None], [{"in": {"0": 1}}], End.WITHIN),
        ([{"in": {"0": 1}}], [None], End.BEYOND),
        ([3], [4], End.WITHIN),
        ([5], [4], End.BEYOND),
        ([4, 4], [4], End.BEYOND),
        ([{"in": {"0": 1}, "more": {"0": 0}}], [{"in": {"0": 2}}], End.WITHIN),
        ([{"at": "2026-01-01"}], [{"at": "2026-01-02"}], End.BEYOND),
        ([{"at": "2026-01-01", "n": 1}], [{"at": "2026-01-01", "n": 2}], End.WITHIN),
        ([True], [2], End.BEYOND),
    ],
)
def test_ends_of_sources_of_any_kind(offsets: list[Any], last: list[Any], found: End) -> None:
    assert end_of(offsets, last) is found


POSITIONS = st.dictionaries(st.sampled_from("012"), st.integers(0, 3), min_size=1)


@given(POSITIONS, POSITIONS)
def test_within_means_that_no_partition_is_ahead(here: dict[str, int], there: dict[str, int]) -> None:
    ahead = any(offset > there.get(name, 0) for name, offset in here.items())
    expected = End.EQUAL if here == there else End.BEYOND if ahead else End.WITHIN
    assert end_of([{"in": here}], [{"in": there}]) is expected
