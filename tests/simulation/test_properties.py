"""Sentences of checkers are told apart by what they say, not by whom they name."""

from __future__ import annotations

import json
from itertools import pairwise
from pathlib import Path

import pytest

from fencepost.simulation.properties import property_of, time_of

ALIKE = (
    ("producer-1-6-0 of the committed transaction producer-1-6 is lost",
     "producer-0-17-3 of the committed transaction producer-0-17 is lost"),
    ("producer-1-12 took 11 ms, and is told that its time was up",
     "producer-3-4 took 9 ms, and is told that its time was up"),
    ("a transaction hangs: not read to {left-0: 3}", "a transaction hangs: not read to {left-0: 77}"),
    ("0.038815 an answer left at lsn 16, it tells of 18: ProduceResponse v11: (responses=[3])",
     "1.200000 an answer left at lsn 5, it tells of 7: EndTxnResponse v4: ()"),
    ("the group producer-0 is at 10, it should be at 5", "the group producer-2 is at None, it should be at 5"),
)  # fmt: skip


@pytest.mark.parametrize(("one", "other"), ALIKE)
def test_another_name_or_number_is_the_same_property(one: str, other: str) -> None:
    assert property_of(one) == property_of(other)


def test_other_words_are_another_property() -> None:
    assert all(property_of(one) != property_of(other) for (one, _), (other, _) in pairwise(ALIKE))


@pytest.mark.parametrize(
    ("sentence", "failed"),
    [
        (ALIKE[0][0], "_ of the committed transaction _ is lost"),
        (ALIKE[3][0], "an answer left at lsn _, it tells of _"),
        ("any-id-1 stays PrepareAbort", "_ stays PrepareAbort"),
        ("the run ended with Violation: 0.127 an answer", "the run ended with Violation"),
    ],
)
def test_it_can_be_read(sentence: str, failed: str) -> None:
    assert property_of(sentence) == failed


def test_a_violation_says_when_it_was_seen() -> None:
    assert time_of(ALIKE[3][0]) == 0.038815
    assert time_of(f"the run ended with Violation: {ALIKE[3][0]}") == 0.038815
    assert time_of(ALIKE[0][0]) is None


def test_what_finds_the_bugs_on_purpose_has_few_properties() -> None:
    """They would be as many as the bugs if something that differs from run to run were left in.

    What a test found is named by that test, and is no property.
    """
    lines = Path(__file__).with_name("bugs_found.jsonl").read_text().splitlines()
    sentences = [found for line in lines if (found := json.loads(line)["found"])]
    sentences = [sentence for sentence in sentences if not sentence.startswith("tests/")]
    assert len(sentences) > 40
    assert len({property_of(sentence) for sentence in sentences}) < len(sentences) * 0.6
