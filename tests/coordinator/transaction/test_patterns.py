"""Patterns for transactional ids: RE2's expressions for the whole id, at a bounded cost."""

from __future__ import annotations

import re

import pytest
import re2
from hypothesis import given
from hypothesis import strategies as st

from fencepost.coordinator.transaction import patterns
from fencepost.coordinator.transaction.listing import Filters, Listed, select
from fencepost.coordinator.transaction.patterns import LONGEST_PATTERN, BadPattern, Pattern
from fencepost.coordinator.transaction.state import State
from fencepost.coordinator.transaction.transaction import TransactionMetadata
from fencepost.protocol.errors import ErrorCode
from fencepost.protocol.steps import STEP, Pace, finish
from fencepost.protocol.types import Lsn, Milliseconds, ProducerId


def matches(pattern: str, text: str) -> bool:
    return finish(Pattern(pattern).matches(text, Pace()))


@pytest.mark.parametrize(
    ("pattern", "text", "expected"),
    [
        ("orders", "orders-1", False),
        ("orders.*", "orders-1", True),
        ("a|ab", "ab", True),
        (r"\Qa+b\E.*", "a+b1", True),
        ("(?P<name>a)b", "ab", True),
        ("(?<name>a)b", "ab", True),
        (r"\p{L}+", "éà", True),
        ("[[:alpha:]]+", "abc", True),
        ("é.", "éx", True),
        ("^a$", "a", True),
        ("a.b", "a\nb", False),
        ("(?s)a.b", "a\nb", True),
        ("(?i)A", "a", True),
        ("a", "a\n", False),
        ("", "", True),
        ("", "a", False),
    ],
)
def test_a_pattern_is_for_the_whole_text(pattern: str, text: str, expected: bool) -> None:
    assert matches(pattern, text) is expected


@pytest.mark.filterwarnings("ignore::FutureWarning")
@given(st.from_regex(r"[ab.*+?|()\[\]^]{0,12}", fullmatch=True), st.text("ab", max_size=8))
def test_what_python_says_too(pattern: str, text: str) -> None:
    try:
        expected = re.compile(pattern).fullmatch(text)
    except re.error:
        return
    try:
        assert matches(pattern, text) is (expected is not None)
    except BadPattern:
        pass


@given(st.text(max_size=60))
def test_any_text_is_a_pattern_or_a_bad_one(pattern: str) -> None:
    try:
        matches(pattern, "orders")
    except BadPattern:
        pass


@pytest.mark.parametrize(
    "pattern",
    ["(", "[a", "*", "a(?=b)", r"(a)\1", r"\pL{1000}", "a{1001}", "(a{100}){100}", "x" * (LONGEST_PATTERN + 1)],
)
def test_what_is_no_expression_or_too_large(pattern: str) -> None:
    with pytest.raises(BadPattern):
        Pattern(pattern)


def test_nobody_remembers_the_patterns_of_clients() -> None:
    matches("orders-[0-9]+", "orders-1")
    assert re2._Regexp._make.cache_info().currsize == 0
    with pytest.raises(BadPattern):
        Pattern("(")
    assert re2._Regexp._make.cache_info().currsize == 0


def test_a_pattern_that_stops_a_backtracking_engine_for_years_is_tried() -> None:
    for pattern in ("(a+)+b", "(a|a)*b", "(a*)*b", "(x*y*z*)*" * 100):
        assert not matches(pattern, "a" * 2000)


def test_a_long_text_is_tried_in_another_thread() -> None:
    steps = Pattern("(x*y*z*)*" * 100).matches("x" * 10_000, Pace())
    work = next(steps)
    assert work is not None
    with pytest.raises(StopIteration) as done:
        steps.send(work())
    assert done.value.value is True


def transaction(name: str) -> TransactionMetadata:
    return TransactionMetadata(name, ProducerId(7))


def test_a_list_is_made_in_steps() -> None:
    many = [(transaction(f"orders-{n}"), Lsn(n)) for n in range(5 * STEP)]
    for pattern, found, least in (("", 5 * STEP, 4), ("orders-1.*", 11111, 5), ("nothing", 0, 5)):
        pauses = 0
        steps = select(many, Filters(pattern=pattern), Milliseconds(0), Pace())
        try:
            while True:
                assert next(steps) is None
                pauses += 1
        except StopIteration as done:
            listing = done.value
        assert (listing.error, len(listing.transactions), listing.lsn) == (ErrorCode.NONE, found, 5 * STEP - 1)
        assert least <= pauses <= 1000
        assert all(type(each) is Listed for each in listing.transactions)


def test_the_cost_of_a_pattern_counts(monkeypatch: pytest.MonkeyPatch) -> None:
    tried: list[int] = []
    monkeypatch.setattr(patterns, "_LONG", 10**9)
    pace = Pace()
    for pattern in ("a", "(x*y*z*)*" * 100):
        pace.left = 0
        finish(Pattern(pattern).matches("x" * 30, pace))
        tried.append(-pace.left)
    assert tried[1] > 100 * max(tried[0], 1)


@pytest.mark.parametrize("asked", [(), ("Dead",), ("Empty", "Dead")])
def test_an_id_that_was_forgotten_is_not_listed(asked: tuple[str, ...]) -> None:
    """Its record may still be there."""
    kept = [(transaction("there"), Lsn(1)), (transaction("gone")._replace(state=State.DEAD), Lsn(2))]
    found = finish(select(kept, Filters(asked), Milliseconds(0), Pace()))
    assert [each.transactional_id for each in found.transactions] == (["there"] if asked != ("Dead",) else [])
