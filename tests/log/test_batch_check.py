"""What a client's batch must be: told from its header, its size, and its records."""

from __future__ import annotations

import random
from typing import Any

import cramjam
import pytest
from crc32c import crc32c
from hypothesis import given
from hypothesis import strategies as st
from tests.log.log_doubles import START

from fencepost.log.batch_check import LEAST_UNFOLDED, MOST_RECORD_ERRORS, Checked, check_batch, check_header
from fencepost.log.settings import LogSettings
from fencepost.protocol.batch import AFTER_CRC, CONTROL, CRC_START, HEADER_SIZE, MAX_INT32, crc_matches, read_header
from fencepost.protocol.compression import Compression
from fencepost.protocol.errors import ErrorCode, ProtocolError
from fencepost.protocol.records import decode_batch, encode_batch, seal
from fencepost.protocol.steps import STEP, Pace, Steps, finish
from fencepost.protocol.types import Epoch, Milliseconds, ProducerId

pytestmark = pytest.mark.usefixtures("each_twin")

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
    refused = check_header(data, read_header(data), SETTINGS)
    largest = {0: 1, 1: 1032, 2: 22, 3: 255, 4: 32768}[compression]
    if count * 7 > len(body) * largest:
        assert refused is not None and refused.error == ErrorCode.INVALID_RECORD
    else:
        assert refused is None


@pytest.mark.parametrize("producer_id", [-1, 0, 1, 2**63 - 1])
@pytest.mark.parametrize("sequence", [-2, -1, 0, MAX_INT32])
def test_a_batch_with_a_producer_id_has_a_base_sequence(producer_id: int, sequence: int) -> None:
    data = encode_batch([(START, None, b"v", ())], producer_id=ProducerId(producer_id), base_sequence=sequence)
    refused = check_header(data, read_header(data), SETTINGS)
    assert (refused is None) is (producer_id < 0 or sequence >= 0)


@pytest.mark.parametrize("more", [-1, 0, 1])
def test_a_batch_may_be_as_large_as_its_topic_takes(more: int) -> None:
    data = encode_batch([(START, None, bytes(100), ())])
    refused = check_header(data, read_header(data), LogSettings(max_message_bytes=len(data) - more))
    assert (refused.error if refused is not None else None) == (ErrorCode.MESSAGE_TOO_LARGE if more > 0 else None)


@pytest.mark.parametrize("more", [-1, 1, MAX_INT32 - 3])
def test_a_batch_has_as_many_offsets_as_records(more: int) -> None:
    """Else offsets would be there without records, or records without."""
    data = bytearray(encode_batch([(START, b"k", b"v", ())] * 3))
    data[23:27] = (2 + more).to_bytes(4, "big")
    data[17:21] = crc32c(memoryview(data)[CRC_START:]).to_bytes(4, "big")
    header = read_header(data)
    assert (header.last_offset_delta, header.record_count) == (2 + more, 3)
    refused = check_header(data, header, SETTINGS)
    assert refused is not None and refused.error == ErrorCode.INVALID_RECORD
    assert refused.message == "record count and offsets of the batch do not agree"


@pytest.mark.parametrize("sequence", [-1, 0, 5])
@pytest.mark.parametrize("transactional", [False, True])
def test_no_client_writes_control_records(sequence: int, transactional: bool) -> None:
    """Whatever else such a batch says: a marker of a client would end somebody's transaction."""
    sound = encode_batch(
        [(START, b"k", b"v", ())],
        producer_id=ProducerId(7),
        producer_epoch=Epoch(0),
        base_sequence=sequence,
        transactional=transactional,
    )
    data = bytearray(sound)
    data[22] |= CONTROL
    data[17:21] = crc32c(memoryview(data)[CRC_START:]).to_bytes(4, "big")
    header = read_header(data)
    assert header.is_control
    refused = check_header(data, header, SETTINGS)
    assert refused is not None and refused.error == ErrorCode.INVALID_RECORD
    assert refused.message == "a client may not write control records"


