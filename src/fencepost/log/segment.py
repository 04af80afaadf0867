"""One segment of a partition: a file of batches and its indexes."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Final

from crc32c import crc32c

from fencepost.log.damage import FileDamaged
from fencepost.log.disk import Disk, File, closed_on_failure
from fencepost.log.file_names import numbered_path
from fencepost.log.segment_indexes import IndexesBeingMade, Making, SegmentIndexes, with_indexes_at_once
from fencepost.log.segment_sums import SUFFIX, FileSum, SegmentSums, drop_sums, read_sums, were_dropped
from fencepost.log.transaction_index import AbortedTransaction, TransactionIndex
from fencepost.node_log import get_logger
from fencepost.protocol.batch import HEADER_SIZE, BatchHeader, crc_matches, read_header
from fencepost.protocol.errors import ErrorCode, ProtocolError
from fencepost.protocol.types import NO_OFFSET, Buffer, Milliseconds, Offset

logger = get_logger(__name__)

_WALK_BYTES = 1024 * 1024
SUFFIXES: Final = (".log", ".index", ".timeindex", ".txnindex", SUFFIX)
"""The endings of the names of a segment's files."""
_MISSING: Final = ErrorCode.KAFKA_STORAGE_ERROR


class Segment:
    """Batches from `base_offset` on.  The indexes are kept in memory and written by `write_indexes`.

    Whatever reads raises FileDamaged where the bytes are missing or are no batch that can stand there.  An index that
    leads elsewhere than to the batch that it names is made again from the batches: as long as that takes, whatever
    needs it raises IndexesBeingMade.
    """

    def __init__(
        self, disk: Disk, directory: Path, base_offset: Offset, number: int, index_interval_bytes: int, ending: str = ""
    ) -> None:
        self._disk, self._directory = disk, directory
        self._ending = ending
        """What the names of all its files end with besides: a segment that is being made has something."""
        self.base_offset = base_offset
        self.number = number
        """Under this number the commit log knows it."""
        self._interval = index_interval_bytes
        with closed_on_failure() as opened:
            opened.append(file := disk.open(self.path))
            self.size = file.size()
            self.transactions = TransactionIndex.read(disk, self._beside(".txnindex"))
        self.file, self.indexes = file, self._no_indexes()
        self.next_offset = NO_OFFSET
        """The offset behind the last batch; -1: not known."""
        self._sums: SegmentSums | None = None
        """What its indexes must be, as long as that was not looked at."""
        self._making: Making | None = None
        self._made_in_vain = ErrorCode.NONE  # else what is raised where an index leads astray again
        """Whether making them again would not help: the batches are damaged themselves, or it was just done."""
        if self.size:
            self.indexes.believe_times()
        self.created = -1
        """When the first batch came (ms), by the broker's clock; -1 while empty or unknown."""

    @property
    def path(self) -> Path:
        return self._beside(".log")

    def _beside(self, suffix: str) -> Path:
        return numbered_path(self._directory, self.base_offset, suffix + self._ending)

    def _no_indexes(self) -> SegmentIndexes:
        return SegmentIndexes(self._disk, self.path, self.base_offset, self._interval)

    @property
    def max_timestamp(self) -> Milliseconds:
        """The largest one of its batches; -1 while there is none."""
        return self.indexes.max_timestamp

    # Writing

    def append(self, data: Buffer, header: BatchHeader, base_offset: Offset) -> int:
        """Write a batch behind the others; returns its position.  Raises NothingLeft, FileDamaged, with no change."""
        position = self.size
        self.check_length()  # else what is gone would be zeros
        self.file.pwrite(data, position)
        self.note(header, base_offset, position)
        self.size = position + len(data)
        return position

    def note(self, header: BatchHeader, base_offset: Offset, position: int) -> None:
        """Keep the indexes up with a batch that stands at `position`."""
        last = Offset(base_offset + header.last_offset_delta)
        self.next_offset = Offset(last + 1)
        self.indexes.note(header, last, position)

    def write_indexes(self) -> list[File]:
        """Bring the index files up to date; returns them open, to be synced and closed."""
        with_indexes_at_once(self._check_indexes)
        if self.max_timestamp >= 0:
            # So that the largest timestamp is known again after a restart.
            self.indexes.note_time()
        with closed_on_failure() as files:
            self.indexes.write(files)
            self._made_in_vain = ErrorCode.NONE  # from here on they are read from their files
            transactions = FileSum(0, 0)
            # One without entries takes the place of one that has some.
            former = numbered_path(self._directory, self.base_offset, ".txnindex")
            if len(self.transactions) or self._disk.exists(former):
                files.append(self._disk.open(self._beside(".txnindex")))
                data = self.transactions.encode()
                files[-1].pwrite(data, 0)
                files[-1].truncate(len(data))
                transactions = FileSum(len(data), crc32c(data))
            newest = self.max_timestamp, self.indexes.max_timestamp_offset
            indexes = self.indexes.offsets.sum, self.indexes.times.sum
            sums = SegmentSums(self.size, max(self.next_offset, self.base_offset), *newest, *indexes, transactions)
            files.append(sums.write(self._disk, self._beside(SUFFIX)))
        return files

    def cut_indexes(self, position: int, next_offset: Offset) -> None:
        """Trust the indexes only for what stands before `position`, where the batch `next_offset` begins."""
        sums = read_sums(self._disk, self._beside(SUFFIX))
        self.next_offset, self._sums = next_offset, None
        self.indexes.offsets.cut_to(position)
        self.indexes.times.cut_to(next_offset - self.base_offset)
        self.transactions.cut(next_offset)
        if sums is not None and sums.log_size == position:
            # `is_as_of` has found them whole: what a power loss left is behind them.
            self.indexes.offsets.was_looked_at(sums.offsets)
            self.indexes.times.was_looked_at(sums.times)
            self.transactions.cut_to_size(sums.transactions.size)
            self.indexes.believe_times()
            return
        try:
            self._find_newest(position)
        except FileDamaged as damaged:
            logger.warning("%s", damaged)
            self.indexes.believe_times()
        while (last := self.transactions.last) is not None and not self._has_marker_of(last, position):
            self.transactions.cut(last.last_offset)

    def trust_checksums(self, following: Offset) -> bool:
        """Believe what `.checksums` says: nothing is written to it any more.  `following`: where the next one begins.

        Returns False if its indexes have to be made again: there is no `.checksums`, or that is another segment's or an
        older one, or its transaction index is not what it was.  The others are looked at when they are used.
        """
        sums = read_sums(self._disk, self._beside(SUFFIX))
        if sums is None or not self.base_offset + bool(sums.log_size) <= sums.next_offset <= following:
            return False  # the one before ends where this one begins
        if sums.next_offset < following and sums.log_size < self.size:
            return False
        self._sums = sums
        if self.size != sums.log_size:
            logger.error(
                "%s has %d bytes and had %d: what is missing cannot be read, and what is too much is not; put back a "
                "copy of it, with the node stopped",
                *(self.path, self.size, sums.log_size),
            )
        self.size, self.next_offset = sums.log_size, sums.next_offset
        self.indexes.believe(sums)
        return sums.transactions.is_of(self._disk, self._beside(".txnindex")) and (
            len(self.transactions.encode()) == sums.transactions.size
        )

    def _find_newest(self, end: int) -> None:
        """The time index may have lost entries: before `end`, look for the largest timestamp from its last one on."""
        size, self.size = self.size, end  # what is behind may be anything
        try:
            position = with_indexes_at_once(lambda: self._position_of_entry(lambda: self.indexes.times.last()))
            self.indexes.forget_newest()
            for _, header in self.headers_from(position):
                self.indexes.note_newest(header, header.last_offset)
        finally:
            self.size = size

    def drop_stale_checksums(self) -> None:
        """Empty `.checksums` after a crash, if it is not of the segment as it is now."""
        path = self._beside(SUFFIX)
        if not self._disk.exists(path):
            return
        sums = read_sums(self._disk, path)
        if sums is None or (sums.log_size, sums.next_offset) != (self.size, self.next_offset):
            drop_sums(self._disk, path)

    def is_as_of(self, position: int) -> bool:
        """Whether the indexes are what they were when the segment had `position` bytes.

        Where `.checksums` is of another moment, or emptied because it was, they are trusted up to there.
        """
        sums = read_sums(self._disk, self._beside(SUFFIX))
        if sums is None or sums.log_size != position:
            return sums is not None or were_dropped(self._disk, self._beside(SUFFIX))
        found = ((sums.offsets, ".index"), (sums.times, ".timeindex"), (sums.transactions, ".txnindex"))
        return all(each.is_of(self._disk, self._beside(suffix)) for each, suffix in found)

    def begin_indexes_again(self) -> None:
        """Forget what the files of its indexes say: all of its batches will be noted."""
        self.indexes, self.transactions, self._sums = self._no_indexes(), TransactionIndex(), None
        self.indexes.clear()

    def _check_indexes(self) -> None:
        """Look at the indexes once, before they are used.  Raises IndexesBeingMade while they are made again."""
        if self._making is not None:
            raise IndexesBeingMade(self.path, self.make_indexes_further)
        sums, self._sums = self._sums, None
        if sums is not None and not (
            sums.offsets.is_of(self._disk, self._beside(".index"))
            and sums.times.is_of(self._disk, self._beside(".timeindex"))
        ):
            self._make_indexes_again()

    def _has_marker_of(self, aborted: AbortedTransaction, end: int) -> bool:
        """Whether its marker is there: half an entry, which a power loss may leave, can look like a whole one."""
        start = with_indexes_at_once(lambda: self._position_before(aborted.last_offset))
        for _, header, _ in self.walk(start, end):
            if header.last_offset >= aborted.last_offset:
                there = header.base_offset, header.producer_id
                return header.is_control and there == (aborted.last_offset, aborted.producer_id)
        return False

    # Reading

    def read(self, count: int, position: int, least: int) -> bytes:
        """So many bytes from `position` on; if the file is shorter, `least` or more.  Raises FileDamaged."""
        try:
            data = self.file.pread(count, position)
        except OSError as error:
            raise self.damaged(position, f"the disk does not give it: {error.strerror or error}", _MISSING) from error
        if len(data) < min(count, least):
            raise self.damaged(position + len(data), f"the file ends there, and had {self.size} bytes", _MISSING)
        return data

    def check_length(self) -> None:
        """Raises FileDamaged if the file has become shorter: what was before a gap may have been cut out of it."""
        if (size := self.file.size()) < self.size:
            raise self.damaged(size, f"the file ends there, and had {self.size} bytes", _MISSING)

    def damaged(self, position: int, wrong: str, error: ErrorCode = ErrorCode.CORRUPT_MESSAGE) -> FileDamaged:
        """The error that something is wrong with the batch at `position`."""
        remedy = "put back a copy of this file, with the node stopped"
        return FileDamaged(self.path, f"is damaged at byte {position}: {wrong}; {remedy}", error)

    def header(self, buffer: Buffer, at: int, position: int, least_offset: int) -> BatchHeader:
        """The header at `at`, of a batch at `position` with offsets from `least_offset` on.  Raises FileDamaged."""
        try:
            header = read_header(buffer, at)
        except ProtocolError as error:
            raise self.damaged(position, str(error)) from error
        first, delta = header.base_offset, header.last_offset_delta
        if first < least_offset or delta < 0 or first + delta - self.base_offset > 0x7FFFFFFF:
            offsets = f"{first} to {first + delta}"
            raise self.damaged(position, f"a batch of offsets {offsets} cannot stand behind {least_offset - 1}")
        return header

    def walk(self, position: int, end: int | None = None) -> Iterator[tuple[int, BatchHeader, memoryview]]:
        """Position, header and bytes of each whole batch from `position` on.  Raises FileDamaged, unless at `end`."""
        stop = self.size if end is None else end
        following: int = self.base_offset
        while position < stop:
            chunk = memoryview(self.read(min(_WALK_BYTES, stop - position), position, HEADER_SIZE))
            at, length = 0, len(chunk)
            while at + HEADER_SIZE <= length:
                header = self.header(chunk, at, position + at, following)
                after = at + header.size
                if after > length:
                    break
                self._check_gap(header, following, chunk, after, position + after)
                yield position + at, header, chunk[at:after]
                at = after
                following = header.last_offset + 1
            if at == 0:
                size = self.header(chunk, 0, position, following).size if len(chunk) >= HEADER_SIZE else HEADER_SIZE
                if position + size > stop:
                    if end is not None:
                        return
                    raise self.damaged(position, "the file ends within a batch")
                chunk = memoryview(self.read(size, position, size))
                header = self.header(chunk, 0, position, following)
                yield position, header, chunk
                at, following = size, header.last_offset + 1
            position += at

    def headers_from(self, position: int) -> Iterator[tuple[int, BatchHeader]]:
        """Position and header of each batch from `position` on, reading little else.  Raises FileDamaged."""
        following: int = self.base_offset
        while position < self.size:
            chunk = self.read(min(16_384, self.size - position), position, HEADER_SIZE)
            at = 0
            while at + HEADER_SIZE <= len(chunk):
                header = self.header(chunk, at, position + at, following)
                if position + at + header.size > self.size:
                    raise self.damaged(position + at, "the file ends within a batch")
                self._check_gap(header, following, chunk, at + header.size, position + at + header.size)
                yield position + at, header
                at += header.size
                following = header.last_offset + 1
            if at == 0:
                raise self.damaged(position, "the file ends within a batch")
            position += at

    def _check_gap(self, header: BatchHeader, following: int, chunk: Buffer, after: int, position: int) -> None:
        """Raises FileDamaged if a batch with a gap before it cannot be right: the one after it tells."""
        if header.base_offset > following:
            self.check_length()
            if after + HEADER_SIZE <= len(chunk):
                self.header(chunk, after, position, header.last_offset + 1)

    def locate(self, offset: Offset) -> int | None:
        """Position of the first batch that ends at `offset` or after it; None if there is none here."""
        before: tuple[int, BatchHeader] | None = None
        for at, header in self.headers_from(self._position_before(offset)):
            if header.last_offset >= offset:
                if header.base_offset > offset:
                    self._check_batch(before)
                return at
            before = at, header
        self._check_batch(before)
        return None

    def _check_batch(self, place: tuple[int, BatchHeader] | None) -> None:
        """Raises FileDamaged if the CRC of the batch at this place does not match; None: there is no batch to check."""
        if place is not None:
            position, header = place
            if not crc_matches(self.read(header.size, position, header.size), 0, header):
                raise self.damaged(position, "the CRC of the batch does not match")

    def locate_at_once(self, offset: Offset) -> int | None:
        """As `locate`, with indexes made in one step where they must be."""
        return with_indexes_at_once(lambda: self.locate(offset))

    def _position_before(self, offset: Offset) -> int:
        """Position of the last indexed batch that ends before `offset` or with it; 0 if there is none."""
        self._check_indexes()
        try:
            found = self.indexes.offsets.floor(offset - self.base_offset)
            if found is None:
                return 0
            if self._has_batch(*found):
                return found[1]
        except FileDamaged as damaged:
            # Of the log itself who reads it is told.
            if damaged.path != self.path and not self._made_in_vain:
                logger.warning("%s", damaged)
        self._make_indexes_again()
        return self._position_before(offset)

    def _has_batch(self, relative_offset: int, position: int) -> bool:
        """Whether the batch that ends at this offset stands there."""
        if not 0 <= position <= self.size - HEADER_SIZE:
            return False
        try:
            header = read_header(self.read(HEADER_SIZE, position, HEADER_SIZE))
        except ProtocolError:
            return False
        return header.last_offset == self.base_offset + relative_offset

    def _make_indexes_again(self) -> None:
        if self._made_in_vain:
            raise self.damaged(0, "neither can its index be used nor all of its batches be read", self._made_in_vain)
        self._making = Making(self._no_indexes(), self.headers_from(0))
        self._make_a_step()
        if self._making is not None:
            raise IndexesBeingMade(self.path, self.make_indexes_further)

    def make_indexes_further(self) -> None:
        """Do a step of making the indexes again, if one is left.  What the old ones lead to can still be read."""
        if self._making is not None:
            with suppress(FileDamaged):
                self._make_a_step()

    def _make_a_step(self) -> None:
        assert self._making is not None
        try:
            if not self._making.is_done_after_a_step():
                return
        except FileDamaged as damaged:
            self._making, self._made_in_vain = None, damaged.error
            raise
        self.indexes, self._making, self._made_in_vain = self._making.fresh, None, ErrorCode.CORRUPT_MESSAGE
        logger.warning("the index of %s led astray and was made again from its batches", self.path)

    def position_from(self, timestamp: Milliseconds) -> int:
        """Position of a batch before which all records are older than `timestamp`."""
        return self._position_of_entry(lambda: self.indexes.times.floor(timestamp))

    def _position_of_entry(self, find: Callable[[], tuple[int, int] | None]) -> int:
        """Position of the batch that an entry of the time index names; 0 if it does not say the same of itself."""
        self._check_indexes()
        try:
            entry = find()
        except FileDamaged:
            return 0
        position = 0 if entry is None else self.locate(Offset(self.base_offset + entry[1]))
        if not position or entry is None:
            return 0
        return position if next(self.headers_from(position))[1].max_timestamp == entry[0] else 0

    def newest_before(self, offset: Offset) -> tuple[int, int | None]:
        """Position of the first batch with the largest timestamp of those before `offset`, and of its end, if known.

        No end: somewhere from there on.  What its header says of it was not checked.
        """
        if self.indexes.max_timestamp_offset < offset:
            found = next(self.headers_from(self.locate(self.indexes.max_timestamp_offset) or 0), None)
            if found is not None and found[1].max_timestamp == self.max_timestamp:
                return found[0], found[0] + found[1].size
        return self._position_of_entry(lambda: self.indexes.times.newest_before(offset - self.base_offset)), None

    def close(self) -> None:
        self._making = None
        self.file.close()

    def remove(self) -> None:
        """Close and remove all files of the segment."""
        self.close()
        for suffix in SUFFIXES:
            self._disk.remove(self._beside(suffix))
