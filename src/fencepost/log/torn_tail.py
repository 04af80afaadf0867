"""What stands behind the last batch that can be read of a segment: the torn rest of a write, or a hole.

A crash tears what was written last.  Where nothing says how far a segment was synced, a whole batch behind what cannot
be read tells that it was damaged: whoever cut it there would take away records that may have been acknowledged.
"""

from __future__ import annotations

from typing import Final

from fencepost.log.damage import FileDamaged
from fencepost.log.segment import Segment
from fencepost.protocol.batch import HEADER_SIZE, MAGIC, crc_matches, read_header
from fencepost.protocol.errors import ProtocolError

_PIECE: Final = 1024 * 1024
_MAGIC_AT: Final = 16
"""Where in a batch the byte stands that names its format."""


def whole_batch_behind(segment: Segment, position: int, least_offset: int) -> int | None:
    """Where, behind `position`, the first whole batch begins that has the right CRC and no offset before that one.

    None if there is none.
    """
    start = position + 1
    while start + HEADER_SIZE <= segment.size:
        try:
            piece = segment.read(min(_PIECE + HEADER_SIZE, segment.size - start), start, HEADER_SIZE)
        except FileDamaged:
            return None
        last = len(piece) - HEADER_SIZE
        at = piece.find(MAGIC, _MAGIC_AT) - _MAGIC_AT
        while 0 <= at <= last:
            if _is_whole(segment, piece, at, start + at, least_offset):
                return start + at
            at = piece.find(MAGIC, at + _MAGIC_AT + 1) - _MAGIC_AT
        start += last + 1
    return None


def _is_whole(segment: Segment, piece: bytes, at: int, position: int, least_offset: int) -> bool:
    try:
        header = read_header(piece, at)
        if header.base_offset < least_offset or position + header.size > segment.size:
            return False
        batch = segment.read(header.size, position, header.size)
    except (ProtocolError, FileDamaged):
        return False
    return crc_matches(batch, 0, header)
