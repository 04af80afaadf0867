"""The aborted transactions of a segment (facts §6.9): file `.txnindex`, entries of 34 bytes, in marker order.

An entry stands in the segment that holds the abort marker.
"""

from __future__ import annotations

from struct import Struct
from typing import NamedTuple

from fencepost.log.disk import File

_ENTRY = Struct(">hqqqq")


class AbortedTransaction(NamedTuple):
    """An aborted transaction in one partition."""

    producer_id: int
    first_offset: int
    last_offset: int
    """Offset of the abort marker."""
    last_stable_offset: int
    """When it completed: the first offset of the earliest other open transaction, else the marker's offset + 1."""


class TransactionIndex:
    """Appended to in memory; written with the other indexes of the segment.  The file is made with its first entry."""

    def __init__(self, entries: list[AbortedTransaction] | None = None) -> None:
        self.entries = entries or []

    @classmethod
    def read(cls, file: File) -> TransactionIndex:
        """The entries of a file, up to the first that is not whole or of an unknown version."""
        data, entries = file.pread(file.size(), 0), []
        for at in range(0, len(data) - _ENTRY.size + 1, _ENTRY.size):
            version, *numbers = _ENTRY.unpack_from(data, at)
            if version != 0:
                break
            entries.append(AbortedTransaction(*numbers))
        return cls(entries)

    def append(self, aborted: AbortedTransaction) -> None:
        assert not self.entries or self.entries[-1].last_offset < aborted.last_offset, "markers come in order"
        self.entries.append(aborted)

    def cut(self, offset: int) -> None:
        """Drop what was aborted at `offset` or after it."""
        while self.entries and self.entries[-1].last_offset >= offset:
            self.entries.pop()

    def encode(self) -> bytes:
        return b"".join(_ENTRY.pack(0, *entry) for entry in self.entries)

    def collect(self, fetch_offset: int, upper_bound: int, found: list[AbortedTransaction]) -> bool:
        """Add what a reader of [fetch_offset, upper_bound) must know; True if no later segment can have more."""
        for entry in self.entries:
            if entry.last_offset >= fetch_offset and entry.first_offset < upper_bound:
                found.append(entry)
            if entry.last_stable_offset >= upper_bound:
                return True
        return False
