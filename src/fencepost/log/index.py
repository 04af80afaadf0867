"""Sparse indexes of a segment, in Apache Kafka's formats.

`.index`: per entry int32 offset relative to the segment's base, int32 position.
`.timeindex`: per entry int64 timestamp, int32 relative offset of the first record of that time or later.
An entry is kept in memory until it is written to its file, when the segment is rolled or checkpointed: after a crash
what is missing is made again from the log.
"""

from __future__ import annotations

from pathlib import Path
from struct import Struct

from fencepost.log.disk import Disk, File

_OFFSET = Struct(">ii")
_TIME = Struct(">qi")


class _Index:
    """Entries of one size, sorted by their first number.  What is in the file already is not kept in memory."""

    _entry: Struct

    def __init__(self, disk: Disk, path: Path) -> None:
        self._disk = disk
        self._path = path
        self._tail = bytearray()
        """What is not in the file yet."""
        self._in_file: int | None = None
        self._newest: tuple[int, int] | None = None
        """The last entry, once it was asked for."""

    @property
    def _written(self) -> int:
        """Bytes of the file that count; asked for at first use."""
        if self._in_file is None:
            self._in_file = 0
            if self._disk.exists(self._path):
                file = self._disk.open(self._path)
                self._in_file = file.size() // self._entry.size * self._entry.size
                file.close()
        return self._in_file

    @property
    def count(self) -> int:
        return (self._written + len(self._tail)) // self._entry.size

    def last(self) -> tuple[int, int] | None:
        """The last entry."""
        if self._newest is None and self.count:
            self._newest = self._at(self.count - 1)
        return self._newest

    def _at(self, number: int, file: File | None = None) -> tuple[int, int]:
        at = number * self._entry.size
        if at >= self._written:
            first, second = self._entry.unpack_from(self._tail, at - self._written)
        elif file is None:
            file = self._disk.open(self._path)
            try:
                return self._at(number, file)
            finally:
                file.close()
        else:
            first, second = self._entry.unpack(file.pread(self._entry.size, at))
        return first, second

    def _append(self, first: int, second: int) -> None:
        self._tail += self._entry.pack(first, second)
        self._newest = first, second

    def _floor(self, key: int) -> tuple[int, int] | None:
        """The last entry whose first number is at most `key`."""
        file = self._disk.open(self._path) if self._written else None
        try:
            low, high = 0, self.count
            while low < high:
                middle = (low + high) // 2
                if self._at(middle, file)[0] <= key:
                    low = middle + 1
                else:
                    high = middle
            return self._at(low - 1, file) if low else None
        finally:
            if file is not None:
                file.close()

    def cut_to(self, limit: int) -> None:
        """Keep what was in order before the second numbers of entries came to `limit`.

        Behind what was synced a power loss may have left anything: entries of later batches, and zeros.
        """
        count = self.count
        file = self._disk.open(self._path) if self._written else None
        try:
            while count and not self._is_in_order(count - 1, limit, file):
                count -= 1
        finally:
            if file is not None:
                file.close()
        size = count * self._entry.size
        del self._tail[max(size - self._written, 0) :]
        self._in_file = min(self._written, size)
        self._newest = None

    def _is_in_order(self, number: int, limit: int, file: File | None) -> bool:
        first, second = self._at(number, file)
        if second >= limit or number == 0:
            return second < limit
        before = self._at(number - 1, file)
        return first > before[0] and second > before[1]

    def write(self) -> File:
        """Bring the file up to date; returns it open, to be synced and closed."""
        written, file = self._written, self._disk.open(self._path)
        if self._tail:
            file.pwrite(bytes(self._tail), written)
            written += len(self._tail)
        file.truncate(written)
        self._in_file = written
        self._tail.clear()
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

    def newest_before(self, relative_offset: int) -> int:
        """The offset of the largest timestamp that was noted for what stands before this one."""
        number = self.count
        while number:
            number -= 1
            noted = self._at(number)[1]
            if noted < relative_offset:
                return noted
        return 0
