"""Reads the commit log after a crash, and brings the segment files to what it says.

First every generation is read and it is worked out what each segment must look like; then the bytes are written where
they belong and the segments cut to their known sizes.  A file that was removed meanwhile is left alone: its place may
have been taken by another.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from itertools import islice
from pathlib import Path
from typing import Final
from uuid import UUID

from crc32c import crc32c

from fencepost.log.checkpoint_files import write_partition_metadata
from fencepost.log.commit_log import CommitLog, StorageFailed
from fencepost.log.commit_log_entries import (
    BYTES_ENTRY,
    EXTENT_ENTRY,
    FILE_ENTRY,
    OLDER_READY_ENTRY,
    READY_ENTRY,
    START_ENTRY,
    SYNCED_ENTRY,
    Kind,
    NamedFile,
    bytes_entry,
    extent_entry,
    remove_entry,
    start_entry,
)
from fencepost.log.commit_log_files import CommitLogDamaged, those_that_count
from fencepost.log.commit_log_reading import Ending, Generation, read_generation
from fencepost.log.data_directory import COMMIT_LOG, deleted_name, is_in_its_place
from fencepost.log.disk import Disk, File, NothingLeft
from fencepost.node_log import get_logger
from fencepost.protocol.types import NO_OFFSET, Offset

logger = get_logger(__name__)

_TOGETHER: Final = 64
"""Segments that are written to and synced together: each has a descriptor until then."""
_ONE_WRITE: Final = 1024 * 1024
"""Bytes of one write, or a little more."""


class KnownFile:
    """A segment as the commit log knows it: how many bytes it has, and up to where it was synced."""

    __slots__ = ("aside", "checkpoint_offset", "checkpoint_size", "extents", "path", "removed", "size", "topic_id")

    def __init__(self, path: str, topic_id: bytes, size: int, next_offset: Offset) -> None:
        self.path = path
        self.topic_id = topic_id
        self.checkpoint_size = self.size = size
        self.checkpoint_offset = next_offset
        """Up to this size and offset everything around the segment (indexes, snapshot) was synced; -1: not known."""
        self.removed = False
        self.aside = False
        """Its directory is gone, or another topic's: it is left alone, and what is noted for it is kept."""
        self.extents: list[tuple[int, int, int]] = []
        """Position, length and CRC-32C of what was synced in the segment itself."""

    @property
    def partition(self) -> tuple[str, bytes]:
        """The segment's directory and topic id."""
        return self.path.rpartition("/")[0], self.topic_id


