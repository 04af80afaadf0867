"""Producer ids, never given twice.

A store hands out blocks of consecutive ids durably; within a block they are given from memory.  What a restart leaves
of a block is lost: gaps are normal (facts §2.6).
"""

from __future__ import annotations

from typing import Final, Protocol

from fencepost.protocol.types import ProducerId

BLOCK_SIZE: Final = 1000
#: Producer ids are int64, and 2**63-1 is never given so that "one more" always fits.
_END: Final = 2**63 - 1


class ProducerIds(Protocol):
    """Gives producer ids."""

    def next(self) -> ProducerId | None:
        """An id that was never given before, or None if none can be had now (the client tries again)."""
        ...


class ProducerIdStore(Protocol):
    """Keeps the number up to which producer ids were given, for the whole cluster."""

    def allocate(self, count: int) -> int | None:
        """The first of `count` ids that nobody else gets, durable before this returns; None if that cannot be done."""
        ...


class BlockProducerIds:
    """Producer ids from blocks of a durable store."""

    def __init__(self, store: ProducerIdStore, block_size: int = BLOCK_SIZE) -> None:
        self._store = store
        self._block_size = block_size
        self._next = 0
        self._end = 0

    def next(self) -> ProducerId | None:
        """An id that was never given before, or None if the store cannot give a block now."""
        if self._next >= self._end:
            first = self._store.allocate(self._block_size)
            if first is None:
                return None
            assert first >= self._end, "a block of producer ids begins after every id that was given before"
            assert first + self._block_size <= _END, "producer ids are int64"
            self._next, self._end = first, first + self._block_size
        given = ProducerId(self._next)
        self._next += 1
        return given
