"""The node's commit log: one sync makes every append before it durable, whatever the number of partitions.

An append goes to its segment file (which the kernel may write back whenever it likes) and, in the same order as every
other append of the node, to this log: a small one with its bytes, a large one as an extent whose segment file is
synced before the entry is.  After a crash the entries are applied again and every segment is cut to the size that the
log knows.  So what survives is always a prefix of what was appended, over all partitions together: a marker never
without its PREPARE, a PREPARE never without the data before it.

One file per generation.  A checkpoint starts a new generation, which names every segment that is written to, before
the first append to it; when everything of the older generation is synced elsewhere, its file is removed, and that
removal is what completes the checkpoint.  `commit_log_entries` says what is in a file.

What one sync writes begins with DURABLE, which names its own position in the file: a sync begins when the one before it
has succeeded, so whoever reads this entry knows that everything before it was on disk, and that the file had been made
`size` bytes long.  An entry that cannot be read was torn by a power loss only if no DURABLE stands behind it; else the
disk has damaged it (`commit_log_reading`).  When nothing was synced for REST_SECONDS, the DURABLE of the next sync is
written already, without a sync of its own.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable
from functools import partial
from pathlib import Path
from typing import NamedTuple

from crc32c import crc32c

from fencepost.log.commit_log_entries import (
    BYTES_ENTRY,
    DURABLE_ENTRY,
    DURABLE_SIZE,
    FILE_ENTRY,
    FRAME,
    GENERATION,
    MAGIC,
    READY_ENTRY,
    Kind,
    NamedFile,
    bytes_entry,
    extent_entry,
    framed,
    pieces,
    remove_entry,
    start_entry,
    synced_entry,
)
from fencepost.log.disk import Disk, DiskFull, File, NothingLeft
from fencepost.log.durability import Durability
from fencepost.log.file_names import numbered, numbered_path
from fencepost.log.outcome import StorageFailed
from fencepost.log.space import Space
from fencepost.protocol.types import NO_LSN, Buffer, Lsn, Offset
from fencepost.runtime import Work, at_once

__all__ = ["CommitLog", "StorageFailed"]

EXTENT_THRESHOLD = 64 * 1024
"""Appends of at least this many bytes are synced in their own file instead of being written twice."""
_ALLOCATION = 4 * 1024 * 1024
_LITTLE = 64 * 1024
"""Bytes that it takes at once where the reserve may be all that is left."""
REST_SECONDS = 0.02
"""So long after a sync without another, and before twice as long, the mark behind it is written: that costs nearly as
much as the write of the sync itself, and the next sync makes it superfluous."""
_BESIDES = 1024
"""Bytes of what may have to stand before an entry: DURABLE, and a FILE with a path."""


class _Flush(NamedTuple):
    """The work of one sync, which makes all up to `lsn` durable: pieces of a file from `position` to `end`."""

    lsn: Lsn
    file: File
    data: Iterable[bytes]
    position: int
    end: int
    allocated: int
    advance: Callable[[], Work[None]]
    done: Callable[[], None]


class CommitLog:
    """Writes one generation.  `appended` and `durability.lsn` are positions (lsn) in the order of all appends."""

    def __init__(
        self, disk: Disk, directory: Path, failed: Callable[[StorageFailed], None], space: Space | None = None
    ) -> None:
        self._disk = disk
        self._space = space
        self.directory = directory
        self._failed = failed
        self._file: File | None = None
        self.generation = 0
        self.appended = NO_LSN
        self.durability = Durability()
        self.size = 0
        """Bytes in this generation, extents counted in full."""
        self._tail = 0
        self._allocated = 0
        self._durable_size = 0
        """What of `_allocated` the last sync has made durable."""
        self._seed = 0
        self._mark: bytes | None = None
        """The entry that stands behind what was synced, as long as nothing was written there."""
        self._rest: asyncio.TimerHandle | None = None
        """Set from a sync on until the mark behind the last one is written."""
        self.named: set[int] = set()
        self._named_before: set[int] = set()
        """Segments that this generation names, and those that older ones do."""
        self._pending: list[bytes] = []
        self._pending_bytes = 0
        self._extents: dict[int, File] = {}
        self._syncing = False
        self._stopped = False

    def path(self, generation: int) -> Path:
        return numbered_path(self.directory, generation, ".log")

    def generations(self) -> list[int]:
        """The generations on disk, oldest first."""
        return [number for _, number in numbered(self._disk.list(self.directory), ".log")]

    def begin(self, generation: int) -> None:
        """Start a new generation.  What is pending goes to it, so name its files first (`name_pending`).

        Raises NothingLeft; then the old one goes on.
        """
        assert not self._syncing, "a generation begins between two syncs"
        front = MAGIC + GENERATION.pack(generation)
        file = self._disk.open(self.path(generation))
        try:
            file.truncate(0)
            allocated = self._allocate(file, len(front))
            file.pwrite(front, 0)
            self._disk.sync_now([file])
            self._disk.sync_directory(self.directory)
        except NothingLeft:
            file.close()
            self._disk.remove(self.path(generation))
            raise
        if self._file is not None:
            self._file.close()
        self.generation = generation
        self._file = file
        self._allocated = self._durable_size = allocated
        self._tail = self.size = len(front)
        self._mark = None
        self._seed = crc32c(GENERATION.pack(generation))

    # Appending

    def names(self, number: int) -> bool:
        """Whether a generation that is still there names this segment: after a crash it may be written to again."""
        return number in self.named or number in self._named_before

    def note_named_before(self, numbers: Iterable[int]) -> None:
        """Note at a start that the generations that were found name these segments."""
        self._named_before.update(numbers)

    def older_are_gone(self) -> None:
        """Note that of all generations only this one is left."""
        self._named_before = set()

    def add_file(self, file: NamedFile) -> Lsn:
        self.named.add(file.number)
        return self._add(file.entry())

    def name_pending(self, files: list[NamedFile]) -> None:
        """Put FILE entries in front of everything pending, for what that writes to: a new generation begins so."""
        self._named_before |= self.named
        self.named = {FILE_ENTRY.unpack_from(e)[1] for e in self._pending if e[0] == Kind.FILE}
        self.named |= {file.number for file in files}
        front = [file.entry() for file in files]
        self._pending[:0] = front
        self._pending_bytes += sum(map(len, front)) + FRAME.size * len(front)
        # Of nothing there is no sync that could make it durable, and whoever stops would wait for one.
        self.appended = Lsn(self.appended + bool(front))

    def add_bytes(self, number: int, position: int, data: Buffer) -> Lsn:
        return self._add(bytes_entry(number, position, data))

    def add_extent(self, number: int, position: int, data: Buffer, file: File) -> Lsn:
        self._extents[number] = file
        self.size += len(data)
        return self._add(extent_entry(number, position, len(data), crc32c(data)))

    def add_remove(self, path: str) -> Lsn:
        return self._add(remove_entry(path))

    def add_synced(self, number: int, size: int, next_offset: Offset) -> Lsn:
        return self._add(synced_entry(number, size, next_offset))

    def add_ready(self, kept: bool, searched: bool = False) -> Lsn:
        return self._add(READY_ENTRY.pack(Kind.READY, kept, searched))

    def add_again(self, entry: bytes) -> None:
        """Add an entry of an earlier generation that this one must have too."""
        self._add(entry)

    def pending_numbers(self) -> set[int]:
        """The files that pending entries write to."""
        return {BYTES_ENTRY.unpack_from(e)[1] for e in self._pending if e[0] in (Kind.BYTES, Kind.EXTENT)}

    def add_start(self, offset: Offset, directory: str) -> Lsn:
        return self._add(start_entry(offset, directory))

    def reserve(self, count: int) -> None:
        """Have the space for an entry of about `count` bytes, so that a full disk is met before anything is written.

        Raises DiskFull.
        """
        needed = self._tail + self._pending_bytes + count + _BESIDES
        if needed > self._allocated:
            assert self._file is not None
            try:
                self._file.allocate(needed + _ALLOCATION)
                self._allocated = needed + _ALLOCATION
            except DiskFull:
                self._file.allocate(needed + _LITTLE)
                self._allocated = needed + _LITTLE

    def _allocate(self, file: File, needed: int) -> int:
        """Have `needed` bytes of space and a little more, be it from the reserve; how many bytes there are then.

        Little, because who starts on a full disk would else take for it what is to be the reserve again.
        """
        size = needed + _LITTLE

        def allocate() -> None:
            file.allocate(size)

        if self._space is None:
            allocate()
        else:
            self._space.attempt(allocate)
        return size

    def _make_room(self, count: int) -> None:
        """Have space for `count` bytes behind the tail.  Deletions have reserved nothing before."""
        assert self._file is not None
        if self._tail + count > self._allocated:
            self._allocated = self._allocate(self._file, self._tail + count)

    def _add(self, payload: bytes) -> Lsn:
        self._pending.append(payload)
        added = FRAME.size + len(payload)
        self._pending_bytes += added
        self.size += added
        self.appended = Lsn(self.appended + 1)
        return self.appended

    def _take(self) -> tuple[Iterable[bytes], int, list[File]]:
        """Take everything pending: its pieces, how many bytes they have, and the files whose extents they name."""
        first, extents = self._mark or self._durable_entry(), list(self._extents.values())
        size = len(first) + self._pending_bytes
        taken = pieces(first, self._pending, size, self._seed)
        self._mark, self._pending, self._pending_bytes, self._extents = None, [], 0, {}
        return taken, size, extents

    def _durable_entry(self) -> bytes:
        """The DURABLE entry with which the next sync begins, as long as none is under way."""
        return framed(DURABLE_ENTRY.pack(Kind.DURABLE, self._tail, self._durable_size), self._seed)

    def _mark_after_rest(self) -> None:
        """Have the end marked when nothing more is synced for a while."""
        if self._rest is None:
            self._rest = asyncio.get_running_loop().call_later(REST_SECONDS, self._rested, self.durability.lsn)

    def _rested(self, durable: int) -> None:
        """Mark the end if nothing was made durable since; else wait once more."""
        self._rest = None
        if self._stopped or self._syncing:
            return  # What is under way asks for another rest when it is durable.
        if durable != self.durability.lsn:
            self._mark_after_rest()
            return
        try:
            self._mark_end()
        except OSError as failure:
            self._failed(StorageFailed(f"the disk did not take a write: {failure}"))

    def _mark_end(self) -> None:
        """Write a DURABLE entry behind the synced ones, so that damage to these can be told from a torn write."""
        if self._file is not None and self.idle and self._tail + DURABLE_SIZE <= self._allocated:
            self._mark = self._durable_entry()
            self._file.pwrite(self._mark, self._tail)

    # Making durable

    @property
    def idle(self) -> bool:
        """Whether everything appended is durable."""
        return not self._pending and not self._syncing

    @property
    def is_between_syncs(self) -> bool:
        """Whether a generation may begin: no sync is under way, and the log is open."""
        return not self._syncing and self._file is not None

    def flush(self, taken: Callable[[], None], advance: Callable[[], Work[None]], done: Callable[[], None]) -> bool:
        """Write and sync everything pending, where it is much a piece in each turn of the event loop.

        `taken` is called at once: this sync reaches up to what has been appended by now.  When that is on disk
        `advance` is done, then it is durable, and `done` is called.  Returns False, and does nothing, while an earlier
        sync is under way or nothing is pending.
        """
        if self._syncing or not self._pending or self._file is None:
            return False
        self._syncing = True
        lsn = self.appended
        data, size, extents = self._take()
        taken()
        flush = _Flush(lsn, self._file, data, self._tail, self._tail + size, self._allocated, advance, done)
        full: OSError | None = None
        try:
            self._make_room(size)
        except OSError as error:
            full = error
        self._tail = flush.end
        if extents and full is None:
            self._disk.sync(extents, partial(self._extents_synced, flush))
        else:
            self._extents_synced(flush, full)
        return True

    def _extents_synced(self, flush: _Flush, error: OSError | None) -> None:
        if error is not None:
            self._entries_synced(flush, error)
        else:
            self._in_turns(self._writing(flush))

    def _writing(self, flush: _Flush) -> Work[None]:
        at = flush.position
        try:
            for piece in flush.data:
                flush.file.pwrite(piece, at)
                at += len(piece)
                if at < flush.end:
                    yield
        except OSError as failure:
            self._entries_synced(flush, failure)
            return
        assert at == flush.end, "what was written is what there was room for"
        self._disk.sync([flush.file], partial(self._entries_synced, flush))

    def _entries_synced(self, flush: _Flush, error: OSError | None) -> None:
        if error is not None:
            self._failed(StorageFailed(f"the disk did not take a sync: {error}"))
        elif not self._stopped:
            self._in_turns(self._settling(flush))

    def _settling(self, flush: _Flush) -> Work[None]:
        try:
            yield from flush.advance()
            self._syncing = False
            self.durability.lsn = flush.lsn
            self._durable_size = flush.allocated
            flush.done()
        except StorageFailed:
            raise
        except Exception as failure:
            # Some partitions know that this is durable and others do not.
            self._failed(StorageFailed(f"what follows a sync could not be done: {failure!r}"))
            raise
        yield from self.durability.call_back()
        self._mark_after_rest()

    def _in_turns(self, work: Work[None]) -> None:
        """Do a step of `work` now, and each of the others in a later turn of the event loop."""
        for _ in work:
            asyncio.get_running_loop().call_soon(self._next_turn, work)
            return

    def _next_turn(self, work: Work[None]) -> None:
        if self._stopped or self._file is None:
            return
        try:
            self._in_turns(work)
        except StorageFailed:
            raise
        except Exception as failure:
            if not self._stopped:
                self._failed(StorageFailed(f"the commit log could not be written: {failure!r}"))
            raise

    def stop(self) -> None:
        """Acknowledge nothing any more, for something has failed: not even what a sync under way reaches."""
        self._stopped = True
        self.durability.fail()

    def flush_now(self) -> None:
        """Write and sync everything pending, and wait.  For stop and checkpoints at start."""
        assert not self._syncing and self._file is not None
        data, size, extents = self._take()
        self._disk.sync_now(extents)
        self._make_room(size)
        for piece in data:
            self._file.pwrite(piece, self._tail)
            self._tail += len(piece)
        self._disk.sync_now([self._file])
        self.durability.lsn = self.appended
        self._durable_size = self._allocated
        at_once(self.durability.call_back())
        self._mark_end()

    def seal(self) -> None:
        """Make durable, after the last flush of a clean stop, that nothing is missing."""
        assert self._file is not None and self.idle
        self._disk.sync_now([self._file])

    def close(self) -> None:
        if self._rest is not None:
            self._rest.cancel()
            self._rest = None
        if self._file is not None:
            self._file.close()
            self._file = None
