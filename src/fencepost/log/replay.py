"""What the commit log knows after a crash, applied to the segment files.

First every generation is read and it is worked out what each segment must look like; then the bytes are written where
they belong and the segments cut to their known sizes.  A file that was removed meanwhile is left alone: its place may
have been taken by another.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from crc32c import crc32c

from fencepost.log.commit_log import (
    BYTES_ENTRY,
    EXTENT_ENTRY,
    FILE_ENTRY,
    FRAME,
    GENERATION,
    HEADER_SIZE,
    MAGIC,
    REMOVE_ENTRY,
    START_ENTRY,
    CommitLog,
    Kind,
    StorageFailed,
)
from fencepost.log.disk import Disk, File


class KnownFile:
    """A segment as the commit log knows it."""

    __slots__ = ("checkpoint_offset", "checkpoint_size", "extents", "path", "removed", "size")

    def __init__(self, path: str, size: int, next_offset: int) -> None:
        self.path = path
        self.checkpoint_size = self.size = size
        self.checkpoint_offset = next_offset
        """Up to this size and offset everything around the segment (indexes, snapshot) was synced."""
        self.removed = False
        self.extents: list[tuple[int, int, int]] = []
        """Position, length and CRC-32C of what was synced in the segment itself."""


class Replay:
    """What all generations on disk say together."""

    def __init__(self) -> None:
        self.files: dict[str, KnownFile] = {}
        self.starts: dict[str, int] = {}
        """Partition directory -> first offset, where that has moved."""
        self.newest = 0
        self._bytes: list[tuple[KnownFile, int, memoryview]] = []

    def read(self, disk: Disk, log: CommitLog) -> None:
        """Read every generation, oldest first.  Raises StorageFailed for entries of a newer version."""
        for generation in log.generations():
            self.newest = generation
            file = disk.open(log.path(generation))
            numbers: dict[int, KnownFile] = {}
            for payload in entries(file, generation):
                self._note(payload, numbers)
            file.close()

    def _note(self, payload: memoryview, numbers: dict[int, KnownFile]) -> None:
        match payload[0]:
            case Kind.FILE:
                _, number, size, next_offset = FILE_ENTRY.unpack_from(payload)
                path = str(payload[FILE_ENTRY.size :], "utf-8")
                known = self.files.get(path)
                if known is None or known.removed:
                    known = self.files[path] = KnownFile(path, size, next_offset)
                numbers[number] = known
            case Kind.BYTES:
                _, number, position = BYTES_ENTRY.unpack_from(payload)
                data = payload[BYTES_ENTRY.size :]
                self._bytes.append((numbers[number], position, data))
                numbers[number].size = position + len(data)
            case Kind.EXTENT:
                _, number, position, length, crc = EXTENT_ENTRY.unpack_from(payload)
                numbers[number].extents.append((position, length, crc))
                numbers[number].size = position + length
            case Kind.REMOVE:
                numbers[REMOVE_ENTRY.unpack_from(payload)[1]].removed = True
            case Kind.START:
                self.starts[str(payload[START_ENTRY.size :], "utf-8")] = START_ENTRY.unpack_from(payload)[1]
            case kind:
                raise StorageFailed(f"the commit log has an entry of kind {kind}: it is of a newer version")

    def apply(self, disk: Disk, root: Path) -> None:
        """Write every noted byte where it belongs and cut each segment to its known size.

        Raises StorageFailed if an extent that was synced is not there: then the disk lost what it had acknowledged.
        """
        open_files: dict[str, File] = {}
        for path, known in self.files.items():
            if not known.removed:
                disk.make_directory((root / path).parent)
                open_files[path] = disk.open(root / path)
        for known, position, data in self._bytes:
            if not known.removed:
                open_files[known.path].pwrite(data, position)
        for path, file in open_files.items():
            known = self.files[path]
            file.truncate(known.size)
            for position, length, crc in known.extents:
                if crc32c(file.pread(length, position)) != crc:
                    raise StorageFailed(f"{path} has lost bytes {position} to {position + length}, which were synced")
        if open_files:
            disk.sync_now(list(open_files.values()))
        for file in open_files.values():
            file.close()
        self._bytes = []


def entries(file: File, generation: int) -> Iterator[memoryview]:
    """The payloads of one generation, up to the first that is not whole."""
    data = memoryview(file.pread(file.size(), 0))
    front = GENERATION.pack(generation)
    if data[: len(MAGIC)] != MAGIC or data[len(MAGIC) : HEADER_SIZE] != front:
        return
    seed, at = crc32c(front), HEADER_SIZE
    while at + FRAME.size <= len(data):
        length, crc = FRAME.unpack_from(data, at)
        at += FRAME.size
        if length <= 0 or at + length > len(data):
            return
        payload = data[at : at + length]
        if crc32c(payload, seed) != crc:
            return
        yield payload
        at += length
