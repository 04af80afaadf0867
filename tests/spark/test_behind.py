"""Offsets behind latest, as Spark's own source counts them, from what Spark reports of a query."""

from __future__ import annotations

import json
from statistics import mean
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fencepost.protocol.types import TopicPartition
from fencepost.spark.behind import Behind, offsets_behind_latest
from fencepost.spark.positions import Positions

PARTITIONS = st.builds(TopicPartition, st.sampled_from("ab"), st.integers(0, 3))


def progress(*sources: tuple[Positions | None, Positions | None], as_text: bool = True) -> dict[str, Any]:
    def said(positions: Positions | None) -> Any:
        fields = None if positions is None else positions.encode()
        return json.dumps(fields) if as_text else fields

    return {"sources": [{"endOffset": said(read), "latestOffset": said(latest)} for read, latest in sources]}


@given(st.dictionaries(PARTITIONS, st.tuples(st.integers(0, 50), st.integers(0, 50)), min_size=1), st.booleans())
def test_the_most_the_mean_and_the_least_of_all_partitions(
    ranges: dict[TopicPartition, tuple[int, int]], as_text: bool
) -> None:
    read = Positions({at: begin for at, (begin, _) in ranges.items()}, "here")
    latest = Positions({at: begin + more for at, (begin, more) in ranges.items()}, "here")
    waiting = [more for _, more in ranges.values()]
    found = offsets_behind_latest(progress((read, latest), as_text=as_text))
    names = ", ".join(sorted({at.topic for at in ranges}))
    assert found == [Behind(f"fencepost[{names} of cluster here]", max(waiting), mean(waiting), min(waiting))]


def test_sources_are_told_apart_and_others_left_out() -> None:
    one = Positions({TopicPartition("a", 0): 7}, "here")
    two = Positions({TopicPartition("b", 0): 9}, "there")
    rate: dict[str, Any] = {"endOffset": "5", "latestOffset": "12"}
    given = progress((one, one), (two, two._replace(offsets={TopicPartition("b", 0): 12})))
    given["sources"].insert(1, rate)
    assert [(each.description, each.max_offsets) for each in offsets_behind_latest(given)] == [
        ("fencepost[a of cluster here]", 0),
        ("fencepost[b of cluster there]", 3),
    ]


@pytest.mark.parametrize(
    ("read", "waiting"),
    [
        (None, 10),
        (Positions({}, "here"), 10),
        (Positions({TopicPartition("a", 0): 4}, "here", {"a": "new"}), 6),
        (Positions({TopicPartition("a", 0): 4}, "here", {"a": "old"}), 10),
        (Positions({TopicPartition("a", 0): 40}, "here", {"a": "new"}), 0),
    ],
    ids=["before the first batch", "a new partition", "the same topic", "made anew", "ahead"],
)
def test_what_was_not_read_counts_from_the_beginning(read: Positions | None, waiting: int) -> None:
    latest = Positions({TopicPartition("a", 0): 10}, "here", {"a": "new"})
    found = offsets_behind_latest(progress((read, latest)))[0]
    assert (found.max_offsets, found.min_offsets) == (waiting, waiting)


def test_a_source_without_any_topic_is_behind_with_nothing() -> None:
    """As `subscribePattern` has it before the first topic is made."""
    none = Positions({}, "here")
    assert offsets_behind_latest(progress((none, none))) == [Behind("fencepost[no topic of cluster here]", 0, 0, 0)]


@pytest.mark.parametrize("nothing", [None, {}, {"sources": []}, progress((None, None)), {"sources": [{}]}])
def test_nothing_is_known_before_the_first_progress(nothing: Any) -> None:
    assert offsets_behind_latest(nothing) == []
