"""Produce (0), facts §6.3 to §6.7 and §14."""

from __future__ import annotations

import pytest
from tests.broker.wire import (
    NOW,
    Client,
    add,
    batch,
    clients,
    end,
    ended,
    fetch,
    init,
    init_answer,
    new_topic,
    produce,
    produce_request,
    serving,
    values,
)

from fencepost.protocol.batch import read_header
from fencepost.protocol.compression import Compression
from fencepost.protocol.control import control_batch
from fencepost.protocol.errors import ErrorCode
from fencepost.protocol.messages import ProduceRequest
from fencepost.protocol.records import encode_batch
from fencepost.protocol.types import LeaderEpoch, Milliseconds, ProducerIdAndEpoch

client = clients()
VERSIONS = range(3, 14)


def part_of(pair: ProducerIdAndEpoch, value: str = "v", sequence: int = 0) -> bytes:
    return batch(value, pair=pair, sequence=sequence, transactional=True)


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("acks", [1, -1])
def test_a_batch_is_appended_and_its_offset_told(client: Client, version: int, acks: int) -> None:
    topic = new_topic(client)
    for base in (0, 2):
        written = produce(client, topic, batch("a", "b"), acks=acks, version=version)
        assert (written.error_code, written.base_offset, written.log_append_time_ms) == (0, base, -1)
        assert written.log_start_offset == (0 if version >= 5 else -1)
    assert values(fetch(client, topic)) == ["a", "b", "a", "b"]


@pytest.mark.parametrize("compression", list(Compression))
def test_every_compression_is_taken_as_it_is(client: Client, compression: Compression) -> None:
    topic = new_topic(client)
    data = encode_batch([(NOW, None, b"v" * 500, ())], compression=compression)
    assert produce(client, topic, data).error_code == ErrorCode.NONE
    assert bytes(fetch(client, topic).records or b"")[21:] == data[21:]


@pytest.mark.parametrize("compression", list(Compression))
@pytest.mark.parametrize("wanted", ["uncompressed", "gzip", "snappy", "lz4", "zstd"])
def test_a_topic_may_have_a_compression_of_its_own(client: Client, compression: Compression, wanted: str) -> None:
    topic = new_topic(client, compression_type=wanted)
    data = encode_batch([(NOW, None, b"v" * 500, ())], compression=compression)
    assert produce(client, topic, data).error_code == ErrorCode.NONE
    stored = fetch(client, topic)
    kept = Compression[wanted.upper()] if wanted != "uncompressed" else Compression.NONE
    assert read_header(stored.records or b"").attributes == kept
    assert values(stored) == ["v" * 500]


@pytest.mark.parametrize(("codec", "weak", "strong"), [("gzip", 1, 9), ("lz4", 1, 17), ("zstd", -100, 22)])
def test_how_hard_its_codec_works_is_a_setting_of_the_topic(client: Client, codec: str, weak: int, strong: int) -> None:
    """KIP-390."""
    data = encode_batch([(NOW, None, b"record %d of %d" % (n, n * n), ()) for n in range(500)])
    sizes = []
    for level in (weak, strong):
        topic = new_topic(client, 1, **{"compression_type": codec, f"compression_{codec}_level": str(level)})
        assert produce(client, topic, data).error_code == ErrorCode.NONE
        sizes.append(len(fetch(client, topic).records or b""))
    assert sizes[1] < sizes[0] < len(data)


@pytest.mark.parametrize("version", VERSIONS)
def test_zstd_needs_version_7(client: Client, version: int) -> None:
    topic = new_topic(client)
    data = encode_batch([(NOW, None, b"v", ())], compression=Compression.ZSTD)
    expected = ErrorCode.NONE if version >= 7 else ErrorCode.UNSUPPORTED_COMPRESSION_TYPE
    assert produce(client, topic, data, version=version).error_code == expected


def test_log_append_time_is_told(client: Client) -> None:
    topic = new_topic(client, message_timestamp_type="LogAppendTime")
    assert produce(client, topic, batch("a")).log_append_time_ms > NOW


class Ticking:
    """A clock that is a millisecond on whenever it is asked."""

    def __init__(self) -> None:
        self.at = NOW

    def now(self) -> Milliseconds:
        self.at += 1
        return Milliseconds(self.at)


def test_what_is_written_at_once_is_appended_at_one_time() -> None:
    with serving() as broker:
        client = Client(broker)
        topic = new_topic(client, 3, message_timestamp_type="LogAppendTime")
        broker.node.clock = Ticking()
        request = produce_request(client, topic, [batch("a"), batch("b"), batch("c")])
        written = client.ask(request, VERSIONS[-1]).responses[0].partition_responses
        assert len({one.log_append_time_ms for one in written}) == 1
        client.close()


