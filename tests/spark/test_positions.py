"""Positions are read as they were written, and what is gone of them is named."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fencepost.protocol.types import TopicPartition
from fencepost.spark.losses import behind, in_doubt, refusal, remaining
from fencepost.spark.positions import Positions

TOPICS = st.sampled_from(["a", "b"])
OFFSETS = st.dictionaries(st.builds(TopicPartition, TOPICS, st.integers(0, 2)), st.integers(0, 4))
IDS = st.dictionaries(TOPICS, st.sampled_from(["one", "two"]))
PLAIN = st.builds(lambda *fields: Positions(*fields), OFFSETS, st.sampled_from(["", "cluster"]), IDS)
POSITIONS = st.builds(lambda here, began: here._replace(began=began), PLAIN, st.none() | PLAIN)


@given(POSITIONS)
def test_they_are_read_as_they_were_written(positions: Positions) -> None:
    text = json.dumps(positions.encode())
    assert Positions.decode(json.loads(text)) == positions
    assert json.dumps(Positions.decode(json.loads(text)).encode()) == text


def test_offsets_are_those_of_sparks_own_source() -> None:
    offsets = {TopicPartition("a", 11): 7, TopicPartition("a", 0): 5, TopicPartition("b", 2): -2}
    assert Positions(offsets).encode() == {"a": {"0": 5, "11": 7}, "b": {"2": -2}}
    assert Positions.decode({"a": {"0": 5}}) == Positions({TopicPartition("a", 0): 5})
    assert Positions.decode(None) == Positions({})


@pytest.mark.parametrize("fields", [{"a": {"0": 5.9}}, {"a": {"0": True}}, {"a": {"0": "5"}}, {"a": {"0": 1, "00": 2}}])
def test_what_is_no_offset_is_not_taken_for_one(fields: Any) -> None:
    with pytest.raises(ValueError, match="which is no offset, or there twice"):
        Positions.decode(fields)


@pytest.mark.parametrize("number", ["-1", "+1", "1_0", " 5", "\u0663", "x", "", "2147483648"])
def test_what_is_no_partition_is_not_taken_for_one(number: str) -> None:
    with pytest.raises(ValueError, match="is no partition"):
        Positions.decode({"a": {number: 1}})


def test_the_largest_numbers_are_those_of_the_protocol() -> None:
    most = {"a": {"2147483647": 2**63 - 1}}
    assert Positions.decode(most).offsets == {TopicPartition("a", 2**31 - 1): 2**63 - 1}
    with pytest.raises(ValueError, match="which is no offset"):
        Positions.decode({"a": {"0": 2**63}})


@pytest.mark.parametrize(
    ("here", "there", "is_another"),
    [("one", "two", True), ("one", "one", False), (None, "two", False), ("one", None, False), (None, None, False)],
)
def test_a_topic_is_another_one_only_where_both_ids_are_known(
    here: str | None, there: str | None, is_another: bool
) -> None:
    assert at({}, here).is_in_another_topic("in", at({}, there)) is is_another


def at(offsets: Mapping[int, int], topic_id: str | None = "one") -> Positions:
    ids = {} if topic_id is None else {"in": topic_id}
    return Positions({TopicPartition("in", number): offset for number, offset in offsets.items()}, "ours", ids)


@pytest.mark.parametrize(
    ("ends", "named", "left"),
    [
        (at({0: 5, 1: 9}), None, {0: 5, 1: 5}),
        (at({0: 7}), None, {0: 5, 1: 5}),
        (at({0: 9, 1: 9}, None), None, {0: 5, 1: 5}),
        (at({0: 3, 1: 9}), "in-0 was to be read from offset 5, but ends at 3", {0: 3, 1: 5}),
        (at({0: 3, 1: 9}, None), "in-0 was to be read from offset 5, but ends at 3", {0: 3, 1: 5}),
        (at({0: 9, 1: 9}, "two"), "topic 'in' was deleted and made anew", {}),
        (at({0: 3, 1: 3}, "two"), "topic 'in' was deleted and made anew", {}),
    ],
)
def test_what_is_lost_is_named_and_what_is_left_goes_on(
    ends: Positions, named: str | None, left: dict[int, int]
) -> None:
    known = at({0: 5, 1: 5})
    lost = refusal(known, ends)
    assert (lost is None) == (named is None)
    if named is not None:
        assert named in str(lost) and "failOnDataLoss" in str(lost)
    assert remaining(known, ends).offsets == at(left).offsets


@given(POSITIONS, PLAIN)
def test_what_is_left_is_no_loss(known: Positions, ends: Positions) -> None:
    left = remaining(known, ends)
    assert refusal(left, ends) is None
    assert remaining(left, ends) == left
    if refusal(known, ends) is None:
        assert left.offsets == known.offsets


@pytest.mark.parametrize(
    ("pattern", "named"),
    [("in|deleted", "topic 'deleted' was deleted"), (".*", "topic 'deleted' was deleted"), ("in", None), (None, None)],
)
def test_a_topic_that_a_pattern_would_find_was_deleted_if_it_is_not_there(
    pattern: str | None, named: str | None
) -> None:
    """A topic that the query does not ask for any more is its own affair."""
    known = at({0: 5, 1: 5})
    more = known._replace(offsets={**known.offsets, TopicPartition("deleted", 0): 3})
    lost = refusal(more, known, pattern)
    assert (lost is None) == (named is None)
    assert named is None or named in str(lost)
    assert refusal(known, more, pattern) is None


A, B = TopicPartition("a", 0), TopicPartition("b", 0)


def test_positions_alone_are_without_what_only_the_end_of_a_micro_batch_has() -> None:
    whole = Positions({A: 3}, "c", {"a": "id"}, Positions({A: 1}), {A: 1}, {A: 7})
    assert whole.alone == Positions({A: 3}, "c", {"a": "id"}, None, {}, {A: 7})


def test_of_a_topic_that_was_made_anew_nothing_is_behind_and_of_no_position_is_an_epoch_in_doubt() -> None:
    known = Positions({A: 10, B: 10}, topic_ids={"a": "1", "b": "2"}, epochs={A: 3, B: 3})
    ends = Positions({A: 5, B: 5}, topic_ids={"a": "another", "b": "2"}, epochs={A: 4, B: 4})
    assert behind(known, ends) == {B: 5}
    assert in_doubt(known, ends) == {B: 3}
    assert in_doubt(known._replace(offsets={A: 10}), ends) == {}
    assert in_doubt(known, ends._replace(epochs=known.epochs)) == {}
