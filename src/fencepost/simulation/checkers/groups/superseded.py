"""The records that compaction may have taken from what groups read: those behind which a newer one of their key is."""

from __future__ import annotations

from collections.abc import Callable

from fencepost.protocol.types import TopicPartition
from fencepost.simulation.group_notes import Truth
from fencepost.simulation.record_shapes import key_of

MayBeGone = Callable[[TopicPartition, int, str], bool]
"""Whether the record at that offset, of that value, need not be there any more."""


def nothing(_at: TopicPartition, _offset: int, _value: str) -> bool:
    """False: where no topic is compacted no record may be gone."""
    return False


def superseded(truth: Truth, keys: int) -> MayBeGone:
    """A function that tells whether a record has a newer committed one of its key.  `keys`: of each producer, or 0."""
    if not keys:
        return nothing
    newest = {(at, key_of(record.value, keys)): record.offset for at in truth.records for record in truth.committed(at)}

    def may_be_gone(at: TopicPartition, offset: int, value: str) -> bool:
        return offset < newest.get((at, key_of(value, keys)), -1)

    return may_be_gone
