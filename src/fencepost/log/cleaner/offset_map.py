"""The newest offset of each key in the part of a log that is to be cleaned, in a bounded amount of memory."""

from __future__ import annotations

from hashlib import blake2b
from typing import Final

from fencepost.protocol.types import Offset

#: Bytes of memory that an entry is counted with: the dictionary's and the set's share, a key and an offset.
ENTRY_BYTES: Final = 280
_LONGEST_KEY: Final = 31
_DIGEST_BYTES: Final = 32


class OffsetMap:
    """Key -> offset of its newest record.

    Long keys are kept as digests of 32 bytes, which no short key can be.  `latest` is the last offset that was shown to
    it, `start` the first one: of the records in between those that stay are exactly the ones in `newest`.
    """

    def __init__(self, start: Offset, capacity: int) -> None:
        self._offsets: dict[bytes, Offset] = {}
        self._capacity = max(capacity, 1)
        self.start = start
        self.latest = Offset(start - 1)
        self.newest: set[int] = set()

    def __len__(self) -> int:
        return len(self._offsets)

    @property
    def utilization(self) -> float:
        """The part of the map that is full, 0 to 1."""
        return len(self._offsets) / self._capacity

    def put(self, key: bytes, offset: Offset) -> bool:
        """Note a record, which must be newer than all before.  False, with nothing noted, if there is no room."""
        kept = key if len(key) <= _LONGEST_KEY else blake2b(key, digest_size=_DIGEST_BYTES).digest()
        older = self._offsets.get(kept)
        if older is not None:
            self.newest.discard(older)
        elif len(self._offsets) >= self._capacity:
            return False
        self._offsets[kept] = offset
        self.newest.add(offset)
        return True

    def get(self, key: bytes) -> int:
        """The newest offset of the key, -1 if it was not noted."""
        kept = key if len(key) <= _LONGEST_KEY else blake2b(key, digest_size=_DIGEST_BYTES).digest()
        return self._offsets.get(kept, -1)

    def supersedes_all(self, first: Offset, last: Offset) -> bool:
        """Whether no record between these offsets stays, as far as that can be told without reading them."""
        if first < self.start or last > self.latest or last - first > 64:
            return False
        return self.newest.isdisjoint(range(first, last + 1))
