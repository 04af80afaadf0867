"""Sizes and checksums of the files of a segment as last written: `<base>.checksums`, by which damage to them is seen.

Ours; Apache Kafka's tools do not look at it.  Written whenever the indexes are, emptied by a start after a crash where
it tells of more than is there.  The indexes of a segment without it, as older versions made them, or with one that is
not whole are made again.

Format: int16 version, int64 size of the log, int64 offset that follows it, int64 largest timestamp, int64 offset of
that; for `.index`, `.timeindex` and `.txnindex` each int64 size, uint32 CRC-32C; at last uint32 CRC-32C of all this.
"""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from struct import Struct
from typing import Final, NamedTuple

from crc32c import crc32c

from fencepost.log.disk import Disk, File, NothingLeft, closed_on_failure
from fencepost.log.file_names import numbered
from fencepost.protocol.types import Milliseconds, Offset

SUFFIX: Final = ".checksums"
_VERSION: Final = 1
_FRONT: Final = Struct(">hqqqq")
_SUM: Final = Struct(">qI")
_SIZE: Final = _FRONT.size + 3 * _SUM.size + 4


class FileSum(NamedTuple):
    """Size and CRC-32C of a file."""

    size: int
    crc: int

    def is_of(self, disk: Disk, path: Path) -> bool:
        """Whether the file begins with just that; what was appended later is not looked at."""
        data = b""
        if disk.exists(path):
            try:
                file = disk.open(path)
                try:
                    data = file.pread(self.size, 0)
                finally:
                    file.close()
            except NothingLeft:
                raise
            except OSError:
                return False
        return len(data) == self.size and crc32c(data) == self.crc


class SegmentSums(NamedTuple):
    """The size and end of a segment, its largest timestamp, and the sums of its indexes, when they were written."""

    log_size: int
    next_offset: Offset
    max_timestamp: Milliseconds
    max_timestamp_offset: Offset
    offsets: FileSum
    times: FileSum
    transactions: FileSum

    def write(self, disk: Disk, path: Path) -> File:
        """Replace the file; returns it open, to be synced and closed."""
        data = _FRONT.pack(_VERSION, *self[:4]) + b"".join(_SUM.pack(*each) for each in self[4:])
        with closed_on_failure() as opened:
            file = disk.open(path)
            opened.append(file)
            file.pwrite(data + crc32c(data).to_bytes(4, "big"), 0)
            file.truncate(_SIZE)
        return file


def drop_sums(disk: Disk, path: Path) -> None:
    """Empty the file, durably: what it says is not so any more."""
    file = disk.open(path)
    try:
        file.truncate(0)
        # Also if it is empty: a start that was killed may have left that in the page cache only.
        disk.sync_now([file])
    finally:
        file.close()


def were_dropped(disk: Disk, path: Path) -> bool:
    """Whether the file was emptied."""
    if not disk.exists(path):
        return False
    try:
        file = disk.open(path)
        try:
            return file.size() == 0
        finally:
            file.close()
    except NothingLeft:
        raise
    except OSError:
        return False


def read_sums(disk: Disk, path: Path) -> SegmentSums | None:
    """The content of the file; None if there is none, or it is damaged."""
    if not disk.exists(path):
        return None
    try:
        file = disk.open(path)
        try:
            data = file.pread(_SIZE + 1, 0)
        finally:
            file.close()
    except NothingLeft:
        raise
    except OSError:
        return None
    if len(data) != _SIZE or crc32c(data[:-4]) != int.from_bytes(data[-4:], "big"):
        return None
    version, *front = _FRONT.unpack_from(data)
    if version != _VERSION:
        return None
    sums = [FileSum(*_SUM.unpack_from(data, _FRONT.size + n * _SUM.size)) for n in range(3)]
    return SegmentSums(*front, *sums)


def noted_sizes(disk: Disk, directory: Path, names: Iterable[str]) -> dict[Offset, int]:
    """The bytes that segments had when `.checksums` was written, by base offset.  `names`: what is in the directory.

    Those that were written to later have more.  Left out are those that had none, or of which it cannot be read.
    """
    read = ((Offset(base), read_sums(disk, directory / name)) for name, base in numbered(names, SUFFIX))
    return {base: sums.log_size for base, sums in read if sums is not None and sums.log_size}
