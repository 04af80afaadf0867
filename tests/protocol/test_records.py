"""Records written and read again, by us and by two other clients, and batches that are damaged or lie."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import pytest
from aiokafka.record.default_records import DefaultRecordBatch as AiokafkaReader
from aiokafka.record.default_records import DefaultRecordBatchBuilder as AiokafkaWriter
from aiokafka.record.util import decode_varint, encode_varint
from hypothesis import given
from hypothesis import strategies as st
from kafka.record.default_records import DefaultRecordBatch as KafkaPythonReader
from kafka.record.default_records import DefaultRecordBatchBuilder as KafkaPythonWriter
from tests.protocol.drawn_records import ODD_RECORDS, RECORDS

from fencepost.protocol import records
from fencepost.protocol.batch import AFTER_CRC, CRC_START, HEADER_SIZE, crc_matches, read_header, set_max_timestamp
from fencepost.protocol.compression import Compression
from fencepost.protocol.errors import ProtocolError
from fencepost.protocol.records import (
    BatchBuilder,
    NewRecord,
    Record,
    decode_as,
    decode_batch,
    encode_batch,
    seal,
    varint,
)
from fencepost.protocol.types import Epoch, LeaderEpoch, Milliseconds, Offset, ProducerId

pytestmark = pytest.mark.usefixtures("each_twin")

#: Both clients' readers and writers; kafka-python has gzip only without further packages.
READERS = [pytest.param(AiokafkaReader, id="aiokafka"), pytest.param(KafkaPythonReader, id="kafka-python")]
WRITERS = [pytest.param(AiokafkaWriter, id="aiokafka"), pytest.param(KafkaPythonWriter, id="kafka-python")]


def _read_by(reader: Any, batch: bytes) -> list[Record]:
    return [
        Record(record.offset, record.timestamp, record.key, record.value, tuple(record.headers))
        for record in reader(bytearray(batch))
    ]


def _expected(records: Sequence[NewRecord], base_offset: int = 0) -> list[Record]:
    return [
        Record(Offset(base_offset + place), timestamp, key, value, tuple(headers))
        for place, (timestamp, key, value, headers) in enumerate(records)
    ]


def _decoded(batch: bytes, at: int = 0) -> list[Record]:
    return [record._replace(headers=tuple(record.headers)) for record in decode_batch(batch, at)]


@pytest.mark.parametrize("compression", Compression, ids=lambda compression: compression.name)
@given(
    records=ODD_RECORDS, base_offset=st.integers(0, 2**62), before=st.binary(max_size=20), after=st.binary(max_size=20)
)
def test_records_come_back(
    compression: Compression, records: list[NewRecord], base_offset: int, before: bytes, after: bytes
) -> None:
    batch = encode_batch(records, base_offset=base_offset, compression=compression)
    assert _decoded(before + batch + after, len(before)) == _expected(records, base_offset)


@given(records=RECORDS, sequence=st.integers(0, 2**31 - 1), transactional=st.booleans())
def test_the_header_says_what_is_in_the_batch(records: list[NewRecord], sequence: int, transactional: bool) -> None:
    batch = encode_batch(
        records,
        base_offset=7,
        producer_id=ProducerId(8),
        producer_epoch=Epoch(9),
        base_sequence=sequence,
        transactional=transactional,
        leader_epoch=LeaderEpoch(4),
    )
    header = read_header(batch)
    assert header.size == len(batch)
    assert crc_matches(batch, 0, header)
    assert (header.base_offset, header.last_offset, header.record_count) == (7, 6 + len(records), len(records))
    assert (header.base_timestamp, header.max_timestamp) == (records[0][0], max(record[0] for record in records))
    assert (header.producer_id, header.producer_epoch, header.base_sequence) == (8, 9, sequence)
    assert (header.is_transactional, header.is_control, header.partition_leader_epoch) == (transactional, False, 4)


@pytest.mark.parametrize("compression", Compression, ids=lambda compression: compression.name)
@given(records=ODD_RECORDS)
def test_a_builder_makes_the_same_batch_piece_by_piece(compression: Compression, records: list[NewRecord]) -> None:
    builder = BatchBuilder(compression)
    assert all(builder.append(*record) for record in records)
    assert builder.count == len(records)
    assert builder.size == len(encode_batch(records))
    stated: dict[str, Any] = {"producer_id": 1, "producer_epoch": 2, "base_sequence": 3, "transactional": True}
    assert builder.build(**stated) == encode_batch(records, compression=compression, **stated)


@pytest.mark.parametrize("reader", READERS)
@given(records=RECORDS, compression=st.sampled_from(Compression))
def test_other_clients_read_what_is_written(reader: Any, records: list[NewRecord], compression: Compression) -> None:
    if reader is KafkaPythonReader and compression is not Compression.NONE:
        compression = Compression.GZIP
    batch = encode_batch(records, base_offset=1000, compression=compression)
    assert reader(bytearray(batch)).validate_crc()
    assert _read_by(reader, batch) == _expected(records, 1000)


@pytest.mark.parametrize("writer", WRITERS)
@given(records=RECORDS, compression=st.sampled_from(Compression))
def test_what_other_clients_write_is_read(writer: Any, records: list[NewRecord], compression: Compression) -> None:
    if writer is KafkaPythonWriter and compression is not Compression.NONE:
        compression = Compression.GZIP
    theirs = writer(2, int(compression), True, 5, 6, 7, 1 << 30)
    for place, (timestamp, key, value, headers) in enumerate(records):
        theirs.append(place, timestamp, key, value, list(headers))
    batch = bytes(theirs.build())
    assert crc_matches(batch, 0, read_header(batch))
    assert _decoded(batch) == _expected(records)
    if read_header(batch).compression is Compression.NONE:
        ours = encode_batch(
            records, producer_id=ProducerId(5), producer_epoch=Epoch(6), base_sequence=7, transactional=True
        )
        assert batch[CRC_START:] == ours[CRC_START:]


@given(number=st.one_of(st.integers(-(2**63), 2**63 - 1), st.integers(-10_000, 10_000)))
def test_a_variable_length_number_is_zigzag(number: int) -> None:
    theirs = bytearray()
    encode_varint(number, theirs.append)
    assert varint(number) == bytes(theirs)
    assert decode_varint(bytearray(varint(number)))[0] == number


@pytest.mark.parametrize("reader", READERS)
@given(records=RECORDS, timestamp=st.integers(0, 2**42))
def test_append_time_replaces_the_timestamp_of_every_record(
    reader: Any, records: list[NewRecord], timestamp: Milliseconds
) -> None:
    batch = bytearray(encode_batch(records))
    set_max_timestamp(batch, 0, read_header(batch), timestamp)
    assert {record.timestamp for record in decode_batch(batch)} == {timestamp}
    assert _read_by(reader, bytes(batch)) == _decoded(bytes(batch))


def _sealed(body: bytes, count: int) -> bytes:
    return seal(body, count, 0, 0, last_offset_delta=max(count - 1, 0))


@given(records=RECORDS)
def test_a_batch_that_is_cut_off_is_refused(records: list[NewRecord]) -> None:
    batch = encode_batch(records)
    for size in {*range(0, len(batch), 7), HEADER_SIZE - 1, HEADER_SIZE, len(batch) - 1}:
        with pytest.raises(ProtocolError):
            decode_batch(batch[:size])


@given(records=RECORDS, cut=st.integers(1, 10**6))
def test_records_that_end_too_early_are_refused(records: list[NewRecord], cut: int) -> None:
    body = encode_batch(records)[HEADER_SIZE:]
    with pytest.raises(ProtocolError):
        decode_batch(_sealed(body[: -(cut % len(body)) or -1], len(records)))


@given(records=RECORDS, claimed=st.one_of(st.integers(-(2**31), 2**31 - 1), st.integers(0, 10)))
def test_a_count_of_records_that_is_not_true_is_refused(records: list[NewRecord], claimed: int) -> None:
    if claimed != len(records):
        batch = bytearray(encode_batch(records))
        batch[HEADER_SIZE - 4 : HEADER_SIZE] = claimed.to_bytes(4, "big", signed=True)
        with pytest.raises(ProtocolError):
            decode_batch(batch)


@given(count=st.integers(-(2**31), 2**31 - 1).filter(bool))
def test_a_count_of_headers_that_is_not_true_is_refused(count: int) -> None:
    record = b"\x00\x00\x00" + varint(-1) + varint(-1) + varint(count)
    with pytest.raises(ProtocolError):
        decode_batch(_sealed(varint(len(record)) + record, 1))


@given(
    length=st.one_of(st.integers(-6, 30), st.integers(-(2**40), 2**40)),
    place=st.sampled_from(["record", "key", "value", "header", "header value"]),
)
def test_a_length_that_is_not_true_is_refused(length: int, place: str) -> None:
    """Each part is 3 bytes long; a negative length is null, and what stands there is too much."""
    true = {"record": 0, "key": 3, "value": 3, "header": 3, "header value": 3}
    true["record"] = 3 + 4 + 4 + 1 + 4 + 4
    if length != true[place]:
        said = {part: varint(length if part == place else size) for part, size in true.items()}
        body = said["record"] + b"\x00\x00\x00" + said["key"] + b"abc" + said["value"] + b"def" + varint(1)
        body += said["header"] + b"ghi" + said["header value"] + b"jkl"
        with pytest.raises(ProtocolError):
            decode_batch(_sealed(body, 1))


def test_a_number_without_end_is_refused() -> None:
    for length in (5, 10, 11, 100):
        with pytest.raises(ProtocolError):
            decode_batch(_sealed(b"\xff" * length, 1))


def test_a_record_that_ends_elsewhere_than_its_length_says_is_refused() -> None:
    body = encode_batch([(0, b"key", b"value", ())] * 2)[HEADER_SIZE:]
    for length in range(-5, len(body)):
        changed = varint(length) + body[1:]
        if changed == body:
            assert len(decode_batch(_sealed(changed, 2))) == 2
        else:
            with pytest.raises(ProtocolError):
                decode_batch(_sealed(changed, 2))


def test_a_header_without_a_name_is_refused() -> None:
    """Read as a step back, the length of -1 would be taken for that of the value as well."""
    record = b"\x00\x00\x00" + varint(-1) + varint(-1) + varint(1) + varint(-1)
    with pytest.raises(ProtocolError):
        decode_batch(_sealed(varint(len(record)) + record, 1))


def test_a_number_of_more_than_ten_bytes_is_refused() -> None:
    """Even where it says nothing more than the first few of them."""
    record = encode_batch([(0, b"key", b"value", ())])[HEADER_SIZE:]
    for padding in range(1, 30):
        padded = bytes([record[0] | 0x80, *[0x80] * (padding - 1), 0]) + record[1:]
        if padding < 10:
            assert decode_batch(_sealed(padded, 1)) == [Record(Offset(0), 0, b"key", b"value", ())]
        else:
            with pytest.raises(ProtocolError, match="too long"):
                decode_batch(_sealed(padded, 1))


def test_a_header_name_that_is_no_text_is_refused() -> None:
    batch = encode_batch([(0, b"k", b"v", [("name", b"v")])])
    with pytest.raises(ProtocolError):
        decode_batch(batch.replace(b"name", b"\xff\xfe\xfd\xfc"))


@given(
    records=RECORDS,
    compression=st.sampled_from(Compression),
    changes=st.lists(st.tuples(st.integers(0, 10**6), st.integers(0, 255)), min_size=1, max_size=4),
)
def test_a_damaged_batch_gives_records_or_a_protocol_error(
    records: list[NewRecord], compression: Compression, changes: list[tuple[int, int]]
) -> None:
    """Without a look at the CRC, which would tell."""
    batch = bytearray(encode_batch(records, compression=compression))
    for place, value in changes:
        batch[place % len(batch)] = value
    try:
        assert len(decode_batch(batch, limit=1 << 20)) <= 1 << 20
    except ProtocolError:
        pass


@given(body=st.binary(max_size=60), count=st.integers(0, 5), compression=st.integers(0, 7))
def test_garbage_gives_records_or_a_protocol_error(body: bytes, count: int, compression: int) -> None:
    batch = bytearray(_sealed(body, count))
    AFTER_CRC.pack_into(batch, CRC_START, compression, 0, 0, 0, -1, -1, -1, count)
    try:
        assert len(decode_batch(batch, limit=1 << 20)) == count
    except ProtocolError:
        pass


@pytest.mark.parametrize("compression", [c for c in Compression if c], ids=lambda compression: compression.name)
def test_a_batch_that_unfolds_beyond_the_limit_is_refused(compression: Compression) -> None:
    batch = encode_batch([(0, None, bytes(100_000), ())], compression=compression)
    assert len(decode_batch(batch, limit=100_100)) == 1
    with pytest.raises(ProtocolError, match="unfolds to more than"):
        decode_batch(batch, limit=100_000)


def test_a_batch_that_compaction_has_emptied_has_no_records() -> None:
    assert decode_batch(seal(b"", 0, 5, 5, base_offset=10, last_offset_delta=3)) == []


@given(
    st.lists(st.tuples(st.one_of(st.none(), st.binary(max_size=40)), st.one_of(st.none(), st.binary(max_size=40)))),
    st.integers(61, 400),
)
def test_many_records_at_once_are_the_same_as_one_by_one(
    pairs: list[tuple[bytes | None, bytes | None]], limit: int
) -> None:
    keys, values = [key for key, _ in pairs], [value for _, value in pairs]
    together = BatchBuilder()
    taken = together.extend(1_700_000_000_000, keys, values, limit)
    one_by_one = BatchBuilder()
    for key, value in pairs[:taken]:
        assert one_by_one.size < limit, "records are taken while there is room"
        one_by_one.append(1_700_000_000_000, key, value)
    assert taken == len(pairs) or one_by_one.size >= limit
    assert (together.count, together.size) == (one_by_one.count, one_by_one.size)
    if taken:
        assert together.build(ProducerId(1), Epoch(2), 3, True) == one_by_one.build(ProducerId(1), Epoch(2), 3, True)


@pytest.mark.parametrize("call", ["append", "extend"])
def test_a_record_for_which_there_is_no_memory_leaves_nothing(call: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its first bytes would be taken for a record, and its batch be refused."""

    def torn(body: bytearray, *_: object) -> int:
        body += b"the beginning"
        raise MemoryError

    builder = BatchBuilder()
    assert builder.append(1, b"k", b"first")
    monkeypatch.setattr(records, "_compiled_append", torn)
    monkeypatch.setattr(records, "_compiled_extend", torn)
    calls: dict[str, Callable[[], object]] = {
        "append": lambda: builder.append(2, None, b"second"),
        "extend": lambda: builder.extend(2, [None], [b"second"], 10_000),
    }
    with pytest.raises(MemoryError):
        calls[call]()
    monkeypatch.undo()
    assert builder.append(3, None, b"third")
    found = decode_batch(builder.build())
    assert [(record.offset, record.value) for record in found] == [(0, b"first"), (1, b"third")]


