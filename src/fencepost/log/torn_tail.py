"""Tells the torn rest of a write, behind the last batch of a segment that can be read, from a hole.

A crash tears what was written last.  Where no commit log says how far a segment was synced, a whole batch behind what
cannot be read tells that it was damaged: whoever cut it there would take away records that may have been acknowledged.
So does `.checksums`, which a checkpoint or a stop wrote: what the segment had then is not torn by a later crash.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Final

from fencepost.log.damage import FileDamaged
from fencepost.log.disk import Disk
from fencepost.log.file_names import numbered
from fencepost.log.offline import PartitionDamaged
from fencepost.log.replay import KnownFile
from fencepost.log.segment import Segment
from fencepost.log.segment_sums import noted_sizes
from fencepost.protocol.batch import HEADER_SIZE, MAGIC, crc_matches, read_header
from fencepost.protocol.errors import ProtocolError
from fencepost.protocol.types import Offset

DO_WITHOUT: Final = "put back a copy of it, or see docs/operating.md for how to do without"
_PIECE: Final = 1024 * 1024
_MAGIC_AT: Final = 16
"""Position within a batch of the byte that names its format."""


def check_none_is_missing(disk: Disk, directory: Path, names: Sequence[str], known: Mapping[Offset, KnownFile]) -> None:
    """Raises PartitionDamaged where `.checksums` is all that is left of a segment.  `names`: what is in `directory`.

    Of those before the first segment it is what a removal leaves that was cut off, and no segment is missing.
    """
    bases = [base for _, base in numbered(names, ".log")]
    for base, size in noted_sizes(disk, directory, names).items():
        is_removed = base in known and known[base].removed
        if base not in bases and not is_removed and base > min(bases, default=-1):
            path = directory / f"{base:020d}.log"
            raise PartitionDamaged(f"{path} is missing and once had {size} bytes; {DO_WITHOUT}")


def check_tail(segment: Segment, end: int, log_end_offset: Offset, segments: Iterable[Segment]) -> None:
    """Raises PartitionDamaged if what cannot be read from `end` on has something whole behind it, so was not torn.

    `log_end_offset`: that of what can be read.  `segments`: all of the partition.
    """
    behind = whole_batch_behind(segment, end, log_end_offset)
    later = [each for each in segments if each.base_offset > segment.base_offset and each.size]
    if behind is None and not later:
        return
    place = later[0].path if behind is None else f"byte {behind}"
    raise PartitionDamaged(
        f"{segment.path} is damaged at byte {end}, and there are whole batches behind that, from {place} on, which may "
        f"have been acknowledged; {DO_WITHOUT}"
    )


def whole_batch_behind(segment: Segment, position: int, least_offset: Offset) -> int | None:
    """Position behind `position` of the first whole batch with the right CRC and no offset before `least_offset`.

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


def _is_whole(segment: Segment, piece: bytes, at: int, position: int, least_offset: Offset) -> bool:
    try:
        header = read_header(piece, at)
        if header.base_offset < least_offset or position + header.size > segment.size:
            return False
        batch = segment.read(header.size, position, header.size)
    except (ProtocolError, FileDamaged):
        return False
    return crc_matches(batch, 0, header)
