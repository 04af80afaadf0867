"""How far a log may be cleaned, when that is worth it, and which segments become one."""

from __future__ import annotations

import pytest

from fencepost.log.cleaner.choice import (
    Range,
    SegmentFacts,
    cleanable_range,
    first_dirty,
    grouped,
    should_roll,
)
from fencepost.log.settings import LogSettings
from fencepost.protocol.types import Milliseconds, Offset

NOW = Milliseconds(100_000)


def log(*segments: tuple[int, int], unsettled: int | None = None) -> list[SegmentFacts]:
    """(base offset, size) of each; the largest timestamp of a segment is its number times 10,000."""
    return [
        SegmentFacts(
            Offset(base),
            size,
            Milliseconds(10_000 * n),
            Milliseconds(10_000 * n - 5_000),
            unsettled is None or base < unsettled,
        )
        for n, (base, size) in enumerate(segments, 1)
    ]


SIX = log((0, 10), (100, 10), (200, 10), (300, 10), (400, 10), (500, 10))


@pytest.mark.parametrize(
    ("dirty", "stable", "lag", "unsettled", "expected"),
    [
        (0, 600, 0, None, (0, 500, 0, 50)),
        (200, 600, 0, None, (200, 500, 20, 30)),
        (250, 600, 0, None, (250, 500, 20, 30)),
        (0, 500, 0, None, (0, 500, 0, 50)),
        (0, 499, 0, None, (0, 400, 0, 40)),
        (0, 50, 0, None, (0, 0, 0, 0)),
        (0, 600, 0, 300, (0, 300, 0, 30)),
        (0, 600, NOW - 35_000, None, (0, 300, 0, 30)),
        (0, 600, NOW - 30_000, None, (0, 300, 0, 30)),
        (0, 600, NOW - 29_999, None, (0, 200, 0, 20)),
        (0, 600, NOW, None, (0, 0, 0, 0)),
        (400, 600, NOW, None, (400, 400, 40, 0)),
        (500, 600, 0, None, (500, 500, 50, 0)),
    ],
)
def test_the_first_obstacle_ends_the_range(
    dirty: int, stable: int, lag: Milliseconds, unsettled: int | None, expected: tuple[int, int, int, int]
) -> None:
    facts = [each._replace(settled=unsettled is None or each.base_offset < unsettled) for each in SIX]
    found = cleanable_range(facts, Offset(dirty), Offset(stable), LogSettings(min_compaction_lag_ms=lag), NOW)
    assert found[:4] == expected


@pytest.mark.parametrize(
    ("over", "ratio", "worth"),
    [
        (Range(Offset(0), Offset(9), 10, 10), 0.5, False),
        (Range(Offset(0), Offset(9), 10, 11), 0.5, True),
        (Range(Offset(0), Offset(9), 10, 1), 0.0, True),
        (Range(Offset(0), Offset(9), 0, 0), 0.0, False),
        (Range(Offset(0), Offset(9), 100, 1, overdue_ms=Milliseconds(1)), 0.5, True),
        (Range(Offset(0), Offset(9), 100, 1, overdue_ms=Milliseconds(0)), 0.5, False),
        (Range(Offset(0), Offset(9), 100, 0, overdue_ms=Milliseconds(1)), 0.5, False),
    ],
)
def test_dirt_is_worth_it_by_ratio_or_by_age(over: Range, ratio: float, worth: bool) -> None:
    assert over.is_worth_it(LogSettings(min_cleanable_dirty_ratio=ratio)) is worth


@pytest.mark.parametrize(("lag", "overdue"), [(95_001, 0), (95_000, 0), (94_999, 1), (80_000, 15_000)])
def test_a_record_waits_no_longer_than_the_largest_lag(lag: Milliseconds, overdue: int) -> None:
    settings = LogSettings(max_compaction_lag_ms=lag)
    assert cleanable_range(SIX, Offset(0), Offset(600), settings, NOW).overdue_ms == overdue


@pytest.mark.parametrize(("checkpoint", "expected"), [(None, 50), (49, 50), (50, 50), (70, 70), (100, 100), (101, 50)])
def test_a_note_that_cannot_be_makes_all_dirty(checkpoint: Offset | None, expected: int) -> None:
    assert first_dirty(checkpoint, Offset(50), Offset(100)) == expected


def test_segments_are_put_together_up_to_the_size_of_one() -> None:
    assert grouped(SIX[:5], Offset(500), Offset(500), 30) == [(0, 3), (3, 5)]
    assert grouped(SIX[:5], Offset(500), Offset(500), 9) == [(n, n + 1) for n in range(5)]
    assert grouped(SIX[:5], Offset(301), Offset(500), 1000) == [(0, 4)], "what begins behind the end of the pass stays"
    assert grouped(SIX[:5], Offset(0), Offset(500), 1000) == []
    assert grouped(log((0, 5), (10, 0), (20, 30)), Offset(99), Offset(99), 30) == [(0, 2), (2, 3)]


def test_offsets_of_a_segment_stay_near_its_base() -> None:
    far = 0x7FFFFFFF
    assert grouped(log((0, 1), (5, 1)), Offset(10), Offset(far + 1), 99) == [(0, 2)]
    assert grouped(log((0, 1), (5, 1)), Offset(10), Offset(far + 2), 99) == [(0, 1), (1, 2)]
    assert grouped(log((0, 1), (5, 0)), Offset(10), Offset(far + 2), 99) == [(0, 2)], "an empty one has none"


@pytest.mark.parametrize(
    ("active", "clean", "rolls"), [(99, 0, False), (100, 0, True), (500, 500, False), (501, 500, True)]
)
def test_a_journal_rolls_when_a_pass_writes_no_more_than_it_reads(active: int, clean: int, rolls: bool) -> None:
    assert should_roll(active, clean, 100) is rolls
