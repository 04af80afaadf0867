"""Sparse indexes of a segment, in Apache Kafka's formats.

`.index`: per entry int32 offset relative to the segment's base, int32 position.
`.timeindex`: per entry int64 timestamp, int32 relative offset of the first record of that time or later.
An entry is kept in memory and written to its file when the segment is rolled or checkpointed: after a crash what is
missing is made again from the log.
"""

from __future__ import annotations

from pathlib import Path
from struct import Struct

from fencepost.log.disk import Disk, File

_OFFSET = Struct(">ii")
_TIME = Struct(">qi")


class _Index:
    """Entries of one size, sorted by their first number."""

    _entry: Struct

    def __init__(self, disk: Disk, path: Path) -> None:
        self._disk = disk
        self._path = path
        self._loaded: bytearray | None = None
        self._written = 0

    @property
    def _data(self) -> bytearray:
        if self._loaded is None:
            self._loaded = bytearray()
            if self._disk.exists(self._path):
                file = self._disk.open(self._path)
                self._loaded += file.pread(file.size() // self._entry.size * self._entry.size, 0)
                file.close()
            self._written = len(self._loaded)
        return self._loaded

    @property
    def count(self) -> int:
        return len(self._data) // self._entry.size

    def last(self) -> tuple[int, int] | None:
        """The last entry."""
        return self._at(self.count - 1) if self._data else None

    def _at(self, number: int) -> tuple[int, int]:
        first, second = self._entry.unpack_from(self._data, number * self._entry.size)
        return first, second

    def _append(self, first: int, second: int) -> None:
        data = self._data
        data += self._entry.pack(first, second)

    def _floor(self, key: int) -> tuple[int, int] | None:
        """The last entry whose first number is at most `key`."""
        low, high = 0, self.count
        while low < high:
            middle = (low + high) // 2
            if self._at(middle)[0] <= key:
                low = middle + 1
            else:
                high = middle
        return self._at(low - 1) if low else None

    def cut(self, count: int) -> None:
        """Keep only the first `count` entries."""
        del self._data[count * self._entry.size :]
        self._written = min(self._written, len(self._data))

    def write(self) -> File:
        """Bring the file up to date; returns it open, to be synced and closed."""
        data, file = self._data, self._disk.open(self._path)
        if self._written < len(data):
            file.pwrite(bytes(data[self._written :]), self._written)
            self._written = len(data)
        file.truncate(self._written)
        return file


class OffsetIndex(_Index):
    """Where batches stand in the segment."""

    _entry = _OFFSET

    def append(self, relative_offset: int, position: int) -> None:
        self._append(relative_offset, position)

    def position_of(self, relative_offset: int) -> int:
        """A position at or before the batch with this offset."""
        found = self._floor(relative_offset)
        return found[1] if found else 0

    def cut_to_position(self, position: int) -> None:
        """Drop the entries of batches at `position` and after it."""
        count = self.count
        while count and self._at(count - 1)[1] >= position:
            count -= 1
        self.cut(count)


class TimeIndex(_Index):
    """The largest timestamps so far, and the offsets that had them."""

    _entry = _TIME

    def append(self, timestamp: int, relative_offset: int) -> None:
        """Note a new largest timestamp; one that is not larger is passed over."""
        last = self.last()
        if last is None or (timestamp > last[0] and relative_offset > last[1]):
            self._append(timestamp, relative_offset)

    def floor(self, timestamp: int) -> int:
        """A relative offset before which every record is older than `timestamp`."""
        found = self._floor(timestamp - 1)
        return found[1] if found else 0

    def cut_to_offset(self, relative_offset: int) -> None:
        """Drop the entries at `relative_offset` and after it."""
        count = self.count
        while count and self._at(count - 1)[1] >= relative_offset:
            count -= 1
        self.cut(count)
