"""One pass over one partition: what is superseded or aborted goes, in steps of a few milliseconds.

A pass is a generator.  It stops after every step: with None to let others work, with files to have them synced, with an
empty sequence when it must wait for somebody, with a function to have it called in another thread and be sent what it
returns, or the ProtocolError that it raises.  `Abandoned` may be thrown in at any such moment: then nothing has
changed, and the segments that are swapped already stay so.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Protocol, TypeVar

from fencepost.log.cleaner import retention, rewriting, swapping
from fencepost.log.cleaner.choice import Range, SegmentFacts, grouped
from fencepost.log.cleaner.offset_map import OffsetMap
from fencepost.log.cleaner.retention import LastBatch, Transactions, Verdict
from fencepost.log.disk import Disk, File
from fencepost.log.producers import Producers
from fencepost.log.reading import Reader
from fencepost.log.segment import Segment
from fencepost.log.segments import Segments
from fencepost.log.settings import LogSettings
from fencepost.log.transaction_index import AbortedTransaction
from fencepost.protocol.batch import BatchHeader, crc_matches, read_header
from fencepost.protocol.control import read_control_record
from fencepost.protocol.errors import ProtocolError
from fencepost.protocol.types import NO_TIMESTAMP, Milliseconds, Offset, ProducerId

#: Work of one step.  A batch counts one, a record one, and so do 2 KB: about 5 µs each.
STEP: Final = 500
_WORK_BYTES: Final = 2048

T = TypeVar("T")
Unfold = Callable[[], bytes]
Steps = Generator[Sequence[File] | Unfold | None, bytes | ProtocolError | None, T]
Batch = tuple[int, BatchHeader, memoryview]


class Uncleanable(Exception):
    """A segment cannot be read; the message says which, and where."""


class Abandoned(Exception):
    """The pass ends, for somebody else has changed its segments meanwhile; nothing is wrong."""


class Log(Protocol):
    """The part of a partition that a pass uses."""

    disk: Disk
    directory: Path
    settings: LogSettings
    producers: Producers
    segments: Segments
    is_held: bool
    """Whether no segment may be removed: some are being replaced on disk, or were to be when something went wrong."""
    scans: int
    """The number of readers that go over the segments one after the other."""

    @property
    def reader(self) -> Reader: ...

    def drop_segments(self) -> None: ...


@dataclass(slots=True)
class Statistics:
    """Counts of bytes and records that a pass read, wrote and kept."""

    bytes_mapped: int = 0
    bytes_read: int = 0
    bytes_written: int = 0
    records_read: int = 0
    records_kept: int = 0


class Pass:
    """Rewrites one range of a partition's segments without what is superseded or aborted, a few milliseconds at a time.

    `newest`: key -> newest offset of it; it must begin at the first dirty offset of the range.
    """

    def __init__(self, log: Log, over: Range, newest: OffsetMap, now: Milliseconds) -> None:
        self._log = log
        self._range = over
        self._newest = newest
        self._now = now
        self._work = 0
        self._sources = log.segments[: sum(each.base_offset < over.upper_bound for each in log.segments)]
        self._transactions = Transactions()
        self._segment, self._position = self._sources[0], 0
        """What is being read, for the one who must repair it."""
        self.statistics = Statistics()

    @property
    def end_offset(self) -> Offset:
        """The offset up to which the log is clean when the pass is done."""
        return Offset(self._newest.latest + 1)

    def steps(self) -> Steps[None]:
        """The steps of the pass.  Raises Uncleanable, FileDamaged, Abandoned, NothingLeft, OSError."""
        swapping.discard(self._log.disk, self._log.directory)
        try:
            yield from self._map()
            facts = [
                SegmentFacts(each.base_offset, each.size, NO_TIMESTAMP, NO_TIMESTAMP, True) for each in self._sources
            ]
            largest = self._log.settings.segment_bytes
            for first, behind in grouped(facts, self.end_offset, self._range.upper_bound, largest):
                yield from self._replace(self._sources[first:behind], self._end_of(behind - 1))
        except ProtocolError as error:
            raise Uncleanable(f"{self._place} cannot be read: {error}") from error

    def _end_of(self, number: int) -> Offset:
        following = self._sources[number + 1 : number + 2]
        return following[0].base_offset if following else self._range.upper_bound

    # The newest offset of every key

    def _map(self) -> Steps[None]:
        transactions, newest, first = Transactions(), self._newest, self._range.first_dirty_offset
        for number, segment in enumerate(self._sources):
            end = self._end_of(number)
            if end <= first:
                continue
            transactions.announce(self._log.segments.aborted_transactions(segment.base_offset, end))
            for _, header, data in self._batches(segment):
                if header.is_control:
                    self._end_transaction(transactions, header, data)
                elif not transactions.is_aborted(header) and header.last_offset >= first:
                    took = yield from self._note(header, data)
                    if not took:
                        return
                newest.latest = max(newest.latest, header.last_offset)
                self.statistics.bytes_mapped += header.size
                if self._work >= STEP:
                    yield from self._pause()
            newest.latest = Offset(end - 1)

    def _note(self, header: BatchHeader, data: memoryview) -> Steps[bool]:
        """Note the keys of a batch in the offset map; False if there is no room for one."""
        newest, first = self._newest, self._range.first_dirty_offset
        key = rewriting.only_key(header, data)
        if key is not None and crc_matches(data, 0, header) and newest.put(key, header.base_offset):
            return True
        body = yield from self._section(header, data)
        for span in rewriting.spans(header, body):
            self._work += 1
            if span.key is None or span.offset < first:
                continue
            if not newest.put(span.key, span.offset):
                newest.latest = Offset(span.offset - 1)
                return False
            if self._work >= STEP:
                yield from self._pause()
        return True

    # What stays

    def _replace(self, sources: list[Segment], end: Offset) -> Steps[None]:
        """Put one cleaned segment in the place of `sources`, which end before offset `end`.

        The log stays held if this fails once it is decided: then its files are not those that memory knows.
        """
        log, base = self._log, sources[0].base_offset
        with closing(log.disk.open_directory(log.directory)) as directory:
            yield from self._make(sources, end, directory)
            swapping.decide(log.disk, log.directory, base, end)
            log.is_held = True
            yield [directory]
            while log.scans:
                yield ()
            swapping.carry_out(log.disk, log.directory, base, end)
            fresh = Segment(log.disk, log.directory, base, -1, log.settings.index_interval_bytes)
            fresh.created = sources[-1].created
            _put_in_place(log, sources, fresh)
            yield [directory]

    def _make(self, sources: list[Segment], end: Offset, directory: File) -> Steps[None]:
        """The cleaned segment, whole and synced, with its indexes and the directory that it is in."""
        log, indexes = self._log, list[File]()
        interval = log.settings.index_interval_bytes
        cleaned = Segment(log.disk, log.directory, sources[0].base_offset, -1, interval, swapping.CLEANED)
        try:
            yield from self._write(sources, cleaned)
            # Who reads one segment after the other must not find a newer state behind an older one.
            while log.scans:
                yield ()
            self._check(sources)
            cleaned.next_offset = end  # whatever was compacted away before it
            indexes += cleaned.write_indexes()
            yield [cleaned.file, *indexes, directory]
            self._check(sources)
        except Exception:
            swapping.discard(log.disk, log.directory)
            raise
        finally:
            cleaned.close()
            for file in indexes:
                file.close()

    def _check(self, sources: list[Segment]) -> None:
        """Raises Abandoned if any of these segments is gone, as retention or DeleteRecords may have taken some."""
        held = self._log.segments
        at = next((number for number, each in enumerate(held) if each is sources[0]), len(held))
        if held[at : at + len(sources)] != sources:
            raise Abandoned

    def _write(self, sources: list[Segment], cleaned: Segment) -> Steps[None]:
        """Write into the cleaned segment what stays of these segments."""
        for segment in sources:
            end = self._end_of(self._sources.index(segment))
            self._transactions.announce(self._log.segments.aborted_transactions(segment.base_offset, end))
            for _, header, data in self._batches(segment):
                discardable = self._meet(header, data, cleaned)
                last = _last_batch(self._log.producers, header.producer_id)
                verdict = retention.judge(header, discardable, last, self._range.upper_bound, self._now)
                kept = yield from self._kept(header, data, verdict)
                if kept is not None:
                    anew = read_header(kept)
                    cleaned.append(kept, anew, anew.base_offset)
                    self.statistics.bytes_written += len(kept)
                    self.statistics.records_kept += anew.record_count
                self.statistics.bytes_read += header.size
                self.statistics.records_read += header.record_count
                if self._work >= STEP:
                    yield from self._pause()

    def _meet(self, header: BatchHeader, data: memoryview, cleaned: Segment) -> bool:
        """Show the batch to the transactions; whether it is aborted, or ends a transaction of which nothing is left."""
        if not header.is_control:
            return self._transactions.is_aborted(header)
        needless, aborted = self._end_transaction(self._transactions, header, data)
        if aborted is not None:
            cleaned.transactions.append(aborted)
        return needless

    def _end_transaction(
        self, transactions: Transactions, header: BatchHeader, data: memoryview
    ) -> tuple[bool, AbortedTransaction | None]:
        try:
            record = read_control_record(data, 0, header)
        except ProtocolError:
            return False, None  # Of another system.  It stays.
        if record is None:
            return True, None
        return transactions.end(header, record.type) if record.ends_transaction else (False, None)

    def _kept(self, header: BatchHeader, data: memoryview, verdict: Verdict) -> Steps[bytes | memoryview | None]:
        """The batch with the records of it that stay; None if nothing of it stays."""
        nothing = rewriting.emptied(header) if verdict.keep_empty else None
        if verdict.records_go or not header.record_count:
            return nothing
        if not header.is_control and self._newest.supersedes_all(header.base_offset, header.last_offset):
            return nothing
        body = yield from self._section(header, data)
        horizon, now, newest = retention.delete_horizon(header), self._now, self._newest
        kept, tombstone = [], False
        for span in rewriting.spans(header, body):
            if header.is_control or retention.stays(span.offset, span.key, not span.has_value, newest, horizon, now):
                kept.append(span)
                tombstone = tombstone or not span.has_value
            self._work += 1
            if self._work >= STEP:
                yield from self._pause()
        if not kept:
            return nothing
        due = horizon is None and (verdict.needless or (not header.is_control and tombstone))
        if len(kept) == header.record_count and not due:
            return data
        fresh = retention.new_horizon(now, self._log.settings.delete_retention_ms) if due else None
        steps = rewriting.rewritten(header, body, kept, fresh)
        while True:
            try:
                next(steps)
            except StopIteration as done:
                anew: bytes = done.value
                return anew
            yield from self._pause()

    # Reading

    @property
    def _place(self) -> str:
        return f"{self._segment.path} at byte {self._position}"

    def _batches(self, segment: Segment) -> Iterator[Batch]:
        """Every batch of a segment.  Raises FileDamaged, Abandoned."""
        self._segment = segment
        self._must_be_held()
        for at, header, data in segment.walk(0):
            self._position = at
            self._work += 1 + header.size // _WORK_BYTES
            yield at, header, data

    def _section(self, header: BatchHeader, data: memoryview) -> Steps[bytes]:
        """The encoded records of a batch that is whole.  Raises Uncleanable, ProtocolError."""
        if not crc_matches(data, 0, header):
            raise Uncleanable(f"{self._place} is damaged: the checksum of the batch does not match")
        body = rewriting.records_section(header, data)
        if callable(body):
            unfolded = yield body
            if isinstance(unfolded, ProtocolError):
                raise unfolded
            assert unfolded is not None, "whoever goes on with this sends what was asked for"
            body = unfolded
            self._must_be_held()
        self._work += len(body) // _WORK_BYTES
        return body

    def _pause(self) -> Steps[None]:
        self._work = 0
        yield None
        self._must_be_held()

    def _must_be_held(self) -> None:
        """Raises Abandoned where retention or DeleteRecords may have taken what is read, and closed its file."""
        if not any(each is self._segment for each in self._log.segments):
            raise Abandoned


def _put_in_place(log: Log, sources: Sequence[Segment], fresh: Segment) -> None:
    """Have readers use `fresh` in the place of `sources` from now on; drop the segments that waited for this."""
    log.segments.replace(sources, fresh)
    log.reader.forget()
    for segment in sources:
        segment.close()
    log.is_held = False
    log.drop_segments()


def _last_batch(producers: Producers, producer_id: ProducerId) -> LastBatch | None:
    entry = producers.entries.get(producer_id)
    if entry is None:
        return None
    return LastBatch(entry.batches[-1].last_offset if entry.batches else None, entry.epoch)
