"""Batches changed in their structure, sent to a leader: whatever it takes, every reader can read."""

from __future__ import annotations

import random
import struct
import time
from collections.abc import Iterator

import pytest
from confluent_kafka import Consumer, TopicPartition
from crc32c import crc32c
from tests.broker.wire import NOW, Client, fetch, list_offset, new_topic, produce, serving
from tests.seeds import seeds

from fencepost.protocol.batch import AFTER_CRC, CRC_START, HEADER_SIZE, headers
from fencepost.protocol.compression import Compression
from fencepost.protocol.errors import ErrorCode
from fencepost.protocol.records import decode_batch, encode_batch, seal
from fencepost.protocol.types import Milliseconds

BATCHES = 1500
REFUSALS = {
    ErrorCode.NONE,
    ErrorCode.INVALID_RECORD,
    ErrorCode.CORRUPT_MESSAGE,
    ErrorCode.UNKNOWN_SERVER_ERROR,
    ErrorCode.MESSAGE_TOO_LARGE,
    ErrorCode.INVALID_TIMESTAMP,
    ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER,
    ErrorCode.INVALID_PRODUCER_EPOCH,
    ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
}


@pytest.fixture(scope="module")
def client() -> Iterator[Client]:
    with serving(log_record_check_max_records=2**31 - 1) as broker:
        connected = Client(broker)
        yield connected
        connected.close()


def mutated(chance: random.Random) -> bytes:
    """A good batch of up to sixteen records with some numbers, bytes or lengths changed; its checksum is right."""
    count, codec = chance.randint(1, 16), chance.choice(list(Compression))
    records = [
        (
            NOW + chance.choice((0, 1, -1, 300, 10**7)),
            chance.choice((None, b"", b"key", b"k" * 70)),
            chance.choice((None, b"", b"v%d" % number, b"v" * chance.choice((60, 64, 200, 9000)))),
            chance.choice(((), (), [("name", b"x")], [("é", None), ("", b"")])),
        )
        for number in range(count)
    ]
    body = bytearray(encode_batch(records)[HEADER_SIZE:])
    if chance.random() < 0.5:
        _change(body, chance)
    claimed = count + (chance.choice((-1, 1, 5, 10**6)) if chance.random() < 0.15 else 0)
    largest = NOW + chance.choice((0, 300, 10**7, -5))
    data = bytearray(seal(bytes(body), max(claimed, 1), Milliseconds(NOW), Milliseconds(largest), compression=codec))
    if chance.random() < 0.3:
        packed = data[HEADER_SIZE:]
        _change(packed, chance)
        data[HEADER_SIZE:] = packed
    struct.pack_into(">i", data, 8, len(data) - 12)
    if chance.random() < 0.2:
        fields = list(AFTER_CRC.unpack_from(data, CRC_START))
        place = chance.randrange(len(fields))
        fields[place] ^= 1 << chance.randrange((16, 32, 64, 64, 64, 16, 32, 32)[place] - 1)
        AFTER_CRC.pack_into(data, CRC_START, *fields)
    data[17:21] = crc32c(memoryview(data)[CRC_START:]).to_bytes(4, "big")
    return bytes(data)


def _change(data: bytearray, chance: random.Random) -> None:
    for _ in range(chance.choice((1, 1, 1, 3))):
        if not data:
            return
        at = chance.randrange(len(data)) if chance.random() < 0.6 else chance.randrange(min(len(data), 12))
        match chance.randrange(5):
            case 0:
                data[at] = chance.choice((0, 1, 2, 127, 128, 255, chance.randrange(256)))
            case 1:
                data[at] ^= 1 << chance.randrange(8)
            case 2:
                del data[at:]
            case 3:
                data[at:at] = bytes(chance.choice((1, 2, 10)))
            case _:
                del data[at]


@pytest.mark.parametrize("seed", seeds(1))
def test_what_is_taken_is_read_by_everybody(client: Client, seed: int) -> None:
    topic, chance, expected, taken = new_topic(client), random.Random(seed), 0, 0
    told: dict[int, int] = {}
    for _ in range(BATCHES):
        answer = produce(client, topic, mutated(chance))
        assert answer.error_code in REFUSALS, ErrorCode(answer.error_code)
        told[answer.error_code] = told.get(answer.error_code, 0) + 1
        taken += answer.error_code == ErrorCode.NONE
    assert min(taken, BATCHES - taken) > BATCHES // 10, told
    values: list[bytes | None] = []
    while True:
        records = fetch(client, topic, expected, committed=False, max_bytes=1_000_000).records
        if not records:
            break
        for at, header in headers(records):
            decoded = decode_batch(records, at, header)
            assert [record.offset for record in decoded] == list(range(expected, expected + header.record_count))
            assert header.max_timestamp == max(max(record.timestamp for record in decoded), -1)
            values += [record.value for record in decoded]
            expected += header.record_count
    assert list_offset(client, topic, -1, committed=False).offset == expected
    for timestamp in (-3, 0, NOW, NOW + 5, NOW + 10**8):
        assert list_offset(client, topic, timestamp, committed=False).error_code == ErrorCode.NONE
    assert read_by_librdkafka(client, topic, len(values)) == values


def read_by_librdkafka(client: Client, topic: str, count: int) -> list[bytes | None]:
    consumer = Consumer(
        {
            "bootstrap.servers": f"{client.broker.host}:{client.broker.port}",
            "group.id": "reader",
            "isolation.level": "read_uncommitted",
            "check.crcs": True,
        }
    )
    consumer.assign([TopicPartition(topic, 0, 0)])
    values: list[bytes | None] = []
    patience = time.monotonic() + 30
    while len(values) < count and time.monotonic() < patience:
        for message in consumer.consume(count, 1):
            assert message.error() is None, message.error()
            assert message.offset() == len(values)
            values.append(message.value())
    consumer.close()
    return values
