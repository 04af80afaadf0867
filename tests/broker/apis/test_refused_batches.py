"""What Produce (0) makes of batches that are wrong, and how it says so (facts §6.3)."""

from __future__ import annotations

import struct
import time
import uuid

import pytest
from tests.broker.wire import (
    NOW,
    Client,
    batch,
    clients,
    end,
    fetch,
    init,
    new_topic,
    produce,
    produce_request,
    serving,
    values,
)

from fencepost.protocol.batch import LOG_APPEND_TIME, crc_matches, read_header, set_max_timestamp
from fencepost.protocol.errors import ErrorCode
from fencepost.protocol.messages.produce import TopicProduceData
from fencepost.protocol.records import decode_batch, encode_batch
from fencepost.protocol.types import Milliseconds

client = clients()
HOUR = 3_600_000


def keyless(*keys: bytes | None) -> bytes:
    return encode_batch([(NOW, key, b"v", ()) for key in keys])


def now() -> int:
    return int(time.time() * 1000)


@pytest.mark.parametrize("compacted", ["compact", "compact,delete"])
def test_a_compacted_topic_names_the_records_without_a_key(client: Client, compacted: str) -> None:
    topic = new_topic(client, cleanup_policy=compacted)
    refused = produce(client, topic, keyless(b"k", None, b"k", None))
    assert (refused.error_code, refused.base_offset) == (ErrorCode.INVALID_RECORD, -1)
    assert [error.batch_index for error in refused.record_errors] == [1, 3]
    assert produce(client, topic, keyless(b"k", b"")).error_code == ErrorCode.NONE


def test_other_topics_take_records_without_a_key(client: Client) -> None:
    assert produce(client, new_topic(client), keyless(None)).error_code == ErrorCode.NONE


def test_a_compacted_topic_takes_no_records_that_it_cannot_read(client: Client) -> None:
    topic = new_topic(client, cleanup_policy="compact")
    garbled = bytearray(batch("a"))
    garbled[61] = 0x7F
    header = read_header(garbled)
    set_max_timestamp(garbled, 0, header, Milliseconds(NOW))  # seals it anew
    assert produce(client, topic, bytes(garbled)).error_code == ErrorCode.INVALID_RECORD


def test_records_of_a_later_time_than_the_topic_allows_are_named(client: Client) -> None:
    topic = new_topic(client)
    late = encode_batch([(now() + delta, None, b"v", ()) for delta in (0, 2 * HOUR, -(10**12))])
    refused = produce(client, topic, late)
    assert refused.error_code == ErrorCode.INVALID_TIMESTAMP
    assert [error.batch_index for error in refused.record_errors] == [1]
    allowing = new_topic(client, message_timestamp_after_max_ms=str(3 * HOUR))
    assert produce(client, allowing, late).error_code == ErrorCode.NONE
    assert produce(client, new_topic(client, message_timestamp_type="LogAppendTime"), late).error_code == ErrorCode.NONE


def test_records_of_an_earlier_time_than_the_topic_allows_are_named(client: Client) -> None:
    topic = new_topic(client, message_timestamp_before_max_ms=str(HOUR))
    early = encode_batch([(now() - age, None, b"v", ()) for age in (0, 2 * HOUR)])
    refused = produce(client, topic, early)
    assert refused.error_code == ErrorCode.INVALID_TIMESTAMP
    assert [error.batch_index for error in refused.record_errors] == [1]
    assert produce(client, topic, encode_batch([(-1, None, b"v", ())])).error_code == ErrorCode.NONE


@pytest.mark.parametrize("version", range(3, 14))
def test_a_refusal_tells_where_the_log_starts(client: Client, version: int) -> None:
    topic = new_topic(client)
    out_of_order = [produce(client, topic, batch("a", pair=(7, 0), sequence=s), version=version) for s in (0, 5)][1]
    assert out_of_order.error_code == ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    assert out_of_order.log_start_offset == (0 if version >= 5 else -1)