@pytest.mark.parametrize("version", VERSIONS)
def test_an_unknown_topic_or_partition_is_told_and_the_others_written(client: Client, version: int) -> None:
    unknown = ErrorCode.UNKNOWN_TOPIC_ID if version >= 13 else ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert produce(client, "unknown", batch("a"), version=version).error_code == unknown
    topic = new_topic(client)
    answer = client.ask(produce_request(client, topic, [batch("a"), batch("b")]), version)
    errors = [one.error_code for one in answer.responses[0].partition_responses]
    assert errors == [ErrorCode.NONE, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION]


def test_of_several_batches_for_one_partition_none_is_written_and_the_others_are(client: Client) -> None:
    topic = new_topic(client, 2)
    for count in (2, 3):
        request = produce_request(client, topic, [batch("a")] * count + [batch("b")])
        for data, index in zip(request.topic_data[0].partition_data, [0] * count + [1], strict=True):
            data.index = index
        errors = [one.error_code for one in client.ask(request).responses[0].partition_responses]
        assert errors == [ErrorCode.INVALID_REQUEST] * count + [ErrorCode.NONE]
    assert values(fetch(client, topic)) == []


def corrupt(data: bytes) -> bytes:
    return data[:-1] + bytes([data[-1] ^ 1])


@pytest.mark.parametrize("version", [3, 8, 13])
@pytest.mark.parametrize(
    ("data", "error"),
    [
        (None, ErrorCode.INVALID_RECORD),
        (b"", ErrorCode.INVALID_RECORD),
        (batch("a")[:40], ErrorCode.INVALID_RECORD),
        (batch("a") + batch("b"), ErrorCode.INVALID_RECORD),
        (batch("a")[:16] + b"\x01" + batch("a")[17:], ErrorCode.INVALID_RECORD),
        (corrupt(batch("a")), ErrorCode.CORRUPT_MESSAGE),
        (batch("a", pair=(7, 0), sequence=-1), ErrorCode.INVALID_RECORD),
        (batch("a" * 2_000_000), ErrorCode.MESSAGE_TOO_LARGE),
    ],
    ids=["null", "empty", "cut", "two", "magic", "crc", "sequence", "large"],
)
def test_bad_records_are_refused(client: Client, version: int, data: bytes | None, error: ErrorCode) -> None:
    topic = new_topic(client)
    assert produce(client, topic, data, version=version).error_code == error
    assert fetch(client, topic).high_watermark == 0


def test_clients_write_no_markers(client: Client) -> None:
    topic = new_topic(client)
    pair = init(client, "t")
    for name, error in [
        (None, ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED),
        ("t", ErrorCode.INVALID_RECORD),
    ]:
        assert (
            produce(client, topic, control_batch(*pair, LeaderEpoch(0), True, Milliseconds(NOW)), name).error_code
            == error
        )
    assert fetch(client, topic).high_watermark == 0


@pytest.mark.parametrize("acks", [-2, 2, 100])
def test_bad_acks_are_refused(client: Client, acks: int) -> None:
    topic = new_topic(client)
    assert produce(client, topic, batch("a"), acks=acks).error_code == ErrorCode.INVALID_REQUIRED_ACKS


def test_internal_topics_are_the_brokers(client: Client) -> None:
    init(client, "t")
    assert produce(client, "__transaction_state", batch("a")).error_code == ErrorCode.INVALID_TOPIC_EXCEPTION


# Idempotence


@pytest.mark.promise("2014.repeats")
def test_a_duplicate_gets_its_first_offset_again(client: Client) -> None:
    topic = new_topic(client)
    answer = init_answer(client, None)
    pair = ProducerIdAndEpoch.of(answer.producer_id, answer.producer_epoch)
    for sequence in range(6):
        assert produce(client, topic, batch(f"{sequence}", pair=pair, sequence=sequence)).base_offset == sequence
    for sequence in range(1, 6):
        assert produce(client, topic, batch(f"{sequence}", pair=pair, sequence=sequence)).base_offset == sequence
    forgotten = produce(client, topic, batch("0", pair=pair, sequence=0))
    assert forgotten.error_code == ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    gap = produce(client, topic, batch("7", pair=pair, sequence=7))
    assert gap.error_code == ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    assert fetch(client, topic).high_watermark == 6


