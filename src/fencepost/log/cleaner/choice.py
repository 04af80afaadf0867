"""Chooses how far a log may be cleaned, whether that is worth it, and which of its segments become one.

A log is clean up to its first dirty offset: what an earlier pass has seen.  From there on it may be cleaned up to the
first of

    the last stable offset            what is behind it may still be aborted, or lost
    the active segment                it is written to
    a segment that is not settled     after a crash its bytes may be written again from the commit log
    a segment with a record that is younger than min.compaction.lag.ms

and then to the beginning of that segment.  It is worth it when more than min.cleanable.dirty.ratio of the bytes up to
there are dirty, or when a dirty segment began longer ago than max.compaction.lag.ms.

Pure: nothing here touches a clock or a file.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import NamedTuple

from fencepost.log.settings import LONG, LogSettings
from fencepost.protocol.types import Milliseconds, Offset

_FARTHEST = 0x7FFFFFFF
"""The largest distance of an offset from the base of its segment."""


class SegmentFacts(NamedTuple):
    """A segment as the choice sees it.  Size in bytes, timestamps in milliseconds."""

    base_offset: Offset
    size: int
    largest_timestamp: Milliseconds
    first_timestamp: Milliseconds
    """Timestamp of the first batch; -1 if the segment is empty or nobody asks."""
    settled: bool
    """No entry of the commit log is written to it again after a crash."""


class Range(NamedTuple):
    """The range of a pass over one log.  Sizes in bytes."""

    first_dirty_offset: Offset
    upper_bound: Offset
    """The pass ends before this offset, where a segment begins."""
    clean_bytes: int
    dirty_bytes: int
    overdue_ms: Milliseconds = Milliseconds(0)
    """For how long a record has waited longer than max.compaction.lag.ms."""

    @property
    def dirty_ratio(self) -> float:
        total = self.clean_bytes + self.dirty_bytes
        return self.dirty_bytes / total if total else 0.0

    def is_worth_it(self, settings: LogSettings) -> bool:
        """Whether enough of it is dirty, or some of it has been dirty for too long."""
        if not self.dirty_bytes:
            return False
        return self.overdue_ms > 0 or self.dirty_ratio > settings.min_cleanable_dirty_ratio


def first_dirty(checkpoint: Offset | None, log_start_offset: Offset, log_end_offset: Offset) -> Offset:
    """The first dirty offset: `checkpoint`, or the start of the log where that is None or outside of the log."""
    if checkpoint is None or not log_start_offset <= checkpoint <= log_end_offset:
        return log_start_offset
    return checkpoint


def cleanable_range(
    segments: Sequence[SegmentFacts],
    first_dirty_offset: Offset,
    last_stable_offset: Offset,
    settings: LogSettings,
    now: Milliseconds,
) -> Range:
    """The range of a pass; `segments` are all of the log, the active one last."""
    upper_bound = segments[-1].base_offset
    for segment, following in pairwise(segments):
        if (
            following.base_offset > last_stable_offset
            or not segment.settled
            or (
                settings.min_compaction_lag_ms > 0
                and following.base_offset > first_dirty_offset
                and segment.largest_timestamp > now - settings.min_compaction_lag_ms
            )
        ):
            upper_bound = segment.base_offset
            break
    first = min(first_dirty_offset, upper_bound)
    clean, dirty, overdue = 0, 0, Milliseconds(0)
    for segment, following in pairwise(segments):
        if segment.base_offset >= upper_bound:
            break
        if following.base_offset <= first:
            clean += segment.size
            continue
        dirty += segment.size
        if settings.max_compaction_lag_ms < LONG and segment.first_timestamp > 0:
            lag = now - segment.first_timestamp
            overdue = max(overdue, Milliseconds(lag - settings.max_compaction_lag_ms))
    return Range(first, upper_bound, clean, dirty, overdue)


def grouped(
    segments: Sequence[SegmentFacts], end_offset: Offset, upper_bound: Offset, largest: int
) -> list[tuple[int, int]]:
    """The segments that begin before `end_offset`, in runs that become one segment each: (first, behind the last).

    The segments of a run have together at most `largest` bytes, and their offsets are near enough to the first one.
    """
    count = sum(segment.base_offset < end_offset for segment in segments)
    runs: list[tuple[int, int]] = []
    first = size = 0
    for number in range(count):
        following = segments[number + 1].base_offset if number + 1 < count else upper_bound
        far = segments[number].size > 0 and following - 1 - segments[first].base_offset > _FARTHEST
        if number > first and (size + segments[number].size > largest or far):
            runs.append((first, number))
            first, size = number, 0
        size += segments[number].size
    if count:
        runs.append((first, count))
    return runs


def should_roll(active_size: int, clean_bytes: int, least: int) -> bool:
    """Whether a journal begins a new segment, so that this one can be cleaned.

    It is to have at least `least` bytes, and more than what is clean: then a pass writes no more than it reads.
    """
    return active_size >= least and active_size > clean_bytes
