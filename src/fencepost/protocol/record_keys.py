"""Records of which only the key is looked at, for who wants the last one with each key and nothing else."""

from __future__ import annotations

from typing import NamedTuple

from fencepost.protocol.batch import HEADER_SIZE, BatchHeader
from fencepost.protocol.records import Record, decode_batch
from fencepost.protocol.types import Buffer, Offset


class UnreadRecord(NamedTuple):
    """A record of which only the key was looked at, for who wants the last one with each key and nothing else."""

    offset: Offset
    key: bytes | None
    is_tombstone: bool
    rest: Record | tuple[BatchHeader, bytes]
    """The whole of it, or the batch that has no other."""

    def read(self) -> Record:
        """The whole record.  Raises ProtocolError."""
        if isinstance(self.rest, Record):
            return self.rest
        header, batch = self.rest
        return decode_batch(batch, 0, header)[0]


def keys_of(batch: Buffer, header: BatchHeader) -> list[UnreadRecord]:
    """The records of a batch, which is all of `batch`, each with its key.

    Raises ProtocolError as `decode_batch` does, but what is wrong within the value or the headers of an only record is
    found when that is read.
    """
    sole = _sole_record(batch, header) if header.record_count == 1 and not header.attributes & 7 else None
    if sole is not None:
        return [sole]
    return [
        UnreadRecord(record.offset, record.key, record.value is None, record)
        for record in decode_batch(batch, 0, header)
    ]


def _sole_record(batch: Buffer, header: BatchHeader) -> UnreadRecord | None:
    """The only record; None if any number before its key has more than two bytes, or anything is wrong with it."""
    try:
        n, at = batch[HEADER_SIZE], HEADER_SIZE + 1
        if n > 127:
            n, at = n & 127 | batch[at] << 7, at + 1
        # After the length: attributes, timestamp and offset (of the first record in its batch 0, in one byte each).
        if at + (n >> 1) != len(batch) or n & 1 or n > 16_383 or batch[at + 1] > 127 or batch[at + 2]:
            return None
        n, at = batch[at + 3], at + 4
        if n > 127:
            n, at = n & 127 | batch[at] << 7, at + 1
        if n & 1 or n > 16_383:
            return None
        end = at + (n >> 1)
        # -1 for the length of the value is a tombstone; any other odd number is longer than one byte, or wrong.
        value = batch[end]
    except IndexError:
        return None
    if value & 1 and value != 1:
        return None
    return UnreadRecord(header.base_offset, bytes(batch[at:end]), value == 1, (header, bytes(batch)))
