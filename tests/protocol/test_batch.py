"""Batch headers: read as kafka-python reads them, stamped without a new CRC, refused when they cannot be true."""

from __future__ import annotations

import struct
from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st
from kafka.record.default_records import DefaultRecordBatch as KafkaPythonReader

from fencepost.protocol.batch import (
    CRC_START,
    HEADER_SIZE,
    MAX_INT32,
    BatchHeader,
    crc_matches,
    headers,
    next_sequence,
    read_header,
    set_max_timestamp,
    stamp,
)
from fencepost.protocol.compression import Compression
from fencepost.protocol.errors import ProtocolError
from fencepost.protocol.records import decode_batch, encode_batch, seal
from fencepost.protocol.types import LeaderEpoch, Milliseconds, Offset

INT16, INT32, INT64 = (st.integers(-(1 << bits - 1), (1 << bits - 1) - 1) for bits in (16, 32, 64))

#: Batches with every header field at will; what stands behind the header matters to nobody here.
BATCHES = st.builds(
    seal,
    st.binary(max_size=60),
    INT32,
    INT64,
    INT64,
    base_offset=st.integers(0, 1 << 62),
    last_offset_delta=st.integers(0, MAX_INT32),
    compression=st.sampled_from(Compression),
    producer_id=INT64,
    producer_epoch=INT16,
    base_sequence=st.integers(-1, MAX_INT32),
    transactional=st.booleans(),
    control=st.booleans(),
    leader_epoch=INT32,
)
LOGS = st.lists(BATCHES, max_size=5)


def _changed(batch: bytes, place: int, value: bytes) -> bytes:
    return batch[:place] + value + batch[place + len(value) :]


@given(batch=BATCHES)
def test_a_header_reads_as_elsewhere(batch: bytes) -> None:
    ours, theirs = read_header(batch), KafkaPythonReader(batch)
    for name, value in {
        "base_offset": ours.base_offset,
        "size_in_bytes": ours.size,
        "leader_epoch": ours.partition_leader_epoch,
        "magic": ours.magic,
        "crc": ours.crc,
        "attributes": ours.attributes,
        "last_offset_delta": ours.last_offset_delta,
        "last_offset": ours.last_offset,
        "compression_type": ours.compression,
        "timestamp_type": ours.is_log_append_time,
        "is_transactional": ours.is_transactional,
        "is_control_batch": ours.is_control,
        "first_timestamp": ours.base_timestamp,
        "max_timestamp": ours.max_timestamp,
        "producer_id": ours.producer_id,
        "producer_epoch": ours.producer_epoch,
        "base_sequence": ours.base_sequence,
        "last_sequence": ours.last_sequence,
        "records_count": ours.record_count,
    }.items():
        assert getattr(theirs, name) == value, name
    assert theirs.has_producer_id() == ours.has_producer_id
    assert theirs.validate_crc()
    assert crc_matches(batch, 0, ours)


@pytest.mark.parametrize("compression", Compression, ids=lambda compression: compression.name)
def test_attributes_tell_the_compression(compression: Compression) -> None:
    assert read_header(encode_batch([(0, b"key", b"value", ())], compression=compression)).compression is compression


@pytest.mark.parametrize("attributes", [5, 6, 7, 0x15])
def test_a_compression_that_nobody_knows_is_refused(attributes: int) -> None:
    batch = _changed(encode_batch([(0, b"key", b"value", ())]), CRC_START, attributes.to_bytes(2, "big"))
    with pytest.raises(ProtocolError, match="unknown compression"):
        _ = read_header(batch).compression
    with pytest.raises(ProtocolError, match="unknown compression"):
        decode_batch(batch)


@given(log=LOGS, torn=BATCHES, cut=st.integers(0, 10**6))
def test_whole_batches_are_found_and_a_torn_one_is_left_out(log: list[bytes], torn: bytes, cut: int) -> None:
    places = [sum(map(len, log[:count])) for count in range(len(log))]
    for size in (cut % len(torn), HEADER_SIZE - 1, min(HEADER_SIZE, len(torn) - 1), len(torn) - 1):
        buffer = b"".join(log) + torn[:size]
        assert list(headers(buffer)) == [(at, read_header(batch)) for at, batch in zip(places, log, strict=True)]
        for number, at in enumerate(places):
            assert [found for found, _ in headers(memoryview(buffer), at)] == places[number:]