class Replay:
    """The state of all segments, worked out from every generation on disk."""

    def __init__(self) -> None:
        self.files: dict[str, KnownFile] = {}
        self._segments: dict[str, dict[Offset, KnownFile]] = {}
        """Partition directory -> base offset -> segment."""
        self.adopting = False
        """Whether partitions that are not known at all may be there: they are then read as they are."""
        self.starts: dict[str, Offset] = {}
        """Partition directory -> first offset, where that has moved."""
        self.newest = 0
        self.ready = False
        """Whether every segment has been named: one that is not does not count."""
        self.sizes_kept = True
        """Whether every append was noted; not with --flush=os, nor where an earlier start had to search for ends."""
        self.flushed_by_system = False
        """Whether appends were not noted because of --flush=os."""
        self.damaged = False
        """Whether something that was durable cannot be read: then nothing is known of where any segment ends."""
        self.lost: dict[tuple[str, bytes], str] = {}
        """Directory and topic id of a partition that lacks what was synced -> what, and what to do."""
        self.read_alone: list[str] = []
        """Partitions with records that were opened without any commit log."""
        self._bytes: list[tuple[KnownFile, int, memoryview]] = []
        self._oldest, self._torn, self._cut = True, False, 0
        """Whether a torn write was told; bytes that segments had behind what the log knows."""

    def read(self, disk: Disk, log: CommitLog, from_segments: bool = False) -> None:
        """Read every generation, oldest first.  Raises StorageFailed for entries of a newer version.

        `from_segments`: go on where the log is damaged, with what the segments hold; else that raises CommitLogDamaged.
        """
        generations = log.generations()
        if generations:
            # After a kill one of them may be in the page cache only, and the next one must not be there without it.
            disk.sync_directory(log.path(0).parent)
        self.newest = generations[-1] if generations else 0
        counted = those_that_count(disk, log.path, generations)
        for generation in counted:
            # A READY that cannot be read does not make what comes later the oldest.
            self._oldest = not self.ready and (not self.damaged or generation == counted[0])
            file = disk.open(log.path(generation))
            try:
                # After a kill it may be in the page cache only; what is decided on it must not be lost again.
                disk.sync_now([file])
                found = read_generation(file.pread(file.size(), 0), generation, generation == self.newest)
                self._judge(disk, file, log.path(generation), found, from_segments)
            except OSError as error:
                error.filename = error.filename or str(log.path(generation))
                raise
            finally:
                file.close()
            numbers: dict[int, KnownFile] = {}
            for payload in found.entries:
                self._note(payload, numbers)

    def _judge(self, disk: Disk, file: File, path: Path, found: Generation, from_segments: bool) -> None:
        """Cut off what a power loss tore.  Raises CommitLogDamaged for a damaged file, unless it is told to go on."""
        if found.gaps:
            places = ", ".join(f"{start} to {end}" for start, end in found.gaps[:5])
            what = f"{path} is damaged: bytes {places} cannot be read or are missing, and they were on disk once"
            if not found.marked:
                what = (
                    f"{path} has bytes that cannot be read and whole entries behind them: {places}. It is of an older "
                    "Fencepost, so a power loss may have done that, or the disk has damaged it"
                )
            if not from_segments:
                raise CommitLogDamaged(
                    f"{what}. Nothing was changed. Put back a copy of this file; or keep a copy of the directory and "
                    "start once with --recover-from-segments: every partition then keeps what its own files hold with "
                    "right checksums, and the log says which ones hold more than the commit log knows of"
                )
            self.damaged = True
            logger.error("%s; going on with what the segments hold, as told", what)
        if found.ending is Ending.TORN:
            self._torn = True
            count = found.torn_end - found.end
            logger.warning(
                "the last write to the commit log is not whole and was left out; nobody was told that it is durable, "
                "unless the disk has damaged it since file=%s position=%d bytes=%d",
                path,
                found.end,
                count,
            )
            # When there is a newer file, this one must end in what was synced.
            file.pwrite(bytes(count), found.end)
            disk.sync_now([file])

    def _note(self, payload: memoryview, numbers: dict[int, KnownFile]) -> None:
        match payload[0]:
            case Kind.BYTES:
                _, number, position = BYTES_ENTRY.unpack_from(payload)
                data = payload[BYTES_ENTRY.size :]
                known = numbers.get(number)
                if known is not None:  # else of a topic that was deleted before this generation began
                    self._bytes.append((known, position, data))
                    known.size = position + len(data)
            case Kind.FILE:
                _, number, size, next_offset, topic_id = FILE_ENTRY.unpack_from(payload)
                path = str(payload[FILE_ENTRY.size :], "utf-8")
                if size == next_offset == 0:
                    self._begun_anew(path.rpartition("/")[0], topic_id)
                known = self.files.get(path)
                if known is None or known.removed or known.topic_id != topic_id:
                    if not self._oldest:
                        # The checkpoint that this entry is of was not completed.  The segment was new: all is to come.
                        size, next_offset = 0, int(path.rpartition("/")[2][:20])
                    known = self._know(path, topic_id, size, next_offset)
                numbers[number] = known
            case Kind.EXTENT:
                _, number, position, length, crc = EXTENT_ENTRY.unpack_from(payload)
                known = numbers.get(number)
                if known is not None:
                    known.extents.append((position, length, crc))
                    known.size = position + length
            case Kind.SYNCED:
                _, number, size, next_offset = SYNCED_ENTRY.unpack_from(payload)
                if number in numbers:
                    self._note_synced(numbers[number], size, next_offset)
            case Kind.REMOVE:
                path = str(payload[1:], "utf-8")
                known = self.files.get(path) or self._know(path, bytes(16), 0, NO_OFFSET)
                known.removed = True
            case Kind.START:
                self.starts[str(payload[START_ENTRY.size :], "utf-8")] = START_ENTRY.unpack_from(payload)[1]
            case Kind.READY:
                self.ready = True
                is_older = len(payload) < READY_ENTRY.size
                _, kept, searched = (
                    (*OLDER_READY_ENTRY.unpack_from(payload), False) if is_older else READY_ENTRY.unpack_from(payload)
                )
                self.sizes_kept &= kept
                self.flushed_by_system |= not (kept or searched)
            case kind:
                raise StorageFailed(f"the commit log has an entry of kind {kind}: it is of a newer version")

    def _begun_anew(self, directory: str, topic_id: bytes) -> None:
        """Forget, where a topic begins, what was removed of an earlier one: it went with the directory of that."""
        segments = self._segments.get(directory, {})
        for base, known in list(segments.items()):
            if known.removed and known.topic_id != topic_id:
                del segments[base], self.files[known.path]

    def _know(self, path: str, topic_id: bytes, size: int, next_offset: Offset) -> KnownFile:
        known = self.files[path] = KnownFile(path, topic_id, size, next_offset)
        directory, _, name = path.rpartition("/")
        self._segments.setdefault(directory, {})[Offset(int(name[:20]))] = known
        return known

    def _note_synced(self, newest: KnownFile, size: int, next_offset: Offset) -> None:
        """Note that of the partition with this newest segment nothing before `next_offset` is needed any more."""
        directory, _, name = newest.path.rpartition("/")
        for base, known in self._segments[directory].items():
            if base < int(name[:20]) and known.topic_id == newest.topic_id:
                known.checkpoint_offset = NO_OFFSET
        newest.checkpoint_size, newest.checkpoint_offset = size, next_offset
        newest.size = max(newest.size, size)

    def tell(self, path: Path) -> None:
        """Log what the start had to do without."""
        if self.read_alone:
            logger.warning(
                "there is no commit log in %s, or nothing in it: every whole batch of %d partitions with records is "
                "kept as it is in the segment files, whether it was acknowledged or not, and what a power loss took "
                "from them is not known",
                path,
                len(self.read_alone),
            )

    def apply(self, disk: Disk, root: Path) -> None:
        """Write every noted byte where it belongs and cut each segment to its known size.

        Nothing is written to a partition of which something that was synced is not there (`lost`).
        """
        for known in self.files.values():
            # A deleted topic was renamed before the log could say so.
            directory = known.path.rpartition("/")[0]
            known.removed |= disk.exists(root / deleted_name(directory, known.topic_id))
        self._set_aside(disk, root)
        for known in self.files.values():
            if not known.removed and not known.aside:
                wrong = _what_is_lost(disk, root, known)
                if wrong:
                    self.lost.setdefault(known.partition, wrong)
        noted: dict[KnownFile, list[tuple[int, memoryview]]] = {}
        for known, position, data in self._bytes:
            if position >= known.checkpoint_size:
                noted.setdefault(known, []).append((position, data))
        # What was noted for an earlier topic of the same name is of a file that is not among these.
        there = iter([each for each in self.files.values() if not each.removed and not each.aside])
        try:
            while few := list(islice(there, _TOGETHER)):
                self._apply_to([each for each in few if each.partition not in self.lost], noted, disk, root)
        finally:
            if self._cut and not self._torn:
                what = f"cut {self._cut} bytes from segments that {root / COMMIT_LOG} does not know of; nobody was told"
                logger.warning("%s that they are durable, unless the disk has emptied the end of the log since", what)

    def _apply_to(
        self, few: list[KnownFile], noted: Mapping[KnownFile, list[tuple[int, memoryview]]], disk: Disk, root: Path
    ) -> None:
        opened, changed = list[File](), list[File]()
        try:
            for known in few:
                try:
                    file = disk.open(root / known.path)
                except NothingLeft:
                    raise
                except OSError as error:
                    self.lost[known.partition] = _cannot_be_used(root / known.path, error)
                    continue
                opened.append(file)
                anew = noted.get(known, ())
                for position, data in _joined(anew):
                    file.pwrite(data, position)
                is_cut = self.sizes_kept and not self.damaged and file.size() != known.size
                if is_cut:
                    self._cut += max(file.size() - known.size, 0)
                    file.truncate(known.size)
                if anew or is_cut:
                    # Of the others everything was synced by the checkpoint that named them, or as an extent.
                    changed.append(file)
            if changed:
                disk.sync_now(changed)
        finally:
            for file in opened:
                file.close()

    def segments_of(self, directory: str) -> dict[Offset, KnownFile]:
        """The segments of a partition that the log knows, by their base offsets."""
        return self._segments.get(directory, {})

    def _set_aside(self, disk: Disk, root: Path) -> None:
        """Leave the directories alone that are not what the log knows; make those that a power loss took back."""
        present: dict[tuple[str, bytes], bool] = {}
        for known in self.files.values():
            if known.removed:
                continue
            name = known.path.rpartition("/")[0]
            key = (name, known.topic_id)
            if key not in present:
                if not disk.exists(root / name) and not self._had_more(name):
                    disk.make_directory(root / name)
                    write_partition_metadata(disk, root / name, UUID(bytes=known.topic_id))
                present[key] = is_in_its_place(disk, root / name, known.topic_id)
            known.aside = not present[key]

    def _had_more(self, directory: str) -> bool:
        """Whether the log knows something synced of the segments in a directory."""
        return any(
            known.checkpoint_size > 0 or known.extents
            for known in self.files.values()
            if not known.removed and known.path.rpartition("/")[0] == directory
        )

    def directories(self) -> set[str]:
        """The partitions that are known, by the names of their directories."""
        return {path.rpartition("/")[0] for path, known in self.files.items() if not known.removed}

    def vouches_for(self, directory: str, topic_id: UUID) -> bool:
        """Whether what counts of the records in this directory is of that topic: where every segment is named, no
        record counts of one that is not, and a power loss may have left some beside an id that was not written yet. Not
        after a start that had to search for ends: of what it left alone it named nothing.
        """
        segments = self.segments_of(directory).values()
        is_known = any(file.topic_id == topic_id.bytes and not file.removed for file in segments)
        are_named = self.ready and (self.sizes_kept or self.flushed_by_system)
        return is_known or (are_named and not self.damaged and not self.adopting)

    def topic_ids(self) -> dict[str, UUID]:
        """The partitions that are known, by the names of their directories, and their topics' ids."""
        known = (file for file in self.files.values() if not file.removed and any(file.topic_id))
        return {file.path.rpartition("/")[0]: UUID(bytes=file.topic_id) for file in known}

    @property
    def complete(self) -> bool:
        """Whether it knows every segment with its size, so that none need be searched for its end."""
        return self.ready and self.sizes_kept and not self.damaged

    def may_have_holes(self, directory: str) -> bool:
        """Whether a crash may have left a hole in what the segments of a partition hold, before what is whole."""
        unknown = self.adopting and not self.segments_of(directory)
        return self.ready and self.flushed_by_system and not (self.damaged or unknown)

    def entries_of(self, directory: str, number: Callable[[], int]) -> Iterator[bytes]:
        """Entries for another generation that say the same of a partition's directory; `number` numbers segments."""
        for path, known in self.files.items():
            if path.rpartition("/")[0] != directory:
                continue
            if known.removed:
                yield remove_entry(path)
                continue
            given = number()
            yield NamedFile(given, known.checkpoint_size, known.checkpoint_offset, known.topic_id, path).entry()
            written = [(at, bytes_entry(given, at, data)) for file, at, data in self._bytes if file is known]
            written += [(at, extent_entry(given, at, length, crc)) for at, length, crc in known.extents]
            for _, entry in sorted(written):  # the last one tells the size
                yield entry
        if directory in self.starts:
            yield start_entry(self.starts[directory], directory)


