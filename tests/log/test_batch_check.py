"""What a client's batch must be, told from its header and its size."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
from crc32c import crc32c
from hypothesis import given
from hypothesis import strategies as st

sys.path.insert(0, str(Path(__file__).parent))

from log_doubles import START

from fencepost.log.batch_check import check_batch
from fencepost.log.settings import LogSettings
from fencepost.protocol.batch import AFTER_CRC, CRC_START, HEADER_SIZE, MAX_INT32, read_header
from fencepost.protocol.compression import Compression
from fencepost.protocol.errors import ErrorCode
from fencepost.protocol.records import encode_batch

SETTINGS = LogSettings()


def claiming(count: int, compression: Compression, body: bytes) -> bytes:
    """A batch whose header says that `body` is `count` records."""
    data = bytearray(HEADER_SIZE) + body
    data[8:12] = (len(data) - 12).to_bytes(4, "big")
    data[16] = 2
    AFTER_CRC.pack_into(data, CRC_START, compression, count - 1, START, START, -1, -1, -1, count)
    data[17:21] = crc32c(memoryview(data)[CRC_START:]).to_bytes(4, "big")
    return bytes(data)


@given(st.sampled_from(Compression), st.integers(1, MAX_INT32), st.binary(max_size=200))
def test_no_more_records_than_the_bytes_can_hold(compression: Compression, count: int, body: bytes) -> None:
    data = claiming(count, compression, body)
    refused = check_batch(data, read_header(data), SETTINGS, START)
    largest = {0: 1, 1: 1032, 2: 22, 3: 255, 4: 32768}[compression]
    if count * 7 > len(body) * largest:
        assert refused is not None and refused.error == ErrorCode.INVALID_RECORD
    else:
        assert refused is None


@pytest.mark.parametrize("compression", Compression)
def test_a_header_alone_has_no_records(compression: Compression) -> None:
    data = claiming(MAX_INT32, compression, b"")
    assert len(data) == 61
    refused = check_batch(data, read_header(data), SETTINGS, START)
    assert refused is not None and refused.message == "0 bytes cannot hold the 2147483647 records of the header"


@pytest.mark.parametrize("count", [1, 63, 100_000])
@pytest.mark.parametrize("compression", Compression)
def test_the_smallest_records_are_held_by_their_bytes(compression: Compression, count: int) -> None:
    data = encode_batch([(START, None, None, ())] * count, compression=compression)
    assert check_batch(data, read_header(data), SETTINGS, START) is None
