"""The codecs of record batches.  A limit bounds what a few hostile bytes may unfold to, in bytes and in pieces."""

from __future__ import annotations

import struct
import zlib
from collections.abc import Callable, Generator, Mapping
from enum import IntEnum
from typing import Final

import cramjam

from fencepost.protocol.errors import ProtocolError
from fencepost.protocol.types import Buffer

LARGEST_BATCH = 256 * 1024 * 1024
"""Bytes that one batch may unfold to, unless the caller says otherwise."""

_XERIAL_MAGIC = b"\x82SNAPPY\x00"
_XERIAL_HEADER = _XERIAL_MAGIC + struct.pack(">ii", 1, 1)
_XERIAL_BLOCK = 32 * 1024

FOLDED_IN_A_STEP: Final = 128 * 1024
"""Bytes that are compressed in one step; a multiple of a block of snappy."""

#: For so many bytes of the limit one more gzip member, or block of a snappy frame, is taken: an empty one costs
#: as much time as a full one.  (Java writes one member, and blocks of 32 KB.)
_PER_MEMBER, _PER_BLOCK, _PARTS_IN_ANY_CASE = 64 * 1024, 1024, 64
_GZIP_PIECE = 64 * 1024
"""Bytes of gzip data that are unfolded at once: what is behind a member is copied, but no more of it than this."""


class TooLarge(ProtocolError):
    """The data is not known to be damaged, but unfolds to more than the limit."""


class Compression(IntEnum):
    """The codecs of batches, by the number in bits 0-2 of a batch's attributes."""

    NONE = 0
    GZIP = 1
    SNAPPY = 2
    LZ4 = 3
    ZSTD = 4


CODECS: Final = frozenset(Compression)
"""The numbers of all codecs: other bits name none."""


#: What the data of a codec begins with: for zstd there may be frames to be passed over, of 16 kinds, before the others.
_MAGICS: Final[Mapping[Compression, tuple[bytes, ...]]] = {
    Compression.NONE: (b"",),
    Compression.GZIP: (b"\x1f\x8b\x08",),
    Compression.LZ4: (b"\x04\x22\x4d\x18",),
    Compression.ZSTD: (b"\x28\xb5\x2f\xfd", *(bytes((0x50 + kind,)) + b"\x2a\x4d\x18" for kind in range(16))),
}
_LONGEST_MAGIC: Final = 4
#: Of the fifth byte of an lz4 frame the bits that tell how it is to be read, and how they must be for Java's reader:
#: version 1, blocks that do not depend on each other, no dictionary.
_LZ4_BITS: Final = 0b1110_0011
_LZ4_AS_JAVA_READS: Final = 0b0110_0000
#: And those that make parts of it longer: a checksum of each block, the size of all of it.
_LZ4_BLOCK_SUMS, _LZ4_SIZE = 0b1_0000, 0b1000
_LZ4_STORED = 1 << 31
"""Beside the size of a block: it is there as it is."""
_LZ4_BLOCK: Final = 64
"""For so many bytes one more block is looked at: 64 KB, the least that a full one has, are never folded to fewer."""

USUAL_LEVELS: Final = {Compression.GZIP: 6, Compression.LZ4: 4, Compression.ZSTD: 3}
"""The levels of codecs that have some, where none is given."""


def compress(compression: Compression, data: bytes, level: int | None = None) -> bytes:
    """The compressed form of `data`, readable by every Kafka client; None: at the level in `USUAL_LEVELS`.

    The higher the level, the smaller and the slower (KIP-390): 1 to 9 for gzip (-1 is 6), 1 to 17 for lz4, -131072 to
    22 for zstd.
    """
    chosen = USUAL_LEVELS.get(compression, 0) if level is None else level
    match compression:
        case Compression.NONE:
            return data
        case Compression.GZIP:
            deflate = zlib.compressobj(chosen, zlib.DEFLATED, 31)
            return deflate.compress(data) + deflate.flush()
        case Compression.SNAPPY:
            return _xerial(data)
        case Compression.LZ4:
            packer = _lz4_packer(chosen)
            packer.compress(data)
            return bytes(packer.finish())
        case Compression.ZSTD:
            return bytes(cramjam.zstd.compress(data, chosen))


