"""What stands in each partition is in the order of its producers' epochs and sequences (facts §6.2-§6.4).

Looked at as it is appended, apart from what the log itself checks: a gap, a batch for the second time and a fenced
producer are seen where they are written, whether or not anybody is shown them.
"""

from __future__ import annotations

from typing import Final, NamedTuple

from fencepost.protocol import batch
from fencepost.protocol.batch import BatchHeader
from fencepost.protocol.types import CONSUMER_OFFSETS, TRANSACTION_STATE, Epoch

#: What coordinators write has sequences of no meaning.
_INTERNAL: Final = (TRANSACTION_STATE, CONSUMER_OFFSETS)


class _Place(NamedTuple):
    """The progress of a producer in a partition."""

    epoch: Epoch
    following: int | None
    """The sequence that comes next; None if any may: nothing of this epoch is known."""


class Sequences:
    """The order of batches in all partitions of one life of a node.  What was in the log before is to be `learn`ed."""

    def __init__(self) -> None:
        self._places: dict[tuple[str, int, int], _Place] = {}

    def add(self, topic: str, index: int, header: BatchHeader) -> str | None:
        """Note that a batch was appended; what is wrong with that, None if nothing is."""
        if header.base_offset == 0:
            self._forget(topic, index)
        if topic in _INTERNAL or header.producer_id < 0:
            return None
        key, epoch = (topic, index, header.producer_id), header.producer_epoch
        known = self._places.get(key)
        if known is not None and epoch < known.epoch:
            return f"producer {header.producer_id} writes to {topic}-{index} under epoch {epoch} after {known.epoch}"
        if header.is_control:
            if known is None or epoch != known.epoch:
                self._places[key] = _Place(epoch, None if known is None else 0)
            return None
        first = header.base_sequence
        if first < 0:
            return None
        self._places[key] = _Place(epoch, _after(first, header.record_count))
        expected = None if known is None else known.following if epoch == known.epoch else 0
        if expected is None or first == expected:
            return None
        who = f"producer {header.producer_id}, epoch {epoch}"
        return f"{who}, writes sequence {first} to {topic}-{index}, {expected} is next"

    def learn(self, topic: str, index: int, header: BatchHeader) -> None:
        """Note a batch that was in the log before; compaction may have taken others, and some of its records."""
        if topic in _INTERNAL or header.producer_id < 0:
            return
        key, known = (topic, index, header.producer_id), self._places.get((topic, index, header.producer_id))
        if not header.is_control and header.base_sequence >= 0:
            count = header.last_offset - header.base_offset + 1
            self._places[key] = _Place(header.producer_epoch, _after(header.base_sequence, count))
        elif known is None or known.epoch != header.producer_epoch:
            self._places[key] = _Place(header.producer_epoch, None if known is None else 0)

    def _forget(self, topic: str, index: int) -> None:
        """Forget a partition of this name: it is another topic's now."""
        for key in [key for key in self._places if key[:2] == (topic, index)]:
            del self._places[key]


def _after(sequence: int, count: int) -> int:
    """The sequence `count` records on, worked out apart from `batch.next_sequence`, which is among what is checked."""
    return (sequence + count) % (batch.MAX_INT32 + 1)
