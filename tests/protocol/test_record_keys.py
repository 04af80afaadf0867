"""Keys of records, read without the rest of them."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.protocol.drawn_records import BYTES, HEADERS, ODD_RECORDS, TIMESTAMPS

from fencepost.protocol.batch import HEADER_SIZE, read_header
from fencepost.protocol.compression import Compression
from fencepost.protocol.errors import ProtocolError
from fencepost.protocol.record_keys import keys_of
from fencepost.protocol.records import NewRecord, decode_batch, encode_batch, seal, varint


def _check_keys(batch: bytes) -> None:
    """They are those of the records, and what is read later is the record; or both find it damaged, sooner or later."""
    header = read_header(batch)
    try:
        records = decode_batch(batch)
    except ProtocolError:
        with pytest.raises(ProtocolError):
            [unread.read() for unread in keys_of(batch, header)]
        return
    found = keys_of(batch, header)
    assert [(each.offset, each.key, each.is_tombstone) for each in found] == [
        (record.offset, record.key, record.value is None) for record in records
    ]
    assert [unread.read() for unread in found] == records


@pytest.mark.parametrize("compression", Compression, ids=lambda compression: compression.name)
@given(records=st.one_of(ODD_RECORDS, ODD_RECORDS.map(lambda records: records[:1])), base_offset=st.integers(0, 2**62))
def test_keys_are_those_of_the_records(compression: Compression, records: list[NewRecord], base_offset: int) -> None:
    _check_keys(encode_batch(records, base_offset=base_offset, compression=compression))


@given(
    record=st.tuples(TIMESTAMPS, BYTES, BYTES, HEADERS),
    at=st.integers(0, 12),
    byte=st.integers(0, 255),
    cut=st.booleans(),
)
def test_keys_of_a_damaged_record_are_those_of_the_record_or_none(
    record: NewRecord, at: int, byte: int, cut: bool
) -> None:
    """Where its CRC was made for what is wrong."""
    batch = bytearray(encode_batch([record]))
    batch[min(HEADER_SIZE + at, len(batch) - 1)] = byte
    if cut:
        batch = batch[: max(len(batch) - at, HEADER_SIZE)]
        batch[8:12] = (len(batch) - 12).to_bytes(4, "big")
    _check_keys(bytes(batch))


@pytest.mark.parametrize("length", range(-64, 64))
def test_any_length_below_0_is_no_value(length: int) -> None:
    """As the decoder has it, and Apache Kafka: in a directory of somebody else there may be others than -1."""
    body = b"\0\0\0" + varint(1) + b"k" + varint(length) + bytes(max(length, 0)) + b"\0"
    _check_keys(seal(varint(len(body)) + body, 1, 0, 0))


def test_a_batch_without_records_has_no_keys() -> None:
    empty = seal(b"", 0, 0, -1, last_offset_delta=3)
    assert keys_of(empty, read_header(empty)) == []
