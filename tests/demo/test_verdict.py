"""The demo's verdict can fail: each kind of damage is found, and named for what it is."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest
from demo.verdict import Verdict, compare, expect

COUNT = 2000
BATCHES = 4

Rows = list[dict[str, Any]]


@pytest.fixture
def departures() -> Rows:
    expected, _ = expect(COUNT)
    return [row | {"batch": number % BATCHES} for number, row in expected.items()]


@pytest.fixture
def delays(departures: Rows) -> Rows:
    counts: Counter[tuple[int, str]] = Counter()
    sums: Counter[tuple[int, str]] = Counter()
    for row in departures:
        key = row["batch"], row["carrier"]
        counts[key] += 1
        sums[key] += row["dep_delay"]
    return [
        {"batch": batch, "carrier": carrier, "departures": count, "delay": sums[batch, carrier]}
        for (batch, carrier), count in counts.items()
    ]


def broken(verdict: Verdict) -> list[str]:
    names = ("missing", "duplicated", "wrong", "torn", "wrong_sums", "open", "torn_transactions")
    assert verdict.holds == (not any(getattr(verdict, name) for name in names))
    return [name for name in names if getattr(verdict, name)]


def test_what_is_whole_holds(departures: Rows, delays: Rows) -> None:
    assert broken(compare(COUNT, departures, delays)) == []


def test_a_lost_departure_is_missing_and_its_batch_torn(departures: Rows, delays: Rows) -> None:
    assert broken(compare(COUNT, departures[1:], delays)) == ["missing", "torn"]


def test_a_doubled_departure_is_found(departures: Rows, delays: Rows) -> None:
    assert broken(compare(COUNT, [*departures, departures[5]], delays)) == ["duplicated", "torn"]


def test_a_batch_that_was_written_twice_is_duplicated_but_not_torn(departures: Rows, delays: Rows) -> None:
    again = [row for row in departures if row["batch"] == 1]
    sums = [row for row in delays if row["batch"] == 1]
    assert broken(compare(COUNT, departures + again, delays + sums)) == ["duplicated", "wrong_sums"]


def test_a_record_of_nobody_is_wrong(departures: Rows, delays: Rows) -> None:
    forged = {"id": -1, "carrier": "ZZ", "batch": 0}
    assert broken(compare(COUNT, [*departures, forged], delays)) == ["wrong", "torn"]


def test_other_contents_are_wrong(departures: Rows, delays: Rows) -> None:
    changed = [departures[0] | {"airline": "another"}, *departures[1:]]
    assert broken(compare(COUNT, changed, delays)) == ["wrong"]


def test_a_batch_of_which_only_one_topic_is_shown_is_torn(departures: Rows, delays: Rows) -> None:
    half = [row for row in delays if row["batch"] != 2]
    assert broken(compare(COUNT, departures, half)) == ["torn", "wrong_sums"]


@pytest.mark.parametrize("what", ["open", "torn_transactions"])
def test_what_an_audit_finds_amiss_counts(what: str, departures: Rows, delays: Rows) -> None:
    verdict = compare(COUNT, departures, delays)
    setattr(verdict, what, 1)
    assert broken(verdict) == [what]