@pytest.mark.parametrize("compression", Compression)
def test_a_header_alone_has_no_records(compression: Compression) -> None:
    data = claiming(MAX_INT32, compression, b"")
    assert len(data) == 61
    refused = check_header(data, read_header(data), SETTINGS)
    assert refused is not None and refused.message == "0 bytes cannot hold the 2147483647 records of the header"


@pytest.mark.parametrize("count", [1, 63, 100_000])
@pytest.mark.parametrize("compression", Compression)
def test_the_smallest_records_are_held_by_their_bytes(compression: Compression, count: int) -> None:
    data = encode_batch([(START, None, None, ())] * count, compression=compression)
    assert check_header(data, read_header(data), SETTINGS) is None


# The records

HOUR = 3_600_000


def checked(data: bytes, **settings: Any) -> Checked:
    return finish(check_batch(data, read_header(data), SETTINGS.with_(**settings), Milliseconds(START), Pace()))


def error_of(data: bytes, **settings: Any) -> ErrorCode | None:
    refused = checked(data, **settings).refused
    return None if refused is None else refused.error


def interruptions(steps: Steps[Checked]) -> tuple[Checked, int]:
    pauses = 0
    try:
        pause = next(steps)
        while True:
            pauses += 1
            pause = steps.send(None if pause is None else pause())
    except StopIteration as done:
        return done.value, pauses


def records_of(size: int) -> tuple[bytes, int]:
    """At least `size` bytes of records with long values, and their number."""
    one = encode_batch([(START, None, bytes(60_000), ())])[HEADER_SIZE:]
    count = size // len(one) + 1
    batch = encode_batch([(START, None, bytes(60_000), ())] * count)
    return batch[HEADER_SIZE:], count


@pytest.mark.parametrize("compression", [each for each in Compression if each])
def test_a_batch_unfolds_to_a_small_multiple_of_the_largest_one(compression: Compression) -> None:
    for size, taken in ((LEAST_UNFOLDED - 100_000, True), (LEAST_UNFOLDED + 100_000, False)):
        body, count = records_of(size)
        data = seal(body, count, START, START, compression=compression)
        assert error_of(data, max_message_bytes=1_000_000) == (None if taken else ErrorCode.MESSAGE_TOO_LARGE)
        assert error_of(data, max_message_bytes=2_000_000) is None


@pytest.mark.parametrize("compression", [each for each in Compression if each])
@given(data=st.data())
def test_what_the_codec_cannot_unfold_is_refused(compression: Compression, data: st.DataObject) -> None:
    """As Apache Kafka: -1 where the codec fails, 87 where what it unfolds to is no record."""
    good = encode_batch([(START, b"k", b"value" * 9, ())] * 3, compression=compression)
    body = bytearray(good[HEADER_SIZE:])
    for place, value in data.draw(st.lists(st.tuples(st.integers(0, len(body) - 1), st.integers(0, 255)), max_size=3)):
        body[place] = value
    size = data.draw(st.integers(1, len(body)))
    batch = claiming(3, compression, bytes(body[:size]))
    taken = error_of(batch) is None
    assert error_of(batch) in (None, ErrorCode.INVALID_RECORD, ErrorCode.UNKNOWN_SERVER_ERROR)
    if taken:
        assert [record.offset for record in decode_batch(batch)] == [0, 1, 2]
    assert error_of(claiming(3, compression, b"plain")) == ErrorCode.UNKNOWN_SERVER_ERROR


@pytest.mark.parametrize("compression", Compression)
@pytest.mark.parametrize("more", [-1, 1])
def test_the_header_counts_the_records(compression: Compression, more: int) -> None:
    for count in (2, 40):
        body = encode_batch([(START, None, bytes(1200), ())] * count)[HEADER_SIZE:]
        data = seal(body, count + more, START, START, compression=compression)
        for most in (MAX_INT32, 1) if not compression else (MAX_INT32,):
            assert error_of(data, check_max_records=most) == ErrorCode.INVALID_RECORD
    assert error_of(seal(body, 40, START, START, compression=compression)) is None


