"""Chooses the segments that are too old or too many (facts §6.12); the partition removes them.

As in Apache Kafka the newest segment may be one of them.  Where an open transaction began, and what follows, is kept.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, Protocol

from fencepost.log.settings import LogSettings
from fencepost.protocol.types import Milliseconds, Offset

WORTH_A_ROLL: Final = 1024 * 1024
"""Bytes of a segment that are worth a new one at once where DeleteRecords has passed all of it.  A smaller one waits
for the next look, so that nobody makes files without end by writing and deleting single records."""


class Sized(Protocol):
    """A segment as retention sees it.  Size in bytes, times in milliseconds."""

    base_offset: Offset
    size: int
    created: int
    """When its first batch came (ms), by the broker's clock; -1 while empty or unknown."""

    @property
    def max_timestamp(self) -> Milliseconds:
        """The largest timestamp of its records; -1 if none has a time."""
        ...


def new_start(
    segments: Sequence[Sized], start: Offset, end: Offset, limit: Offset, settings: LogSettings, now: Milliseconds
) -> Offset:
    """The first offset to keep: where a segment begins, or the log end if all may go; `start` if nothing may.

    `start` and `end` are those of the log; only what lies before `limit` may go.
    """
    if "delete" not in settings.cleanup_policy:
        return start
    ends = [*(segment.base_offset for segment in segments[1:]), end]
    # What DeleteRecords has passed is on its way out already.
    kept = [(segment, upto) for segment, upto in zip(segments, ends, strict=True) if upto > start]
    size = sum(segment.size for segment, _ in kept)
    for segment, upto in kept:
        if not segment.size:
            continue  # Compacted away: it goes with what is behind it.
        newest = segment.max_timestamp if segment.max_timestamp >= 0 else segment.created
        expired = settings.retention_ms >= 0 and newest >= 0 and now - newest > settings.retention_ms
        surplus = settings.retention_bytes >= 0 and size - segment.size >= settings.retention_bytes
        if upto > limit or not (expired or surplus):
            break
        size -= segment.size
        start = upto
    return start
