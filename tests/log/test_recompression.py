"""compression.type: a batch that came in another codec than its topic's is kept in the topic's."""

from __future__ import annotations

import pytest
from tests.log.log_doubles import START, Node, append, bytes_of, error_of, run

from fencepost.log.outcome import Refused
from fencepost.log.producer_state import Origin
from fencepost.log.recompression import recompress
from fencepost.log.settings import LogSettings
from fencepost.protocol.batch import HEADER_SIZE, LOG_APPEND_TIME, TRANSACTIONAL, crc_matches, read_header
from fencepost.protocol.compression import Compression, decompress
from fencepost.protocol.control import control_batch
from fencepost.protocol.errors import ErrorCode
from fencepost.protocol.records import decode_batch, encode_batch
from fencepost.protocol.types import Epoch, LeaderEpoch, Milliseconds, ProducerId

RECORDS = [(1000 + n, b"key%d" % n, b"value" * 50, [("name", b"header")]) for n in range(5)]
LARGE = 1 << 20
PAIRS = [(source, target) for source in Compression for target in Compression if source is not target]


def sent(
    compression: Compression, pair: tuple[int, int] = (7, 3), sequence: int = 5, transactional: bool = False
) -> bytes:
    return encode_batch(
        RECORDS,
        compression=compression,
        producer_id=ProducerId(pair[0]),
        producer_epoch=Epoch(pair[1]),
        base_sequence=sequence,
        transactional=transactional,
    )


def anew(batch: bytes, target: Compression, max_bytes: int = LARGE) -> bytes | Refused:
    header = read_header(batch)
    records = decompress(header.compression, batch[HEADER_SIZE:])
    return recompress(records, header, target, LogSettings(max_message_bytes=max_bytes))


@pytest.mark.parametrize(("source", "target"), PAIRS)
@pytest.mark.parametrize("transactional", [True, False])
def test_a_batch_is_the_same_in_another_codec(source: Compression, target: Compression, transactional: bool) -> None:
    batch = sent(source, transactional=transactional)
    found = anew(batch, target)
    assert isinstance(found, bytes)
    before, header = read_header(batch), read_header(found)
    assert header.attributes == target | (TRANSACTIONAL if transactional else 0)
    assert header[6:] == before[6:]
    assert header.size == len(found)
    assert crc_matches(found, 0, header)
    assert decode_batch(found) == decode_batch(batch)


def test_of_the_attributes_only_those_are_left_that_mean_something() -> None:
    batch = bytearray(sent(Compression.NONE, transactional=True))
    batch[22] |= 0xC8
    found = anew(bytes(batch), Compression.LZ4)
    assert isinstance(found, bytes)
    assert read_header(found).attributes == Compression.LZ4 | TRANSACTIONAL


@pytest.mark.parametrize(
    ("pair", "sequence", "built"),
    [
        ((7, 0), 0, True),
        ((7, -1), 0, False),
        ((-1, -1), -1, True),
        ((-1, 0), -1, True),
        ((-2, 0), 0, True),
        ((-2, -2), 0, True),
        ((-2, -1), 0, False),
        ((-2, 0), -1, False),
    ],
)
def test_a_producer_without_epoch_or_sequence_cannot_be_written_anew(
    pair: tuple[int, int], sequence: int, built: bool
) -> None:
    found = anew(sent(Compression.NONE, pair, sequence), Compression.GZIP)
    assert isinstance(found, bytes) is built
    if isinstance(found, Refused):
        assert found.error == ErrorCode.UNKNOWN_SERVER_ERROR


def test_the_size_is_that_of_what_is_kept() -> None:
    packed = sent(Compression.GZIP)
    size = len(sent(Compression.NONE))
    assert isinstance(anew(packed, Compression.NONE, size), bytes)
    refused = anew(packed, Compression.NONE, size - 1)
    assert isinstance(refused, Refused)
    assert refused.error == ErrorCode.MESSAGE_TOO_LARGE


def test_a_partition_keeps_what_has_its_codec_and_turns_the_rest_into_it() -> None:
    async def main() -> None:
        partition = Node(compression=Compression.GZIP).partition
        for number, source in enumerate(Compression):
            batch = sent(source, (7, 0), 5 * number)
            append(partition, batch)
            (stored,) = bytes_of(partition)[number:]
            assert read_header(stored).attributes == Compression.GZIP
            assert (stored[21:] == batch[21:]) is (source is Compression.GZIP)

    run(main())


def test_a_repeated_batch_is_known_again_in_any_codec() -> None:
    async def main() -> None:
        partition = Node(compression=Compression.ZSTD).partition
        first, again = (append(partition, sent(codec, (7, 0), 0)) for codec in (Compression.NONE, Compression.LZ4))
        assert (again.duplicate, again.base_offset) == (True, first.base_offset)

    run(main())


def test_what_is_wrong_with_the_batch_comes_before_what_is_wrong_with_its_producer() -> None:
    async def main() -> None:
        partition = Node(compression=Compression.NONE, max_message_bytes=1000).partition
        append(
            partition,
            encode_batch([(0, None, b"v", ())], producer_id=ProducerId(7), producer_epoch=Epoch(3), base_sequence=0),
        )
        for epoch in (3, 2):
            batch = sent(Compression.GZIP, (7, epoch), 9)
            assert error_of(partition.append(batch, Origin.CLIENT, START)) == ErrorCode.MESSAGE_TOO_LARGE

    run(main())


def test_markers_are_kept_as_they_are() -> None:
    async def main() -> None:
        partition = Node(compression=Compression.GZIP).partition
        marker = control_batch(ProducerId(7), Epoch(0), LeaderEpoch(0), True, Milliseconds(1000))
        append(partition, marker, origin=Origin.COORDINATOR)
        (stored,) = bytes_of(partition)
        assert stored[21:] == marker[21:]

    run(main())


def test_the_time_of_the_append_is_stamped_on_what_is_kept() -> None:
    async def main() -> None:
        partition = Node(compression=Compression.SNAPPY, message_timestamp_type="LogAppendTime").partition
        outcome = append(partition, sent(Compression.LZ4, (7, 0), 0))
        (stored,) = bytes_of(partition)
        header = read_header(stored)
        assert header.attributes == Compression.SNAPPY | LOG_APPEND_TIME
        assert header.max_timestamp == outcome.log_append_time
        assert crc_matches(stored, 0, header)

    run(main())
