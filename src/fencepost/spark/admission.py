"""The ends of a micro-batch, by its limits, and its parts for tasks: pure functions over offsets."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import pairwise

from fencepost.protocol.types import TopicPartition

Offsets = Mapping[TopicPartition, int]


def limited(start: Offsets, end: Offsets, most: int) -> dict[TopicPartition, int]:
    """Ends with at most `most` offsets between them and `start`, shared out in proportion to what is waiting."""
    waiting = {at: max(end[at] - start.get(at, end[at]), 0) for at in end}
    total = sum(waiting.values())
    if total <= most:
        return dict(end)
    limited_end, given = {}, 0
    for at in sorted(end):
        share = waiting[at] * most // total
        limited_end[at] = start.get(at, end[at]) + share
        given += share
    for at in sorted(end, key=lambda at: (-(end[at] - limited_end[at]), at)):
        if given >= most:
            break
        if limited_end[at] < end[at]:
            limited_end[at] += 1
            given += 1
    return limited_end


def between(start: Offsets, end: Offsets) -> int:
    """The number of offsets between start and end, of all partitions; none in one without a start."""
    return sum(max(end[at] - start.get(at, end[at]), 0) for at in end)


def is_too_little(start: Offsets, end: Offsets, least: int, waited_ms: int | None, longest_ms: int) -> bool:
    """Whether a micro-batch is to wait, as fewer than `least` offsets lie between.

    `waited_ms`: milliseconds since the last one, None before the first one, which never waits.  From `longest_ms` on it
    does not wait either.
    """
    if waited_ms is None or not 0 <= waited_ms < longest_ms:
        return False  # a clock that was set back has nobody wait
    return between(start, end) < least


def split(start: Offsets, end: Offsets, pieces: int, most: int | None = None) -> list[tuple[TopicPartition, int, int]]:
    """The offsets to read as (partition, from, to): at least `pieces` parts if there are as many offsets.

    `most`: offsets of one part, None for no limit.
    """
    ranges = [(at, start[at], end[at]) for at in sorted(end) if end[at] > start[at]]
    if most is not None:
        ranges = [(at, low, min(low + most, to)) for at, begin, to in ranges for low in range(begin, to, most)]
    total = sum(to - begin for _, begin, to in ranges)
    if len(ranges) >= pieces or not total:
        return ranges
    pieces = min(pieces, total)
    counts = [max(pieces * (to - begin) // total, 1) for _, begin, to in ranges]
    # Of what is left, one more each for the largest parts, again and again.
    for _ in range(pieces - sum(counts)):
        sizes = [-(-(to - begin) // count) for (_, begin, to), count in zip(ranges, counts, strict=True)]
        if max(sizes) == 1:
            break
        counts[sizes.index(max(sizes))] += 1
    found = []
    for (at, begin, to), count in zip(ranges, counts, strict=True):
        cuts = [begin + (to - begin) * n // count for n in range(count + 1)]
        found += [(at, low, high) for low, high in pairwise(cuts) if high > low]
    return found
