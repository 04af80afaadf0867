"""Sparse indexes of a segment, in Apache Kafka's formats.

`.index`: per entry int32 offset relative to the segment's base, int32 position.
`.timeindex`: per entry int64 timestamp, int32 relative offset of the first record of that time or later.
An entry is kept in memory until it is written to its file, when the segment is rolled or checkpointed: after a crash
what is missing is made again from the log.
"""

from __future__ import annotations

from pathlib import Path
from struct import Struct

from crc32c import crc32c

from fencepost.log.damage import FileDamaged
from fencepost.log.disk import Disk, File, closed_on_failure
from fencepost.log.segment_sums import FileSum
from fencepost.protocol.types import Milliseconds

_OFFSET = Struct(">ii")
_TIME = Struct(">qi")
_REMEDY = "put back a copy of it, or move it away: it is made again at the next start"


class _Index:
    """Entries of one size, sorted by their first number.  What is in the file already is not kept in memory.

    Whatever reads an entry raises FileDamaged if the file cannot be read or has become shorter.
    """

    _entry: Struct

    def __init__(self, disk: Disk, path: Path) -> None:
        self._disk = disk
        self._path = path
        self._tail = bytearray()
        """The entries that are not in the file yet, encoded."""
        self._in_file: int | None = None
        self._newest: tuple[int, int] | None = None
        """The last entry, once it was asked for."""
        self._crc: int | None = None
        """CRC-32C of what is in the file; None until it is asked for."""

    @property
    def _written(self) -> int:
        """Bytes of the file that count; asked for at first use."""
        if self._in_file is None:
            self._in_file = 0
            if self._disk.exists(self._path):
                file = self._open()
                self._in_file = file.size() // self._entry.size * self._entry.size
                file.close()
        return self._in_file

    def _open(self) -> File:
        try:
            return self._disk.open(self._path)
        except OSError as error:
            raise FileDamaged(self._path, f"cannot be opened: {error.strerror or error}; {_REMEDY}") from error

    def _read(self, file: File, at: int) -> bytes:
        try:
            data = file.pread(self._entry.size, at)
        except OSError as error:
            raise FileDamaged(self._path, f"cannot be read: {error.strerror or error}; {_REMEDY}") from error
        if len(data) < self._entry.size:
            raise FileDamaged(self._path, f"ends before byte {at + self._entry.size}, and had more once; {_REMEDY}")
        return data

    @property
    def count(self) -> int:
        return (self._written + len(self._tail)) // self._entry.size

    def last(self) -> tuple[int, int] | None:
        """The last entry; None if there is none."""
        if self._newest is None and self.count:
            self._newest = self._at(self.count - 1)
        return self._newest

    def _at(self, number: int, file: File | None = None) -> tuple[int, int]:
        at = number * self._entry.size
        if at >= self._written:
            first, second = self._entry.unpack_from(self._tail, at - self._written)
        elif file is None:
            file = self._open()
            try:
                return self._at(number, file)
            finally:
                file.close()
        else:
            first, second = self._entry.unpack(self._read(file, at))
        return first, second

    def _append(self, first: int, second: int) -> None:
        self._tail += self._entry.pack(first, second)
        self._newest = first, second

    def _floor(self, key: int) -> tuple[int, int] | None:
        """The last entry whose first number is at most `key`; None if there is none."""
        file = self._open() if self._written else None
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
        """Drop entries from the end until the last is in order and its second number is below `limit`.

        Behind what was synced a power loss may have left anything: entries of later batches, and zeros.
        """
        count = self.count
        file = self._open() if self._written else None
        try:
            while count and not self._is_in_order(count - 1, limit, file):
                count -= 1
        finally:
            if file is not None:
                file.close()
        size = count * self._entry.size
        del self._tail[max(size - self._written, 0) :]
        if size < self._written:
            self._in_file, self._crc = size, None
        self._newest = None

    def _is_in_order(self, number: int, limit: int, file: File | None) -> bool:
        first, second = self._at(number, file)
        if second >= limit or number == 0:
            return second < limit
        before = self._at(number - 1, file)
        return first > before[0] and second > before[1]

    def was_looked_at(self, found: FileSum) -> None:
        """The file was just found to begin with these bytes: if it changes behind our back, the next sum shows it."""
        if self._written == found.size:
            self._crc = found.crc

    def clear(self) -> None:
        """Forget all entries; `write` then leaves in the file what is appended from now on."""
        self._tail.clear()
        self._in_file, self._newest, self._crc = 0, None, 0

    def write(self) -> File:
        """Bring the file up to date; returns it open, to be synced and closed."""
        written, crc = self._written, self._crc
        with closed_on_failure() as opened:
            file = self._disk.open(self._path)
            opened.append(file)
            if crc is None:
                crc = crc32c(file.pread(written, 0))
            if self._tail:
                file.pwrite(bytes(self._tail), written)
                crc = crc32c(bytes(self._tail), crc)
                written += len(self._tail)
            file.truncate(written)
        self._in_file, self._crc = written, crc
        self._tail.clear()
        return file

    @property
    def sum(self) -> FileSum:
        """Size and CRC-32C of the file, after `write`."""
        assert self._crc is not None, "it was written"
        return FileSum(self._written, self._crc)


class OffsetIndex(_Index):
    """The positions of batches in the segment, by offset."""

    _entry = _OFFSET

    def append(self, relative_offset: int, position: int) -> None:
        self._append(relative_offset, position)

    def floor(self, relative_offset: int) -> tuple[int, int] | None:
        """The last batch that is noted and ends at this offset or before it: its last offset, and where it stands."""
        return self._floor(relative_offset)


class TimeIndex(_Index):
    """The largest timestamps so far, and the offsets that had them."""

    _entry = _TIME

    def append(self, timestamp: Milliseconds, relative_offset: int) -> None:
        """Note a new largest timestamp; one that is not larger is passed over."""
        last = self.last()
        if last is None or (timestamp > last[0] and relative_offset > last[1]):
            self._append(timestamp, relative_offset)

    def floor(self, timestamp: Milliseconds) -> tuple[int, int] | None:
        """The last entry that is older than `timestamp`: so is every record before the offset that it names."""
        return self._floor(timestamp - 1)

    def newest_before(self, relative_offset: int) -> tuple[int, int] | None:
        """The entry of the largest timestamp that was noted for what stands before this offset."""
        number = self.count
        while number:
            number -= 1
            noted = self._at(number)
            if noted[1] < relative_offset:
                return noted
        return None
