"""The segments of a partition: which one holds an offset, and what changes them."""

from __future__ import annotations

from pathlib import Path
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fencepost.log.damage import FileDamaged
from fencepost.log.segment import Segment
from fencepost.log.segments import Segments
from fencepost.log.transaction_index import AbortedTransaction
from fencepost.protocol.types import Offset, ProducerId
from fencepost.simulation.disk import SimulatedDisk


def segments_at(*bases: int) -> Segments:
    disk, made = SimulatedDisk(Random(0)), Segments()
    disk.make_directory(Path("t-0"))
    for number, base in enumerate(bases):
        made.append(Segment(disk, Path("t-0"), Offset(base), number, 4096))
    return made


@given(bases=st.sets(st.integers(0, 40), min_size=1), offset=st.integers(0, 45))
def test_an_offset_is_held_by_the_last_segment_that_begins_before_it(bases: set[int], offset: int) -> None:
    segments = segments_at(*sorted(bases))
    held = max((base for base in bases if base <= offset), default=min(bases))
    assert [each.base_offset for each in segments.holding(Offset(offset))] == sorted(
        base for base in bases if base >= held
    )
    assert segments[segments.number_of(Offset(offset))].base_offset == held


@given(bases=st.sets(st.integers(0, 40), min_size=1))
def test_a_segment_ends_where_the_next_one_begins_or_the_log_ends(bases: set[int]) -> None:
    segments = segments_at(*sorted(bases))
    assert [segments.end_of(each, Offset(50)) for each in segments] == [*sorted(bases)[1:], 50]


@given(data=st.data(), bases=st.lists(st.integers(0, 40), min_size=1, unique=True).map(sorted))
def test_bases_are_those_of_the_segments_whatever_changes(data: st.DataObject, bases: list[int]) -> None:
    segments = segments_at(*bases)
    if data.draw(st.booleans(), label="replace"):
        first = data.draw(st.integers(0, len(bases) - 1), label="first")
        behind = data.draw(st.integers(first + 1, len(bases)), label="behind")
        fresh = segments_at(bases[first])[0]
        segments.replace(segments[first:behind], fresh)
        assert segments[first] is fresh
        bases[first:behind] = [bases[first]]
    gone = data.draw(st.integers(0, len(bases) - 1), label="gone")
    segments.remove(segments[gone])
    del bases[gone]
    assert segments.bases == [each.base_offset for each in segments] == bases
    assert len(segments) == len(bases)


def test_the_newest_segment_is_left_if_it_is_damaged_until_there_is_a_newer_one() -> None:
    segments, newer = segments_at(0, 5), segments_at(9)
    segments.leave(FileDamaged(segments[0].path, "is damaged"))
    segments.leave(FileDamaged(segments[1].path.with_suffix(".index"), "is damaged"))
    assert not segments.is_left
    segments.leave(FileDamaged(segments[1].path, "is damaged"))
    segments.leave(FileDamaged(segments[0].path, "is damaged"))
    assert segments.is_left
    segments.append(newer[0])
    assert not segments.is_left


def test_segments_stay_in_their_order() -> None:
    segments, three = segments_at(0, 5), segments_at(0, 5, 9)
    with pytest.raises(AssertionError, match="order"):
        segments.append(segments_at(5)[0])
    with pytest.raises(AssertionError, match="together"):
        three.replace([three[0], three[2]], segments[0])
    assert segments.bases == [0, 5]


def test_aborted_transactions_are_found_from_the_segment_of_an_offset_on() -> None:
    segments = segments_at(0, 10, 20)
    entries = [
        AbortedTransaction(
            ProducerId(7), Offset(2), Offset(12), Offset(13)
        ),  # began in the first segment, ended in the second
        AbortedTransaction(ProducerId(8), Offset(21), Offset(25), Offset(26)),
    ]
    segments[1].transactions.append(entries[0])
    segments[2].transactions.append(entries[1])
    assert segments.aborted_transactions(Offset(3), Offset(5)) == entries[:1]
    assert segments.aborted_transactions(Offset(0), Offset(30)) == entries
    assert segments.aborted_transactions(Offset(13), Offset(30)) == entries[1:]
    assert segments.aborted_transactions(Offset(26), Offset(30)) == []
