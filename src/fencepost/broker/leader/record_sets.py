"""What one partition of a Produce request gets: the one batch that it must be, or what is wrong with it (facts §6.3).

Apache Kafka walks through a record set batch by batch, believing the size that each batch claims, and does so three
times: to see whether anything in the request is transactional, to check each partition, and to learn whose
transactions these are.  Some faults are the partition's own; others end the walk, and with it the whole request.
"""

from __future__ import annotations

from enum import Enum
from struct import Struct
from typing import NamedTuple

from fencepost.log.outcome import Refused
from fencepost.protocol.batch import (
    HEADER_SIZE,
    MAGIC,
    MAX_INT32,
    BatchHeader,
    crc_matches,
    read_header,
    read_part_of_header,
)
from fencepost.protocol.compression import CODECS, Compression
from fencepost.protocol.errors import ErrorCode, ProtocolError
from fencepost.protocol.types import Buffer

_ZSTD_SINCE = 7

#: Of a batch of any format: size, then leader epoch or checksum, then magic; and the size of the smallest there is.
_SIZE, _MAGIC = Struct(">i"), Struct(">b")
_SIZE_AT, _SIZE_END, _MAGIC_AT, _LEAST_SIZE = 8, 12, 16, 14
#: Where the producer id, and what else tells of its transaction, end in the header.
_PRODUCER_ID_END, _SEQUENCE_END = 51, 57


class Found(Enum):
    """The kinds of things that may begin at a place of a record set."""

    NOTHING = 1
    """The end, or a batch that is cut off."""
    CORRUPT = 2
    """A size or format that no batch ever had."""
    ENDLESS = 3
    """A size so large that the end of the batch is no number."""
    OLD = 4
    """A whole message set of format 0 or 1."""
    SHORT = 5
    """A batch that claims to be shorter than its own header."""
    BATCH = 6
    """A whole batch of format 2."""


class Flaw(NamedTuple):
    """The error of a record set, and when it counts."""

    refused: Refused
    header: BatchHeader | None = None
    """The header of its first batch, as far as that can be read."""
    in_any_place: bool = False
    """The request fails wherever it was to go, unless a transactional batch comes before it."""
    in_its_place: bool = False
    """The request fails if the partition can be written to."""
    late: bool = False
    """The partition is refused, but only once its transaction is verified."""


def find(records: Buffer, at: int = 0) -> tuple[Found, int]:
    """What begins at position `at`, and the position behind it; `at` itself unless it is whole."""
    left = len(records) - at
    if left < _SIZE_END:
        return Found.NOTHING, at
    (size,) = _SIZE.unpack_from(records, at + _SIZE_AT)
    if size < _LEAST_SIZE:
        return Found.CORRUPT, at
    if left <= _MAGIC_AT:
        return Found.NOTHING, at
    (magic,) = _MAGIC.unpack_from(records, at + _MAGIC_AT)
    if not 0 <= magic <= MAGIC:
        return Found.CORRUPT, at
    size += _SIZE_END
    if size > MAX_INT32:
        return Found.ENDLESS, at
    if size > left:
        return Found.NOTHING, at
    if magic < MAGIC:
        return Found.OLD, at + size
    return Found.SHORT if size < HEADER_SIZE else Found.BATCH, at + size


def read(records: Buffer | None, version: int) -> BatchHeader | Flaw:
    """The header of the one batch for a partition; whether the batch is intact is for the log to say."""
    if records is None:
        return _invalid("a partition takes exactly one record batch, and got none")
    try:
        header = read_header(records)
    except ProtocolError:
        return _flaw(records, version)
    if header.size == len(records) and (version >= _ZSTD_SINCE or header.attributes & 7 < Compression.ZSTD):
        return header
    return _flaw(records, version)


def _flaw(records: Buffer, version: int) -> Flaw:
    found, end = find(records)
    match found:
        case Found.NOTHING:
            return _invalid("a partition takes exactly one record batch, and got no whole one")
        case Found.CORRUPT:
            return Flaw(_corrupt("what came is no record batch of any format"), in_any_place=True)
        case Found.ENDLESS:
            return Flaw(_unknown("a record batch cannot be that large"), in_any_place=True, in_its_place=True)
        case Found.OLD:
            return _invalid("record batches of formats 0 and 1 are not supported, only format 2")
    header = read_part_of_header(records, end)
    codec = header.attributes & 7
    if version < _ZSTD_SINCE and codec not in CODECS:
        return Flaw(_unknown(f"nobody knows compression {codec}"), header, in_its_place=True)
    if version < _ZSTD_SINCE and codec == Compression.ZSTD:
        return Flaw(Refused(ErrorCode.UNSUPPORTED_COMPRESSION_TYPE), header)
    following, _ = find(records, end)
    match following:
        case Found.CORRUPT:
            return Flaw(_corrupt("what follows the record batch is none of any format"), header)
        case Found.ENDLESS:
            return Flaw(_unknown("a record batch cannot be that large"), header, in_its_place=True)
        case Found.NOTHING if found is Found.SHORT:
            return _short(header, end)
        case Found.NOTHING if not crc_matches(records, 0, header):
            # As if its size had been changed on the way: a producer sends it again.
            return Flaw(_corrupt("the checksum of the record batch does not match"), header, late=True)
    return _invalid("a partition takes exactly one record batch per request", header)


def _short(header: BatchHeader, end: int) -> Flaw:
    """A batch that ends in its own header: nobody can say whose it is, or else it is no intact one."""
    if end < _PRODUCER_ID_END or (header.is_transactional and header.has_producer_id and end < _SEQUENCE_END):
        return Flaw(_unknown("a record batch is shorter than its own header"), header, in_its_place=True)
    return Flaw(_corrupt("a record batch is shorter than its own header"), header, late=True)


def _invalid(why: str, header: BatchHeader | None = None) -> Flaw:
    return Flaw(Refused(ErrorCode.INVALID_RECORD, why), header)


def _corrupt(why: str) -> Refused:
    return Refused(ErrorCode.CORRUPT_MESSAGE, why)


def _unknown(why: str) -> Refused:
    return Refused(ErrorCode.UNKNOWN_SERVER_ERROR, why)