@given(RECORDS, st.integers(-1, 40))
def test_records_from_an_offset_on_are_told_with_their_partition(records: list[NewRecord], first: int) -> None:
    batch = encode_batch(records, base_offset=7)
    header = read_header(batch)
    expected = [("t", 3, *record) for record in _expected(records, 7) if record.offset >= first]
    found = decode_as(tuple, "t", 3, batch[HEADER_SIZE:], header, first)
    assert [(*record[:6], tuple(record[6])) for record in found] == expected


@given(records=RECORDS)
def test_a_builder_takes_a_record_that_just_fits(records: list[NewRecord]) -> None:
    whole = BatchBuilder()
    for record in records:
        whole.append(*record)
    tight = BatchBuilder()
    for record in records[:-1]:
        assert tight.append(*record, limit=whole.size)
    assert not tight.append(*records[-1], limit=whole.size - 1)
    assert tight.append(*records[-1], limit=whole.size)
    assert tight.build() == whole.build()


@given(st.lists(st.tuples(st.integers(0, 9), st.integers(0, 3)), min_size=1, max_size=9))
def test_the_largest_time_is_told_however_many_records_of_each_time_come_and_in_which_order(
    times: list[tuple[int, int]],
) -> None:
    builder, taken = BatchBuilder(), [(5, 1)]
    builder.append(5, None, b"v")
    for timestamp, count in times:
        assert builder.extend(timestamp, [None] * count, [b"v"] * count, 10_000) == count
        taken += [(timestamp, count)] * bool(count)
    batch = builder.build()
    assert [record.timestamp for record in decode_batch(batch)] == [time for time, count in taken for _ in range(count)]
    assert read_header(batch).max_timestamp >= max(time for time, _ in taken)