def test_a_repeated_batch_is_answered_with_its_first_offset_and_time(client: Client) -> None:
    topic = new_topic(client)
    data = batch("a", "b", pair=(7, 0), sequence=0)
    first, second = produce(client, topic, data), produce(client, topic, data)
    assert (first.base_offset, first.log_append_time_ms) == (0, -1)
    assert (second.base_offset, second.log_append_time_ms) == (0, NOW + 1)
    assert values(fetch(client, topic)) == ["a", "b"]


def errors_of(client: Client, topic: str, data: list[bytes], name: str | None = None, version: int = 13) -> list[int]:
    """What each partition of one request is told."""
    answer = client.ask(produce_request(client, topic, data, name), version)
    return [one.error_code for one in answer.responses[0].partition_responses]


def changed(position: int, form: str, value: int) -> bytes:
    data = bytearray(batch("a"))
    struct.pack_into(form, data, position, value)
    return bytes(data)


@pytest.mark.parametrize("version", [3, 8, 13])
@pytest.mark.parametrize(
    ("data", "error"),
    [
        (changed(16, ">b", 3), ErrorCode.CORRUPT_MESSAGE),
        (changed(16, ">b", -1), ErrorCode.CORRUPT_MESSAGE),
        (changed(8, ">i", 13), ErrorCode.CORRUPT_MESSAGE),
        (changed(8, ">i", 2**31 - 1), ErrorCode.UNKNOWN_SERVER_ERROR),
        (changed(8, ">i", 30)[:42], ErrorCode.UNKNOWN_SERVER_ERROR),
    ],
)
def test_what_is_no_batch_of_any_format_fails_its_request(
    client: Client, version: int, data: bytes, error: ErrorCode
) -> None:
    topic = new_topic(client, 2)
    assert errors_of(client, topic, [batch("a"), data], version=version) == [error] * 2
    assert errors_of(client, topic, [data, batch("a")], version=version) == [error] * 2
    assert fetch(client, topic).high_watermark == 0


def test_nobody_looks_for_batches_of_no_format_behind_a_transactional_one(client: Client) -> None:
    topic, pair = new_topic(client, 2), init(client, "t")
    data = [batch("a", pair=pair, sequence=0, transactional=True), changed(16, ">b", 3)]
    assert errors_of(client, topic, data, "t") == [ErrorCode.NONE, ErrorCode.CORRUPT_MESSAGE]
    assert errors_of(client, topic, data[::-1], "t") == [ErrorCode.CORRUPT_MESSAGE] * 2


@pytest.mark.parametrize("where", ["an unknown partition", "an unknown topic"])
def test_a_batch_of_no_format_fails_its_request_wherever_it_was_to_go(client: Client, where: str) -> None:
    topic = new_topic(client)
    request = produce_request(client, topic, [batch("a"), changed(16, ">b", 3)])
    if where == "an unknown topic":
        (lost,) = [request.topic_data[0].partition_data.pop()]
        unknown = TopicProduceData(name="nowhere", topic_id=uuid.UUID(int=0xFE), partition_data=[lost])
        request.topic_data.append(unknown)
    told = [one.error_code for topic in client.ask(request).responses for one in topic.partition_responses]
    assert told == [ErrorCode.CORRUPT_MESSAGE] * 2
    assert fetch(client, topic).high_watermark == 0


def test_a_batch_that_is_shorter_than_its_header_fails_its_request_only_where_it_could_be_written(
    client: Client,
) -> None:
    short = changed(8, ">i", 30)[:42]
    topic = new_topic(client)
    assert errors_of(client, topic, [batch("a"), short]) == [0, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION]


def test_a_batch_that_ends_in_its_record_count_is_corrupt_once_its_transaction_is_known(client: Client) -> None:
    topic, pair = new_topic(client), init(client, "t")
    data = bytearray(batch("a", pair=pair, sequence=0, transactional=True)[:60])
    struct.pack_into(">i", data, 8, 48)
    assert errors_of(client, topic, [bytes(data)], "t") == [ErrorCode.CORRUPT_MESSAGE]
    assert end(client, "t", pair, version=5).error_code == ErrorCode.NONE, "its partition was added"


