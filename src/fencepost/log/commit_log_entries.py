"""The format of one file of the commit log.

`MAGIC`, int64 generation, entries.  Entry: int32 length of the payload, uint32 CRC-32C of generation and payload,
payload.  Payload: int8 kind, then
    FILE    int32 file, int64 size, int64 next offset, 16 bytes topic id, path
                                                                    the segment is known under this number from here on
    BYTES   int32 file, int64 position, bytes
    EXTENT  int32 file, int64 position, int64 length, uint32 CRC-32C of the bytes
    REMOVE  path                                                    retention or deletion took the segment
    START   int64 offset, directory                                 the first offset of a partition moved
    READY   int8 kept, int8 searched                                all segments are named; are their sizes kept here?
                                                                    If not: because a start had to search for some?
    DURABLE int64 position, int64 size                              see `commit_log`
    SYNCED  int32 file, int64 size, int64 next offset               everything about its partition up to here is synced

A FILE with next offset -1 only gives a number to a segment that is written no more.

What FILE says of size and next offset counts in the oldest generation only: others were begun before the checkpoint
that they are of was complete.  SYNCED counts wherever it stands: indexes and snapshot as of that size and offset, and
everything of the segments up to there, were synced before it was noted.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from enum import IntEnum
from struct import Struct
from typing import Final, NamedTuple

from crc32c import crc32c

from fencepost.protocol.types import Buffer, Offset


class Kind(IntEnum):
    """The first byte of an entry."""

    FILE = 1
    BYTES = 2
    EXTENT = 3
    REMOVE = 4
    START = 5
    READY = 6
    DURABLE = 7
    SYNCED = 8


MAGIC = b"fencepost commit log 1\n"
GENERATION = Struct(">q")
FRAME = Struct(">iI")
FILE_ENTRY = Struct(">biqq16s")
BYTES_ENTRY = Struct(">biq")
EXTENT_ENTRY = Struct(">biqqI")
START_ENTRY = Struct(">bq")
READY_ENTRY = Struct(">b??")
OLDER_READY_ENTRY = Struct(">b?")
"""As it was before `searched`."""
DURABLE_ENTRY = Struct(">bqq")
SYNCED_ENTRY = Struct(">biqq")
DURABLE_SIZE = FRAME.size + DURABLE_ENTRY.size
HEADER_SIZE = len(MAGIC) + GENERATION.size


class NamedFile(NamedTuple):
    """A segment as a FILE entry names it."""

    number: int
    size: int
    next_offset: Offset
    topic_id: bytes
    path: str

    def entry(self) -> bytes:
        return FILE_ENTRY.pack(Kind.FILE, *self[:4]) + self.path.encode()


_BYTES = int(Kind.BYTES)


def bytes_entry(number: int, position: int, data: Buffer) -> bytes:
    """An entry that these bytes stand at `position` of the file with this number."""
    return BYTES_ENTRY.pack(_BYTES, number, position) + data


def extent_entry(number: int, position: int, length: int, crc: int) -> bytes:
    """An entry that so many bytes with this CRC-32C stand at `position` of the file, which is synced itself."""
    return EXTENT_ENTRY.pack(Kind.EXTENT, number, position, length, crc)


def remove_entry(path: str) -> bytes:
    """An entry that retention or deletion took the segment at this path, relative to the data directory."""
    return bytes((Kind.REMOVE,)) + path.encode()


def synced_entry(number: int, size: int, next_offset: Offset) -> bytes:
    """An entry that everything about the partition of this file is synced, as of this size and this offset."""
    return SYNCED_ENTRY.pack(Kind.SYNCED, number, size, next_offset)


def start_entry(offset: Offset, directory: str) -> bytes:
    """An entry that the log of the partition in this directory starts at `offset`."""
    return START_ENTRY.pack(Kind.START, offset) + directory.encode()


# As they are written

PIECE_ENTRIES: Final = 1000
PIECE_BYTES: Final = 1024 * 1024
"""Entries, and about as many bytes, that are made and written in one step."""


def framed(payload: bytes, seed: int) -> bytes:
    """The entry of a payload, with its length and checksum.  `seed`: the checksum of the generation."""
    return FRAME.pack(len(payload), crc32c(payload, seed)) + payload


def pieces(first: bytes, payloads: Sequence[bytes], size: int, seed: int) -> Iterable[bytes]:
    """An entry, and one for each of the payloads, as they stand in the file: `size` bytes, some of them at a time."""
    if len(payloads) > PIECE_ENTRIES or size > PIECE_BYTES:
        return _many_pieces(first, payloads, seed)
    pack, parts = FRAME.pack, [first]
    for payload in payloads:
        parts += (pack(len(payload), crc32c(payload, seed)), payload)
    return (b"".join(parts),)


def _many_pieces(first: bytes, payloads: Sequence[bytes], seed: int) -> Iterator[bytes]:
    parts, held = [first], len(first)
    for payload in payloads:
        if held >= PIECE_BYTES or len(parts) >= PIECE_ENTRIES:
            yield b"".join(parts)
            parts, held = [], 0
        parts.append(framed(payload, seed))
        held += len(payload)
    yield b"".join(parts)