def _joined(noted: Iterable[tuple[int, memoryview]]) -> Iterator[tuple[int, bytes]]:
    """The same writes in their order, adjacent ones joined, up to about `_ONE_WRITE` bytes."""
    run: list[memoryview] = []
    begin = end = 0
    for position, data in noted:
        if run and (position != end or end - begin >= _ONE_WRITE):
            yield begin, b"".join(run)
            run = []
        if not run:
            begin = position
        run.append(data)
        end = position + len(data)
    if run:
        yield begin, b"".join(run)


def _what_is_lost(disk: Disk, root: Path, known: KnownFile) -> str:
    """A sentence about synced bytes of a segment that are not there, and what to do; empty if all are."""
    what_to_do = "which were synced; put back a copy of this file"
    path = root / known.path
    try:
        if not disk.exists(path):
            disk.list(path.parent)  # raises OSError where nobody may look whether it is there
            least = max([known.checkpoint_size, *(position + length for position, length, _ in known.extents)])
            return f"{path} is missing and once had {least} bytes, {what_to_do}" if least else ""
        file = disk.open(path)
        try:
            if file.size() < known.checkpoint_size:
                return f"{path} has {file.size()} bytes and once had {known.checkpoint_size}, {what_to_do}"
            for position, length, crc in known.extents:
                if crc32c(file.pread(length, position)) != crc:
                    return f"{path} has lost bytes {position} to {position + length}, {what_to_do}"
        finally:
            file.close()
    except NothingLeft:
        raise
    except OSError as error:
        return _cannot_be_used(path, error)
    return ""


def _cannot_be_used(path: Path, error: OSError) -> str:
    why = error.strerror or error
    return f"{path} cannot be used ({why}): see to it that the node can read and write it, or put back a copy of it"