def test_of_a_larger_batch_than_asked_for_the_first_records_and_all_sizes_are_checked() -> None:
    for length in (1, 600):
        good = bytearray(encode_batch([(START, None, bytes(length), ())] * 40))
        size = (len(good) - HEADER_SIZE) // 40
        number = 3 if length == 1 else 4
        for place in range(40):
            body = good[HEADER_SIZE:]
            body[place * size + number] ^= 8
            numbered, sized = seal(bytes(body), 40, START, START), bytearray(good[HEADER_SIZE:])
            sized[place * size] += 2
            noticed = ErrorCode.INVALID_RECORD if place < 10 else None
            assert error_of(numbered, check_max_records=10) == noticed
            assert error_of(numbered, check_max_records=10, cleanup_policy="compact") == ErrorCode.INVALID_RECORD
            assert error_of(numbered, check_max_records=10, timestamp_before_max_ms=HOUR) == ErrorCode.INVALID_RECORD
            assert error_of(numbered, check_max_records=10, compression=Compression.LZ4) == ErrorCode.INVALID_RECORD
            assert error_of(numbered) == ErrorCode.INVALID_RECORD
            added_up = ErrorCode.INVALID_RECORD if length == 600 else noticed
            assert error_of(seal(bytes(sized), 40, START, START), check_max_records=10) == added_up


COMPRESSED = [each for each in Compression if each]


@pytest.mark.parametrize("compression", COMPRESSED)
def test_a_compressed_batch_of_few_bytes_is_looked_at_whole_however_many_records_it_has(
    compression: Compression,
) -> None:
    good = bytearray(encode_batch([(START, None, b"x", ())] * 100))
    size = (len(good) - HEADER_SIZE) // 100
    for place in (0, 50, 99):
        body = good[HEADER_SIZE:]
        body[place * size + 3 : place * size + 4] = b"\x7f"
        data = seal(bytes(body), 100, START, START, compression=compression)
        assert error_of(data, check_max_records=16, check_max_bytes=len(data)) == ErrorCode.INVALID_RECORD
        assert error_of(data, check_max_records=16, check_max_bytes=len(data) - 1) is None
    whole = seal(bytes(good[HEADER_SIZE:]), 100, START, START, compression=compression)
    assert error_of(whole, check_max_records=16, check_max_bytes=len(whole)) is None


@pytest.mark.parametrize("compression", COMPRESSED)
@given(st.binary(max_size=300))
def test_a_large_compressed_batch_of_garbage_is_refused(compression: Compression, garbage: bytes) -> None:
    """And raises nothing, whatever it is.  Snappy has no magic: some garbage may be its beginning."""
    data = claiming(100, compression, b"\xff" + garbage + bytes(800))
    error = error_of(data, check_max_records=16, check_max_bytes=0)
    assert error == ErrorCode.UNKNOWN_SERVER_ERROR or compression is Compression.SNAPPY


@pytest.mark.parametrize("compression", COMPRESSED)
@pytest.mark.parametrize("value", [b"", bytes(60), bytes(range(256)) * 600])
def test_a_large_compressed_batch_begins_as_its_codec_does(compression: Compression, value: bytes) -> None:
    body = encode_batch([(START - 5, None, value, ())] * 40)[HEADER_SIZE:]
    for other in COMPRESSED:
        data = seal(body, 40, START, START, compression=other)[HEADER_SIZE:]
        raw = bytes(cramjam.snappy.compress_raw(body))
        for each in [data, raw] if other is Compression.SNAPPY else [data]:
            error = error_of(claiming(2, compression, each), check_max_records=1, check_max_bytes=0)
            assert error == (None if other is compression else ErrorCode.UNKNOWN_SERVER_ERROR)
            for cut in range(1, 3):
                error = error_of(claiming(2, other, each[:cut]), check_max_records=1, check_max_bytes=0)
                assert error in (ErrorCode.UNKNOWN_SERVER_ERROR, ErrorCode.INVALID_RECORD)