@given(batch=BATCHES, before=st.binary(max_size=10), base_offset=INT64, epoch=INT32)
def test_a_stamp_writes_offset_and_epoch_and_leaves_the_crc_true(
    batch: bytes, before: bytes, base_offset: int, epoch: LeaderEpoch
) -> None:
    buffer, at = bytearray(before + batch), len(before)
    stamp(buffer, at, Offset(base_offset), epoch)
    header = read_header(buffer, at)
    assert header == read_header(batch)._replace(base_offset=Offset(base_offset), partition_leader_epoch=epoch)
    assert crc_matches(buffer, at, header)
    assert bytes(buffer[:at] + buffer[at + HEADER_SIZE :]) == before + batch[HEADER_SIZE:]


@given(batch=BATCHES, place=st.integers(0, 10**6), flip=st.integers(1, 255))
def test_the_crc_notices_any_change_of_what_it_covers(batch: bytes, place: int, flip: int) -> None:
    place = CRC_START + place % (len(batch) - CRC_START)
    damaged = _changed(batch, place, bytes([batch[place] ^ flip]))
    assert not crc_matches(damaged, 0, read_header(damaged))
    assert not crc_matches(batch[:-1], 0, read_header(batch))


@given(batch=BATCHES, before=st.binary(max_size=10), timestamp=INT64)
def test_append_time_is_a_flag_and_a_timestamp_under_a_new_crc(
    batch: bytes, before: bytes, timestamp: Milliseconds
) -> None:
    buffer, at, old = bytearray(before + batch), len(before), read_header(batch)
    returned = set_max_timestamp(buffer, at, old, timestamp)
    header = read_header(buffer, at)
    assert header == returned
    assert header == old._replace(attributes=old.attributes | 0x08, max_timestamp=timestamp, crc=header.crc)
    assert header.is_log_append_time
    assert crc_matches(buffer, at, header)
    assert bytes(buffer[:at] + buffer[at + HEADER_SIZE :]) == before + batch[HEADER_SIZE:]


@given(sequence=st.integers(0, MAX_INT32), count=st.integers(0, MAX_INT32))
def test_a_sequence_goes_on_at_0_after_its_largest_number(sequence: int, count: int) -> None:
    following = next_sequence(sequence, count)
    assert following == (sequence + count) % (MAX_INT32 + 1)
    assert following == KafkaPythonReader(bytes(HEADER_SIZE))._increment_sequence(sequence, count)


def test_a_batch_without_sequence_has_no_last_one() -> None:
    records = [(0, None, None, ())] * 3
    assert read_header(encode_batch(records)).last_sequence == -1
    assert read_header(encode_batch(records, base_sequence=MAX_INT32 - 1)).last_sequence == 0


READ: list[Callable[[bytes], object]] = [read_header, lambda buffer: list(headers(buffer)), decode_batch]


@pytest.mark.parametrize("read", READ, ids=["read_header", "headers", "decode_batch"])
@pytest.mark.parametrize("magic", [0, 1, 3, 127, -1])
def test_another_format_is_refused(read: Callable[[bytes], object], magic: int) -> None:
    batch = _changed(encode_batch([(0, b"key", b"value", ())]), 16, struct.pack(">b", magic))
    with pytest.raises(ProtocolError, match="format"):
        read(batch)


@pytest.mark.parametrize("read", READ, ids=["read_header", "headers", "decode_batch"])
@pytest.mark.parametrize("length", [-(2**31), -13, -12, -1, 0, HEADER_SIZE - 13])
def test_a_batch_shorter_than_its_header_is_refused(read: Callable[[bytes], object], length: int) -> None:
    """Whoever walks a log by such lengths would stand still, or go back."""
    batch = _changed(encode_batch([(0, b"key", b"value", ())]), 8, struct.pack(">i", length))
    with pytest.raises(ProtocolError, match="shorter than its own header"):
        read(batch)


@given(size=st.integers(0, HEADER_SIZE - 1))
def test_a_header_that_is_cut_off_is_refused(size: int) -> None:
    with pytest.raises(ProtocolError, match="cut off inside its header"):
        read_header(encode_batch([(0, b"key", b"value", ())])[:size])


@given(front=st.binary(min_size=16, max_size=16), rest=st.binary(max_size=200))
def test_garbage_gives_headers_or_a_protocol_error(front: bytes, rest: bytes) -> None:
    buffer = front + b"\x02" + rest
    try:
        found: list[tuple[int, BatchHeader]] = list(headers(buffer))
    except ProtocolError:
        return
    assert len(found) <= len(buffer) // HEADER_SIZE
