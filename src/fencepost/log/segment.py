"""One segment of a partition: a file of batches and its indexes."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from fencepost.log.disk import Disk, File
from fencepost.log.index import OffsetIndex, TimeIndex
from fencepost.log.transaction_index import AbortedTransaction, TransactionIndex
from fencepost.protocol.batch import HEADER_SIZE, BatchHeader, headers, read_header
from fencepost.protocol.types import Buffer

_WALK_BYTES = 1024 * 1024


class Segment:
    """Batches from `base_offset` on.  The indexes are kept in memory and written by `write_indexes`."""

    def __init__(self, disk: Disk, directory: Path, base_offset: int, number: int, index_interval_bytes: int) -> None:
        self._disk = disk
        self._directory = directory
        self.base_offset = base_offset
        self.number = number
        """Under this number the commit log knows it."""
        self._interval = index_interval_bytes
        self.file = disk.open(self.path)
        self.size = self.file.size()
        self.offsets = OffsetIndex(disk, self._beside(".index"))
        self.times = TimeIndex(disk, self._beside(".timeindex"))
        self.transactions = self._read_transactions()
        self._since_index = 0
        self.max_timestamp = -1
        self._max_timestamp_offset = base_offset
        if self.size:
            self._newest_from_index()
        self.created = -1
        """When the first batch came, by the broker's clock; -1 while empty or unknown."""

    @property
    def path(self) -> Path:
        return self._beside(".log")

    def _beside(self, suffix: str) -> Path:
        return self._directory / f"{self.base_offset:020d}{suffix}"

    def _read_transactions(self) -> TransactionIndex:
        path = self._beside(".txnindex")
        if not self._disk.exists(path):
            return TransactionIndex()
        file = self._disk.open(path)
        try:
            return TransactionIndex.read(file)
        finally:
            file.close()

    # Writing

    def append(self, data: Buffer, header: BatchHeader, base_offset: int) -> int:
        """Write a batch behind the others; returns its position.  Raises NothingLeft with nothing changed."""
        position = self.size
        self.file.pwrite(data, position)
        self.note(header, base_offset, position)
        self.size = position + len(data)
        return position

    def note(self, header: BatchHeader, base_offset: int, position: int) -> None:
        """Keep the indexes up with a batch that stands at `position`."""
        if header.max_timestamp > self.max_timestamp:
            self.max_timestamp = header.max_timestamp
            self._max_timestamp_offset = base_offset + header.last_offset_delta
        if self._since_index > self._interval:
            self.offsets.append(base_offset + header.last_offset_delta - self.base_offset, position)
            self.times.append(self.max_timestamp, self._max_timestamp_offset - self.base_offset)
            self._since_index = 0
        self._since_index += header.size

    def write_indexes(self) -> list[File]:
        """Bring the index files up to date; returns them open, to be synced and closed."""
        if self.max_timestamp >= 0:
            # So that the largest timestamp is known again after a restart.
            self.times.append(self.max_timestamp, self._max_timestamp_offset - self.base_offset)
        files = [self.offsets.write(), self.times.write()]
        if len(self.transactions) or self._disk.exists(self._beside(".txnindex")):
            file = self._disk.open(self._beside(".txnindex"))
            data = self.transactions.encode()
            file.pwrite(data, 0)
            file.truncate(len(data))
            files.append(file)
        return files

    def cut_indexes(self, position: int, next_offset: int) -> None:
        """Trust the indexes only for what stands before `position`, where the batch `next_offset` begins."""
        self.offsets.cut_to(position)
        self.times.cut_to(next_offset - self.base_offset)
        self.transactions.cut(next_offset)
        while (last := self.transactions.last) is not None and not self._has_marker_of(last, position):
            self.transactions.cut(last.last_offset)
        self._newest_from_index()

    def _has_marker_of(self, aborted: AbortedTransaction, end: int) -> bool:
        """Half an entry, which a power loss may leave, can look like a whole one."""
        for _, header, _ in self.walk(self.offsets.position_of(aborted.last_offset - self.base_offset), end):
            if header.last_offset >= aborted.last_offset:
                there = header.base_offset, header.producer_id
                return header.is_control and there == (aborted.last_offset, aborted.producer_id)
        return False

    def _newest_from_index(self) -> None:
        last = self.times.last()
        self.max_timestamp, self._max_timestamp_offset = -1, self.base_offset
        if last is not None:
            self.max_timestamp, self._max_timestamp_offset = last[0], self.base_offset + last[1]

    # Reading

    def walk(self, position: int, end: int | None = None) -> Iterator[tuple[int, BatchHeader, memoryview]]:
        """Position, header and bytes of each whole batch from `position` on."""
        stop = self.size if end is None else end
        while position + HEADER_SIZE <= stop:
            chunk = memoryview(self.file.pread(min(_WALK_BYTES, stop - position), position))
            took = 0
            for at, header in headers(chunk):
                yield position + at, header, chunk[at : at + header.size]
                took = at + header.size
            if took == 0:
                size = read_header(chunk).size
                if position + size > stop:
                    return
                chunk = memoryview(self.file.pread(size, position))
                if len(chunk) < size:
                    return
                yield position, read_header(chunk), chunk
                took = size
            position += took

    def locate(self, offset: int) -> int | None:
        """Position of the first batch that ends at `offset` or after it; None if there is none here."""
        position = self.offsets.position_of(offset - self.base_offset)
        for at, header in self.headers_from(position):
            if header.last_offset >= offset:
                return at
        return None

    def newest_before(self, offset: int) -> tuple[BatchHeader, int] | None:
        """Header and position of the first batch with the largest timestamp among those before `offset`."""
        if self._max_timestamp_offset < offset:
            found = next(self.headers_from(self.locate(self._max_timestamp_offset) or 0), None)
            if found is not None and found[1].max_timestamp == self.max_timestamp:
                return found[1], found[0]
        best: tuple[BatchHeader, int] | None = None
        noted = self.base_offset + self.times.newest_before(offset - self.base_offset)
        for position, header in self.headers_from(self.locate(noted) or 0):
            if header.base_offset >= offset:
                break
            if best is None or header.max_timestamp > best[0].max_timestamp:
                best = header, position
        return best

    def headers_from(self, position: int) -> Iterator[tuple[int, BatchHeader]]:
        """Position and header of each batch from `position` on, reading little more than the headers."""
        while position + HEADER_SIZE <= self.size:
            chunk = self.file.pread(min(16_384, self.size - position), position)
            at = 0
            while at + HEADER_SIZE <= len(chunk):
                header = read_header(chunk, at)
                yield position + at, header
                at += header.size
            position += at

    def close(self) -> None:
        self.file.close()

    def remove(self) -> None:
        """Close and remove all files of the segment."""
        self.close()
        for suffix in (".log", ".index", ".timeindex", ".txnindex"):
            self._disk.remove(self._beside(suffix))