@pytest.mark.parametrize("most", [1, 40], ids=["large", "small"])
@pytest.mark.parametrize("linked", [False, True])
def test_lz4_whose_blocks_depend_on_each_other_is_refused(linked: bool, most: int) -> None:
    """As by Apache Kafka: Java's reader takes none, so it would stop there for ever."""
    packer = cramjam.lz4.Compressor(level=4, block_linked=linked)
    packer.compress(encode_batch([(START, None, b"v", ())] * 40)[HEADER_SIZE:])
    error = error_of(claiming(40, Compression.LZ4, bytes(packer.finish())), check_max_records=most)
    assert error == (ErrorCode.UNKNOWN_SERVER_ERROR if linked else None)


def lz4_frame(body: bytes, *, piece: int = 1 << 20) -> bytes:
    """A frame with a block for each piece."""
    packer = cramjam.lz4.Compressor(level=4, block_linked=False)
    parts = []
    for at in range(0, len(body), piece):
        packer.compress(body[at : at + piece])
        parts.append(bytes(packer.flush()))
    return b"".join([*parts, bytes(packer.finish())])


@pytest.mark.parametrize("most", [1, 40], ids=["large", "small"])
@pytest.mark.parametrize("first", [0, 1, 500])
def test_lz4_in_several_frames_is_refused(first: int, most: int) -> None:
    """Java's reader takes the first one for all: it would miss records, and stop there for ever."""
    body = encode_batch([(START, None, b"v", ())] * 400)[HEADER_SIZE:]
    frames = lz4_frame(body[:first]) + lz4_frame(body[first:])
    error = error_of(claiming(400, Compression.LZ4, frames), check_max_records=most, check_max_bytes=0)
    assert error == ErrorCode.UNKNOWN_SERVER_ERROR


@pytest.mark.parametrize("most", [1, 40], ids=["large", "small"])
@pytest.mark.parametrize("piece", [700, 1 << 20])
def test_lz4_of_what_holds_lz4_is_taken(piece: int, most: int) -> None:
    """A value that somebody has compressed stands in the frame as it is."""
    records = [(START, None, lz4_frame(random.Random(number).randbytes(500)), ()) for number in range(40)]
    frame = lz4_frame(encode_batch(records)[HEADER_SIZE:], piece=piece)
    assert frame.count(frame[:4]) > 1, "one of them is not folded"
    assert error_of(claiming(40, Compression.LZ4, frame), check_max_records=most, check_max_bytes=0) is None


@given(st.lists(st.integers(-5, 5), min_size=1, max_size=5), st.integers(-9, 9))
def test_the_header_names_the_largest_time(times: list[int], claimed: int) -> None:
    """As in Apache Kafka, which puts it right."""
    body = encode_batch([(START + time, None, b"v", ()) for time in times])[HEADER_SIZE:]
    data = seal(body, len(times), Milliseconds(START + times[0]), Milliseconds(START + claimed))
    found = checked(data)
    assert (found.refused, found.max_timestamp, found.anew) == (None, START + max(times), None)
    kept = checked(data, compression=Compression.GZIP).anew
    assert kept is not None
    header = read_header(kept)
    assert header.max_timestamp == START + max(times)
    assert crc_matches(kept, 0, header)
    assert checked(data, message_timestamp_type="LogAppendTime").max_timestamp == START + claimed


def test_of_wrong_records_the_first_ones_are_named() -> None:
    wrong = [(START + 2 * HOUR, None, b"", ())] * (2 * MOST_RECORD_ERRORS)
    for settings, error in (
        ({}, ErrorCode.INVALID_TIMESTAMP),
        ({"cleanup_policy": "compact"}, ErrorCode.INVALID_RECORD),
    ):
        refused = checked(encode_batch(wrong, compression=Compression.ZSTD), **settings).refused
        assert refused is not None and refused.error == error
        assert [number for number, _ in refused.record_errors] == list(range(MOST_RECORD_ERRORS))


