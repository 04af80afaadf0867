"""The keys that records of a run have, and how large they are: both follow from the value, which says which one it is.

The records of one key in one partition come from one producer.  So the order in which it sent them tells which of them
is the newest, and what compaction may take.
"""

from __future__ import annotations

from typing import Final, NamedTuple
from zlib import crc32

#: One record in so many is a large one.
_SHARE: Final = 6
#: Bytes that a batch of one record has beside what fills it, at most: its header, the key and the value.
_BESIDE: Final = 160


class Shape(NamedTuple):
    """The keys and the size of the records of a run."""

    keys: int = 0
    """The number of keys of a producer; 0: its records have none."""
    largest_batch: int = 0
    """Bytes that a batch with one record may have; 0: no record is larger than its value."""

    def key_of(self, value: str) -> bytes | None:
        """The key of a record of that value."""
        key = key_of(value, self.keys)
        return None if key is None else key.encode()

    def headers_of(self, value: str, together: int = 1) -> list[tuple[str, bytes]]:
        """The headers of a record of that value: none, or one of zeros that makes the record a large one.

        `together`: how many records must fit into one batch.
        """
        room = self.largest_batch // together - _BESIDE
        dice = crc32(value.encode()) >> 8
        if room <= 0 or dice % _SHARE:
            return []
        # Every second one as large as it may be.
        return [("", bytes(room if dice // _SHARE % 2 else dice % room))]


def key_of(value: str, keys: int) -> str | None:
    """The key of a record where each producer has so many; None for no key."""
    return f"{value.rsplit('-', 2)[0]}/{crc32(value.encode()) % keys}" if keys else None