def test_an_older_epoch_is_refused(client: Client) -> None:
    topic = new_topic(client)
    assert produce(client, topic, batch("a", pair=(7, 3), sequence=0)).error_code == ErrorCode.NONE
    stale = produce(client, topic, batch("b", pair=(7, 2), sequence=0))
    assert stale.error_code == ErrorCode.INVALID_PRODUCER_EPOCH
    newer = produce(client, topic, batch("c", pair=(7, 4), sequence=5))
    assert newer.error_code == ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER


# Transactions


@pytest.mark.promise("360.unknown-producer", "890.implicit-produce", "890.verified")
@pytest.mark.parametrize("version", VERSIONS)
def test_the_partition_of_a_write_is_part_of_the_transaction(client: Client, version: int) -> None:
    """Newer clients rely on the leader to add it; older ones must have done so themselves (KIP-890)."""
    topic = new_topic(client)
    pair = init(client, "t")
    written = produce(client, topic, part_of(pair), "t", version=version)
    expected = {11: ErrorCode.TRANSACTION_ABORTABLE, 12: ErrorCode.NONE, 13: ErrorCode.NONE}
    assert written.error_code == expected.get(version, ErrorCode.INVALID_TXN_STATE)
    if version < 12:
        assert add(client, "t", pair, topic) == ErrorCode.NONE
        assert produce(client, topic, part_of(pair), "t", version=version).error_code == ErrorCode.NONE
    assert values(fetch(client, topic)) == []
    assert end(client, "t", pair).error_code == ErrorCode.NONE
    assert values(fetch(client, topic)) == ["v"]


@pytest.mark.parametrize("version", VERSIONS)
def test_a_stale_or_foreign_producer_is_refused(client: Client, version: int) -> None:
    topic = new_topic(client)
    old = init(client, "t")
    new = init(client, "t")
    assert new.producer_epoch == old.producer_epoch + 1
    add(client, "t", new, topic)
    fenced = produce(client, topic, part_of(old), "t", version=version)
    assert fenced.error_code == ErrorCode.INVALID_PRODUCER_EPOCH, "90 is never told on Produce"
    foreign = produce(client, topic, part_of(ProducerIdAndEpoch.of(new.producer_id + 50, 0)), "t", version=version)
    assert foreign.error_code == ErrorCode.INVALID_PRODUCER_ID_MAPPING
    unknown = produce(client, topic, part_of(new), "another", version=version)
    assert unknown.error_code == ErrorCode.INVALID_PRODUCER_ID_MAPPING
    assert fetch(client, topic).high_watermark == 0


@pytest.mark.parametrize("version", [3, 11, 12, 13])
def test_the_request_as_a_whole(client: Client, version: int) -> None:
    topic = new_topic(client, 2)
    one, two = init(client, "one"), init(client, "two")

    def errors(request: ProduceRequest) -> set[int]:
        return {each.error_code for each in client.ask(request, version).responses[0].partition_responses}

    both = [part_of(one), part_of(two)]
    assert errors(produce_request(client, topic, both, "one")) == {ErrorCode.INVALID_PRODUCER_ID_MAPPING}
    assert errors(produce_request(client, topic, both)) == {ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED}


@pytest.mark.promise("890.late-record")
def test_a_write_of_an_ended_transaction_is_refused(client: Client) -> None:
    topic = new_topic(client)
    pair = init(client, "t")
    assert produce(client, topic, part_of(pair), "t").error_code == ErrorCode.NONE
    following = ended(client, "t", pair)
    late = produce(client, topic, part_of(pair, "late", 1), "t")
    assert late.error_code == ErrorCode.INVALID_PRODUCER_EPOCH
    assert produce(client, topic, part_of(following, "next"), "t").error_code == ErrorCode.NONE
    ended(client, "t", following, commit=False)
    assert values(fetch(client, topic)) == ["v"]


@pytest.mark.promise("890.first-sequence")
def test_a_first_sequence_that_is_not_0_is_noticed(client: Client) -> None:
    """KAFKA-18202: the batch before it was lost."""
    topic = new_topic(client)
    pair = init(client, "t")
    lost = produce(client, topic, part_of(pair, sequence=3), "t")
    assert lost.error_code == ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER


def test_a_plain_write_inside_an_open_transaction_is_refused(client: Client) -> None:
    topic = new_topic(client)
    pair = init(client, "t")
    assert produce(client, topic, part_of(pair), "t").error_code == ErrorCode.NONE
    plain = produce(client, topic, batch("x", pair=pair, sequence=1), "t")
    assert plain.error_code == ErrorCode.INVALID_TXN_STATE


def test_a_transactional_bit_without_producer_is_refused(client: Client) -> None:
    topic = new_topic(client)
    written = produce(client, topic, batch("x", transactional=True), "t")
    assert written.error_code == ErrorCode.INVALID_RECORD
