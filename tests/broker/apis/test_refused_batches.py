"""What Produce (0) makes of batches that are wrong, and how it says so (facts §6.3)."""

from __future__ import annotations

import struct
import sys
import time
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parents[1]))

from wire import NOW, Client, batch, clients, fetch, init, new_topic, produce, produce_request, serving, values

from fencepost.protocol.batch import LOG_APPEND_TIME, crc_matches, read_header, set_max_timestamp
from fencepost.protocol.errors import ErrorCode
from fencepost.protocol.records import decode_batch, encode_batch

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
    set_max_timestamp(garbled, 0, header, NOW)  # seals it anew
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


@pytest.mark.parametrize(("position", "form", "value"), [(16, ">b", 3), (16, ">b", -1), (8, ">i", 13), (8, ">i", 48)])
def test_what_is_no_batch_of_any_format_is_corrupt(client: Client, position: int, form: str, value: int) -> None:
    data = bytearray(batch("a"))
    struct.pack_into(form, data, position, value)
    assert produce(client, new_topic(client), bytes(data)).error_code == ErrorCode.CORRUPT_MESSAGE


@pytest.mark.parametrize("magic", [0, 1])
def test_a_batch_of_an_older_format_is_refused(client: Client, magic: int) -> None:
    data = bytearray(batch("a"))
    data[16] = magic
    assert produce(client, new_topic(client), bytes(data)).error_code == ErrorCode.INVALID_RECORD


def with_attributes(data: bytes, bits: int) -> bytes:
    changed = bytearray(data)
    changed[22] |= bits
    set_max_timestamp(changed, 0, read_header(changed), NOW)
    return bytes(changed)


def test_a_codec_that_nobody_knows_is_refused(client: Client) -> None:
    refused = produce(client, new_topic(client), with_attributes(batch("a"), 5))
    assert refused.error_code == ErrorCode.UNSUPPORTED_COMPRESSION_TYPE


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


def test_where_nothing_is_verified_the_log_judges_alone() -> None:
    with serving(transaction_partition_verification_enable=False) as broker:
        client = Client(broker)
        topic = new_topic(client)
        told = []
        for epoch, sequence in ((3, 0), (2, 0), (2, -1), (3, 1)):
            data = batch("a", pair=(7, epoch), sequence=sequence, transactional=True)
            answer = produce(client, topic, data, "t", version=11)
            told.append((answer.error_code, answer.log_start_offset))
        client.close()
    assert told == [(0, 0), (ErrorCode.INVALID_PRODUCER_EPOCH, 0), (ErrorCode.INVALID_RECORD, 0), (0, 0)]