def test_a_check_takes_a_step_for_so_many_records_and_looks_at_the_batch_in_the_first_one_only() -> None:
    for options in (
        {},
        {"cleanup_policy": "compact"},
        {"compression": Compression.GZIP},
        {"timestamp_before_max_ms": 1},
    ):
        for compression in (Compression.NONE, Compression.ZSTD):
            records = [(START, b"" if n < 3 * STEP else None, None, ()) for n in range(4 * STEP)]
            whole = encode_batch(records, compression=compression)
            data = bytearray(whole)
            settings = SETTINGS.with_(**options)
            steps = check_batch(data, read_header(data), settings, Milliseconds(START), Pace())
            assert next(steps) is None
            data[HEADER_SIZE:] = bytes(len(data) - HEADER_SIZE)
            rest, pauses = interruptions(steps)
            assert rest == checked(whole, **options)
            assert 3 <= pauses <= 12


class Room:
    """There is enough of it."""

    def __init__(self) -> None:
        self.used = self.most = 0

    def claim(self, size: int) -> bool:
        self.used += size
        self.most = max(self.most, self.used)
        return True

    def wait_for(self, size: int) -> Steps[None]:
        raise AssertionError(f"nobody waits for {size} bytes")

    def give(self, size: int) -> None:
        self.used -= size


@pytest.mark.parametrize("ended_after", [0, 1, 10_000])
def test_what_a_batch_took_to_be_unfolded_is_given_back_however_its_check_ends(ended_after: int) -> None:
    records = [(START, b"k", None, ())] * (2 * STEP)
    data = encode_batch(records, compression=Compression.ZSTD)
    room, settings = Room(), LogSettings(cleanup_policy="compact")
    steps = check_batch(data, read_header(data), settings, Milliseconds(START), Pace(room=room))
    for _ in zip(range(ended_after), steps, strict=False):
        assert 0 < room.used < room.most
    steps.close()
    assert (room.used, room.most > 0) == (0, ended_after > 0)


def test_what_is_large_is_compressed_in_another_thread() -> None:
    data = encode_batch([(START, None, bytes(100_000), ())] * 3)
    steps = check_batch(
        data, read_header(data), SETTINGS.with_(compression=Compression.ZSTD), Milliseconds(START), Pace()
    )
    work = next(steps)
    assert work is not None
    with pytest.raises(StopIteration) as done:
        steps.send(work())
    anew = done.value.value.anew
    assert decode_batch(anew) == decode_batch(data)


@pytest.mark.parametrize("compression", [each for each in Compression if each])
@pytest.mark.parametrize(
    ("most", "error"), [(LEAST_UNFOLDED, None), (LEAST_UNFOLDED // 8, ErrorCode.MESSAGE_TOO_LARGE)]
)
def test_what_unfolds_to_very_much_is_unfolded_in_another_thread(
    compression: Compression, most: int, error: ErrorCode | None
) -> None:
    """And not looked at in the buffer that it came in."""
    body, count = records_of(2 * LEAST_UNFOLDED + 100_000)
    whole = seal(body, count, START, START, compression=compression)
    settings, data = SETTINGS.with_(check_max_records=count, max_message_bytes=most), bytearray(whole)
    steps, elsewhere = check_batch(data, read_header(whole), settings, Milliseconds(START), Pace()), 0

    def counted() -> Steps[Checked]:
        nonlocal elsewhere
        work = next(steps)
        data[HEADER_SIZE:] = bytes(len(data) - HEADER_SIZE)
        while True:
            elsewhere += work is not None
            try:
                result = yield work
            except ProtocolError as wrong:
                work = steps.throw(wrong)
            else:
                work = steps.send(result)

    with pytest.raises(RuntimeError) as done:  # of the StopIteration in a generator
        finish(counted())
    assert isinstance(done.value.__cause__, StopIteration)
    refused = done.value.__cause__.value.refused
    assert (None if refused is None else refused.error) == error
    assert elsewhere == 1
