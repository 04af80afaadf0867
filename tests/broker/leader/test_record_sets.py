"""What a partition of a Produce request gets, read as Apache Kafka reads it (facts §6.3 c, d)."""

from __future__ import annotations

import struct
from collections.abc import Callable

import pytest

from fencepost.broker.leader.record_sets import Flaw, Found, find, read
from fencepost.protocol.batch import BatchHeader
from fencepost.protocol.compression import Compression
from fencepost.protocol.errors import ErrorCode
from fencepost.protocol.records import encode_batch
from fencepost.protocol.types import Epoch, ProducerId

GOOD = encode_batch(
    [(0, b"k", b"value", ())], producer_id=ProducerId(7), producer_epoch=Epoch(0), base_sequence=0, transactional=True
)
PLAIN = encode_batch([(0, b"k", b"value", ())])


def sized(size: int, data: bytes = PLAIN) -> bytes:
    return data[:8] + struct.pack(">i", size) + data[12:]


def of_magic(magic: int) -> bytes:
    return PLAIN[:16] + struct.pack(">b", magic) + PLAIN[17:]


def ending(end: int, data: bytes = PLAIN) -> bytes:
    """A batch that ends there, and says so."""
    return sized(end - 12, data)[:end]


def of_codec(codec: int) -> bytes:
    return PLAIN[:22] + bytes([codec]) + PLAIN[23:]


@pytest.mark.parametrize(
    ("records", "expected"),
    [
        (b"", Found.NOTHING),
        (PLAIN[:11], Found.NOTHING),
        (PLAIN[:16], Found.NOTHING),
        (PLAIN[:-1], Found.NOTHING),
        (sized(13), Found.CORRUPT),
        (sized(-1), Found.CORRUPT),
        (sized(13)[:12], Found.CORRUPT),
        (of_magic(3), Found.CORRUPT),
        (of_magic(-1), Found.CORRUPT),
        (of_magic(-1)[:17], Found.CORRUPT),
        (sized(2**31 - 13), Found.NOTHING),
        (sized(2**31 - 12), Found.ENDLESS),
        (of_magic(0), Found.OLD),
        (of_magic(1), Found.OLD),
        (of_magic(1)[:-1], Found.NOTHING),
        (sized(14), Found.SHORT),
        (ending(60), Found.SHORT),
        (ending(61), Found.BATCH),
        (PLAIN, Found.BATCH),
        (PLAIN + b"behind", Found.BATCH),
    ],
)
def test_what_begins_a_record_set_is_found_by_its_size_and_format(records: bytes, expected: Found) -> None:
    assert find(records)[0] is expected


def test_where_a_batch_ends_is_what_it_says() -> None:
    assert find(PLAIN + GOOD) == (Found.BATCH, len(PLAIN))
    assert find(PLAIN + GOOD, len(PLAIN)) == (Found.BATCH, len(PLAIN) + len(GOOD))
    assert find(sized(20)) == (Found.SHORT, 32)


@pytest.mark.parametrize("version", range(3, 14))
@pytest.mark.parametrize("make", [bytes, bytearray, memoryview])
def test_one_whole_batch_is_taken(version: int, make: Callable[[bytes], bytes]) -> None:
    header = read(make(GOOD), version)
    assert isinstance(header, BatchHeader)
    assert header.size == len(GOOD)


@pytest.mark.parametrize(("version", "taken"), [(3, False), (6, False), (7, True), (13, True)])
def test_zstd_needs_version_7(version: int, taken: bool) -> None:
    found = read(encode_batch([(0, None, b"v", ())], compression=Compression.ZSTD), version)
    assert isinstance(found, BatchHeader) is taken
    if isinstance(found, Flaw):
        assert found.refused.error == ErrorCode.UNSUPPORTED_COMPRESSION_TYPE
        assert not found.in_any_place
        assert not found.in_its_place


INVALID, CORRUPT, UNKNOWN = ErrorCode.INVALID_RECORD, ErrorCode.CORRUPT_MESSAGE, ErrorCode.UNKNOWN_SERVER_ERROR


@pytest.mark.parametrize(
    ("records", "version", "error", "in_any_place", "in_its_place", "late"),
    [
        (None, 13, INVALID, False, False, False),
        (b"", 13, INVALID, False, False, False),
        (of_magic(1), 13, INVALID, False, False, False),
        (PLAIN + PLAIN, 13, INVALID, False, False, False),
        (PLAIN + b"behind", 13, INVALID, False, False, False),
        (of_codec(1) + PLAIN, 13, INVALID, False, False, False),
        (of_codec(1) + b"behind", 13, CORRUPT, False, False, True),
        (sized(len(PLAIN) - 13), 13, CORRUPT, False, False, True),
        (PLAIN + bytes(12), 13, CORRUPT, False, False, False),
        (PLAIN + sized(2**31 - 1), 13, UNKNOWN, False, True, False),
        (sized(0), 13, CORRUPT, True, False, False),
        (of_magic(3), 13, CORRUPT, True, False, False),
        (sized(2**31 - 1), 13, UNKNOWN, True, True, False),
        (of_codec(5), 6, UNKNOWN, False, True, False),
        (ending(50), 13, UNKNOWN, False, True, False),
        (ending(50) + b"behind", 13, UNKNOWN, False, True, False),
        (ending(50) + PLAIN, 13, INVALID, False, False, False),
        (ending(51), 13, CORRUPT, False, False, True),
        (ending(56, GOOD), 13, UNKNOWN, False, True, False),
        (ending(57, GOOD), 13, CORRUPT, False, False, True),
    ],
)
def test_what_is_wrong_concerns_its_partition_or_the_request(
    records: bytes | None, version: int, error: ErrorCode, in_any_place: bool, in_its_place: bool, late: bool
) -> None:
    flaw = read(records, version)
    assert isinstance(flaw, Flaw)
    assert flaw.refused.error == error
    assert (flaw.in_any_place, flaw.in_its_place, flaw.late) == (in_any_place, in_its_place, late)


def test_a_codec_that_nobody_knows_is_left_to_the_log_from_version_7_on() -> None:
    assert isinstance(read(of_codec(5), 7), BatchHeader)


@pytest.mark.parametrize("end", [30, 50, 60])
def test_a_batch_is_transactional_even_where_it_ends_in_its_header(end: int) -> None:
    flaw = read(ending(end, GOOD), 13)
    assert isinstance(flaw, Flaw)
    assert flaw.header is not None
    assert flaw.header.is_transactional
