"""The aborted transactions of a segment (facts §6.9): file `.txnindex`, entries of 34 bytes, in marker order.

An entry stands in the segment that holds the abort marker.
"""

from __future__ import annotations

from bisect import bisect_left
from pathlib import Path
from struct import Struct
from typing import NamedTuple

from fencepost.log.disk import Disk
from fencepost.protocol.types import Offset, ProducerId

_ENTRY = Struct(">hqqqq")
_LAST_OFFSET = Struct(">18xq")
"""The last offset within an entry."""


class AbortedTransaction(NamedTuple):
    """An aborted transaction in one partition."""

    producer_id: ProducerId
    first_offset: Offset
    last_offset: Offset
    """Offset of the abort marker."""
    last_stable_offset: Offset
    """When it completed: the first offset of the earliest other open transaction, else the marker's offset + 1."""


class TransactionIndex:
    """Appended to in memory; written with the other indexes of the segment.  The file is made with its first entry."""

    def __init__(self, data: bytearray | None = None) -> None:
        self._data = data or bytearray()

    @classmethod
    def read(cls, disk: Disk, path: Path) -> TransactionIndex:
        """The entries of a file, up to the first that is not whole, of an unknown version or not in order.

        Behind what was synced a power loss may have left anything: entries of later markers, and zeros.  A segment
        without aborted transactions has no such file.
        """
        if not disk.exists(path):
            return cls()
        file = disk.open(path)
        try:
            data = bytearray(file.pread(file.size(), 0))
        finally:
            file.close()
        known, marker = 0, -1
        while known + _ENTRY.size <= len(data):
            version, _, first_offset, last_offset, _ = _ENTRY.unpack_from(data, known)
            if version != 0 or not max(first_offset, marker) < last_offset:
                break
            marker = last_offset
            known += _ENTRY.size
        return cls(data[:known])

    def __len__(self) -> int:
        return len(self._data) // _ENTRY.size

    def _at(self, number: int) -> AbortedTransaction:
        return AbortedTransaction(*_ENTRY.unpack_from(self._data, number * _ENTRY.size)[1:])

    @property
    def entries(self) -> list[AbortedTransaction]:
        """All aborted transactions, in the order of their markers."""
        return [self._at(number) for number in range(len(self))]

    @property
    def last(self) -> AbortedTransaction | None:
        return self._at(len(self) - 1) if self._data else None

    def append(self, aborted: AbortedTransaction) -> None:
        assert self.last is None or self.last.last_offset < aborted.last_offset, "markers come in order"
        self._data += _ENTRY.pack(0, *aborted)

    def cut(self, offset: Offset) -> None:
        """Drop what was aborted at `offset` or after it."""
        del self._data[self._first(offset) * _ENTRY.size :]

    def cut_to_size(self, size: int) -> None:
        """Keep what is in the first `size` bytes of the file."""
        del self._data[size:]

    def encode(self) -> bytes:
        return bytes(self._data)

    def _first(self, offset: Offset) -> int:
        """The number of the first entry whose marker is at `offset` or after it."""
        data, size = self._data, _ENTRY.size
        return bisect_left(
            range(len(self)), offset, key=lambda number: _LAST_OFFSET.unpack_from(data, number * size)[0]
        )

    def collect(self, fetch_offset: Offset, upper_bound: Offset, found: list[AbortedTransaction]) -> bool:
        """Add what a reader of [fetch_offset, upper_bound) must know; True if no later segment can have more."""
        for number in range(self._first(fetch_offset), len(self)):
            entry = self._at(number)
            if entry.first_offset < upper_bound:
                found.append(entry)
            if entry.last_stable_offset >= upper_bound:
                return True
        return False
