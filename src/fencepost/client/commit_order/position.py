"""The position of a reader in commit order: two offsets, or three.  Pure.

The 2014 design, "Offset management" and "Consumer failure": "The first offset is the start offset of the earliest
pending transaction in that partition. The second offset is the offset of the internal iterator."  A third one is for
"the internal offset of the transaction that we are currently processing".

A group keeps the first as its committed offset and the others in that offset's metadata:

    offset  metadata                 stands for
    o1      (empty)                  (o1, o1): begin there; nothing before it is wanted
    o1      commit-order/1 o2        (o1, o2): fetch from o1, pass over what was delivered before o2
    o1      commit-order/1 o2 o3     the same; of the transaction whose marker is at o2, o3 was delivered last

A reader in offset order that takes the group over begins at o1, so it loses nothing and reads some records again.
"""

from __future__ import annotations

import re
from typing import Final, NamedTuple

from fencepost.client.errors import PositionMetadataError
from fencepost.client.transactional_id import OffsetAndMetadata
from fencepost.protocol.types import Offset, TopicPartition

_NUMBER: Final = "(0|[1-9][0-9]{0,18})"
_METADATA: Final = re.compile(f"commit-order/1 {_NUMBER}(?: {_NUMBER})?")
_OF_ANOTHER_VERSION: Final = re.compile("commit-order/([1-9][0-9]*) .*", re.DOTALL)
_MOST: Final = 2**63 - 1
_WHAT_TO_DO: Final = (
    "seek() to where this consumer is to begin, or reset the offset of the group, with empty metadata, while no member "
    "is there"
)


class Position(NamedTuple):
    """Where a reader goes on, after a restart or elsewhere: 0 <= start <= delivered, start <= inside < delivered.

    Without `inside`, where `start` is `delivered`, nothing was open.
    """

    start: int
    """o1: the first offset to fetch, where the oldest open transaction begins."""
    delivered: int
    """o2: all before it is delivered, or was dropped, or belongs to a transaction that ends at it or behind."""
    inside: int = -1
    """o3: of the transaction whose marker is at `delivered`, the last record that was delivered; -1: none was."""

    def committed(self) -> OffsetAndMetadata:
        """The offset and metadata that are committed for this position."""
        if self.inside >= 0:
            return OffsetAndMetadata(self.start, f"commit-order/1 {self.delivered} {self.inside}")
        if self.start == self.delivered:
            return OffsetAndMetadata(self.start)
        return OffsetAndMetadata(self.start, f"commit-order/1 {self.delivered}")


def position_of(at: TopicPartition, committed: OffsetAndMetadata) -> Position:
    """The position that a committed offset stands for.  Raises PositionMetadataError for any other metadata."""
    start, metadata = committed.offset, committed.metadata
    if not metadata:
        return Position(start, start)
    found = _METADATA.fullmatch(metadata)
    if found is not None:
        position = Position(start, int(found[1]), -1 if found[2] is None else int(found[2]))
        if _is_sound(position):
            return position
        raise PositionMetadataError(
            f"{at}: the committed offset {start} has the metadata {metadata!r}, which contradicts it or itself. "
            f"{_WHAT_TO_DO}"
        )
    newer = _OF_ANOTHER_VERSION.fullmatch(metadata)
    if newer is not None and newer[1] != "1":
        raise PositionMetadataError(
            f"{at}: the metadata {metadata[:100]!r} of the committed offset {start} is of version {newer[1]}, and only "
            f"version 1 is known here: read on with the Fencepost that wrote it, or {_WHAT_TO_DO}"
        )
    raise PositionMetadataError(
        f"{at}: the metadata {metadata[:100]!r} of the committed offset {start} was not written by a consumer with "
        f"delivery='commit_order': how far the group has read cannot be told. {_WHAT_TO_DO}"
    )


def _is_sound(position: Position) -> bool:
    start, delivered, inside = position
    if not 0 <= start <= delivered <= _MOST:
        return False
    return start < delivered if inside < 0 else start <= inside < delivered


def behind_what_is_gone(position: Position, log_start: int) -> Position | None:
    """The position to go on from when the log begins behind `position.start`: no undelivered COMMIT is lost by it.

    The records between, of transactions that are still open, are gone, and nobody can tell which ones these are.  None
    if batches that were never read are gone as well, or none is: then `auto_offset_reset` says where to begin.
    """
    if not position.start < log_start <= position.delivered:
        return None
    return Position(log_start, position.delivered, position.inside if position.inside >= log_start else -1)


def after(last_stable_offset: Offset, high_watermark: Offset) -> Position:
    """The position from which transactions that commit from now on are delivered, each whole, and none from before.

    The last stable offset is to be asked for first: whatever is open at the high watermark begins at or behind it.
    """
    return Position(min(last_stable_offset, high_watermark), high_watermark)