def compress_in_steps(compression: Compression, data: bytes) -> Generator[None, None, bytes]:
    """As `compress` at its usual level, with a pause after each `FOLDED_IN_A_STEP` bytes: a few milliseconds."""
    if len(data) <= FOLDED_IN_A_STEP or compression is Compression.NONE:
        return compress(compression, data)
    parts, fold, end = _folding(compression)
    for at in range(0, len(data), FOLDED_IN_A_STEP):
        parts.append(fold(data[at : at + FOLDED_IN_A_STEP]))
        yield
    parts.append(end())
    return b"".join(parts)


def _folding(compression: Compression) -> tuple[list[bytes], Callable[[bytes], bytes], Callable[[], bytes]]:
    """The beginning of the compressed form, a function that compresses a piece, and one that gives the end."""
    level = USUAL_LEVELS.get(compression, 0)
    if compression is Compression.GZIP:
        deflate = zlib.compressobj(level, zlib.DEFLATED, 31)
        return [], deflate.compress, deflate.flush
    if compression is Compression.SNAPPY:
        return [_XERIAL_HEADER], _xerial_blocks, bytes
    packer = _lz4_packer(level) if compression is Compression.LZ4 else cramjam.zstd.Compressor(level=level)

    def fold(piece: bytes) -> bytes:
        packer.compress(piece)
        return bytes(packer.flush())

    return [], fold, lambda: bytes(packer.finish())


def decompress(compression: Compression, data: Buffer, limit: int = LARGEST_BATCH) -> bytes:
    """The data that was compressed.  Raises ProtocolError if it is damaged, TooLarge if it is over `limit` bytes."""
    refusal = ProtocolError
    try:
        return _decompress(compression, data, limit)
    except ProtocolError as error:
        refusal, says = type(error), str(error)
    except (cramjam.DecompressionError, zlib.error, struct.error, ValueError, OSError, EOFError) as error:
        says = f"{compression.name.lower()} data is damaged: {error}"
    # A new one, raised out here: the other one refers to the frames that it came through, and to all they had unfolded.
    raise refusal(says)


def _decompress(compression: Compression, data: Buffer, limit: int) -> bytes:
    match compression:
        case Compression.NONE:
            return bytes(data)
        case Compression.GZIP:
            return _gunzip(memoryview(data), limit)
        case Compression.SNAPPY:
            return _unsnappy(bytes(data), limit)
        case Compression.LZ4:
            return _into(cramjam.lz4.decompress_into, bytes(data), limit)
        case Compression.ZSTD:
            return _into(cramjam.zstd.decompress_into, bytes(data), limit)


def check_start(compression: Compression, data: Buffer) -> None:
    """Raises ProtocolError if `data` does not begin as this codec's does, for every client.  Nothing is unfolded."""
    if compression is Compression.SNAPPY:
        begins = _begins_as_snappy(memoryview(data))
    else:
        begins = bytes(data[:_LONGEST_MAGIC]).startswith(_MAGICS[compression])
    if not begins:
        raise ProtocolError(f"{compression.name.lower()} data is damaged: it does not begin as such")
    if compression is Compression.LZ4 and (len(data) < 5 or data[4] & _LZ4_BITS != _LZ4_AS_JAVA_READS):
        raise ProtocolError("lz4 data has blocks that depend on each other, which Java clients do not read")
    if compression is Compression.LZ4 and _has_another_lz4_frame(bytes(data)):
        raise ProtocolError("lz4 data has several frames or very small blocks: Java clients read the first frame only")