@pytest.mark.parametrize("magic", [0, 1])
def test_a_batch_of_an_older_format_is_refused(client: Client, magic: int) -> None:
    data = bytearray(batch("a"))
    data[16] = magic
    assert produce(client, new_topic(client), bytes(data)).error_code == ErrorCode.INVALID_RECORD


def with_attributes(data: bytes, bits: int) -> bytes:
    changed = bytearray(data)
    changed[22] |= bits
    set_max_timestamp(changed, 0, read_header(changed), Milliseconds(NOW))
    return bytes(changed)


@pytest.mark.parametrize("codec", [5, 6, 7])
@pytest.mark.parametrize("version", [3, 6, 7, 13])
def test_a_codec_that_nobody_knows_is_refused_and_fails_older_requests(
    client: Client, version: int, codec: int
) -> None:
    topic = new_topic(client, 2)
    told = errors_of(client, topic, [batch("a"), with_attributes(batch("a"), codec)], version=version)
    assert told == [ErrorCode.UNKNOWN_SERVER_ERROR if version < 7 else 0, ErrorCode.UNKNOWN_SERVER_ERROR]


def test_only_the_topic_decides_whose_time_records_have(client: Client) -> None:
    topic = new_topic(client)
    assert produce(client, topic, with_attributes(batch("a", "b"), LOG_APPEND_TIME)).error_code == ErrorCode.NONE
    stored = fetch(client, topic).records
    assert stored is not None
    header = read_header(stored)
    assert not header.is_log_append_time
    assert crc_matches(stored, 0, header)
    assert [record.timestamp for record in decode_batch(stored)] == [NOW, NOW + 1]


@pytest.mark.parametrize("version", [9, 11, 13])
def test_a_partition_stands_in_a_request_once(client: Client, version: int) -> None:
    """Or the second batch would be verified, and the first one written."""
    topic, pair = new_topic(client), init(client, "t")
    data = [batch("a", pair=pair, sequence=s, transactional=True) for s in (0, 1)]
    request = produce_request(client, topic, [*data], "t")
    request.topic_data[0].partition_data[1].index = 0
    answers = client.ask(request, version).responses[0].partition_responses
    assert [one.error_code for one in answers] == [ErrorCode.INVALID_REQUEST] * 2
    assert fetch(client, topic, committed=False).high_watermark == 0


@pytest.mark.parametrize("version", [3, 8, 13])
def test_one_transactional_batch_without_an_id_fails_its_request(client: Client, version: int) -> None:
    """Wherever it was to go."""
    topic = new_topic(client)
    nowhere = batch("b", pair=(7, 0), sequence=0, transactional=True)
    answers = client.ask(produce_request(client, topic, [batch("a"), nowhere]), version).responses[0]
    errors = [one.error_code for one in answers.partition_responses]
    assert errors == [ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED] * 2
    assert fetch(client, topic).high_watermark == 0


def test_a_transactional_batch_of_nobody_is_refused_alone(client: Client) -> None:
    topic, pair = new_topic(client, 2), init(client, "t")
    data = [batch("a", pair=who, sequence=0, transactional=True) for who in (pair, (-1, -1))]
    answers = client.ask(produce_request(client, topic, data, "t")).responses[0].partition_responses
    assert [one.error_code for one in answers] == [ErrorCode.NONE, ErrorCode.INVALID_RECORD]


@pytest.mark.promise("890.switch")
def test_where_nothing_is_verified_the_log_judges_alone() -> None:
    with serving(transaction_partition_verification_enable=False) as broker:
        client = Client(broker)
        topic = new_topic(client)
        told = []
        for epoch, sequence in ((-1, 0), (3, 0), (2, 0), (2, -1), (-1, 1), (3, 1)):
            data = batch("a", pair=(7, epoch), sequence=sequence, transactional=True)
            answer = produce(client, topic, data, "t", version=11)
            told.append((answer.error_code, answer.log_start_offset))
        client.close()
    stale, wrong = (ErrorCode.INVALID_PRODUCER_EPOCH, 0), (ErrorCode.INVALID_RECORD, 0)
    assert told == [wrong, (0, 0), stale, wrong, stale, (0, 0)]