def _has_another_lz4_frame(data: bytes) -> bool:
    """Whether another frame begins behind the first, or that has so many blocks that nobody looks for its end."""
    (magic,) = _MAGICS[Compression.LZ4]
    if data.find(magic, len(magic)) < 0:
        return False
    # Compressed records may have the same four bytes in them.
    flags, at = data[4], 7
    at += 8 if flags & _LZ4_SIZE else 0
    for _ in range(_PARTS_IN_ANY_CASE + len(data) // _LZ4_BLOCK):
        size = int.from_bytes(data[at : at + 4], "little")
        at += 4
        if not size:
            return data.find(magic, at) >= 0
        at += size & ~_LZ4_STORED
        at += 4 if flags & _LZ4_BLOCK_SUMS else 0
    return True


def _begins_as_snappy(data: memoryview) -> bool:
    """Whether there is the size of a block, then a literal: a block of raw snappy cannot begin with a copy."""
    at = len(_XERIAL_HEADER) + 4 if data[: len(_XERIAL_MAGIC)] == _XERIAL_MAGIC else 0
    size = shift = 0
    for byte in data[at : at + 5]:
        at += 1
        size |= (byte & 127) << shift
        shift += 7
        if byte < 128:
            return 0 < size < 1 << 32 and at + 1 < len(data) and not data[at] & 3
    return False


def _too_large(limit: int) -> TooLarge:
    return TooLarge(f"compressed data unfolds to more than {limit} bytes")


def _gunzip(data: memoryview, limit: int) -> bytes:
    """Unfold gzip data: one member or several, one after the other (RFC 1952, section 2.2).  Raises ProtocolError."""
    unpacked: list[bytes] = []
    room, at, members = limit, 0, _PARTS_IN_ANY_CASE + limit // _PER_MEMBER
    while at < len(data) or not unpacked:
        members -= 1
        if members < 0:
            raise ProtocolError("gzip data is damaged: it has more members than data")
        unpacker = zlib.decompressobj(31)
        while not unpacker.eof:
            piece = data[at : at + _GZIP_PIECE]
            if not piece:
                raise ProtocolError("gzip data is damaged: it ends too early")
            unpacked.append(unpacker.decompress(piece, room + 1))
            room -= len(unpacked[-1])
            if room < 0:
                raise _too_large(limit)
            at += len(piece) - len(unpacker.unused_data)
    return b"".join(unpacked)


def _lz4_packer(level: int) -> cramjam.lz4.Compressor:
    """A compressor of blocks that do not depend on each other: Java's reader refuses others."""
    return cramjam.lz4.Compressor(level=level, block_linked=False)


def _xerial(data: bytes) -> bytes:
    return _XERIAL_HEADER + _xerial_blocks(data)


def _xerial_blocks(data: bytes) -> bytes:
    parts: list[bytes] = []
    # A frame has at least one block: aiokafka takes one that is all header for something else.
    for at in range(0, len(data) or 1, _XERIAL_BLOCK):
        block = bytes(cramjam.snappy.compress_raw(data[at : at + _XERIAL_BLOCK]))
        parts += [struct.pack(">i", len(block)), block]
    return b"".join(parts)


def _unsnappy(data: bytes, limit: int) -> bytes:
    """Unfold blocks in the framing of Java's xerial library, or one raw block of librdkafka.  Raises ProtocolError."""
    if not data.startswith(_XERIAL_MAGIC):
        return _unsnappy_block(data, limit)
    if len(data) < len(_XERIAL_HEADER):
        raise ProtocolError("snappy data is damaged: its header ends too early")
    parts: list[bytes] = []
    size, at = 0, len(_XERIAL_HEADER)
    while at < len(data):
        if len(parts) >= _PARTS_IN_ANY_CASE + limit // _PER_BLOCK:
            raise ProtocolError("snappy data is damaged: it has more blocks than data")
        (length,) = struct.unpack_from(">i", data, at)
        at += 4
        if length < 0 or length > len(data) - at:
            raise ProtocolError("snappy data is damaged: a block ends too early")
        block = _unsnappy_block(data[at : at + length], limit - size)
        parts.append(block)
        size += len(block)
        at += length
    return b"".join(parts)


def _unsnappy_block(block: bytes, limit: int) -> bytes:
    size = shift = 0
    for byte in block[:5]:
        size |= (byte & 127) << shift
        shift += 7
        if byte < 128:
            break
    if size > limit:
        raise _too_large(limit)
    return bytes(cramjam.snappy.decompress_raw(block))


def _into(decompress_into: Callable[[bytes, bytearray], int], data: bytes, limit: int) -> bytes:
    """Unfold into a buffer that grows as needed, up to `limit` bytes.  Raises TooLarge."""
    size = min(limit, max(4096, 8 * len(data)))
    while True:
        unpacked = bytearray(size)
        try:
            return bytes(memoryview(unpacked)[: decompress_into(data, unpacked)])
        except cramjam.DecompressionError as error:
            if "write whole buffer" not in str(error):
                raise
            if size == limit:
                raise _too_large(limit) from None
        size = min(limit, 8 * size)
