"""Frames on a connection: answers in order, whatever comes in pieces, and garbage that ends one connection only."""

from __future__ import annotations

from random import Random

import pytest
from tests.broker.wire import (
    HELLO,
    Client,
    batch,
    clients,
    fetch,
    fetch_request,
    init,
    new_topic,
    produce,
    produce_request,
    serving,
    values,
)

from fencepost.broker.network.limits import MOST_WAITING
from fencepost.protocol.errors import ErrorCode
from fencepost.protocol.messages import EndTxnRequest, InitProducerIdRequest, MetadataRequest

client = clients()


def test_pipelined_requests_are_answered_in_order(client: Client) -> None:
    topic = new_topic(client)
    requests = [HELLO, MetadataRequest(topics=None), produce_request(client, topic, [batch("a")])] * 50
    client.send(*requests)
    offsets = []
    for request in requests:
        answer = client.receive()
        assert type(answer).__name__ == type(request).__name__.replace("Request", "Response")
        if type(request).__name__ == "ProduceRequest":
            offsets.append(answer.responses[0].partition_responses[0].base_offset)
    assert offsets == list(range(50))


def test_an_answer_waits_for_one_that_was_asked_for_before(client: Client) -> None:
    topic = new_topic(client)
    client.send(fetch_request(client, topic, wait_ms=10_000), HELLO)
    assert client.silent_for(0.05)
    other = Client(client.broker)
    produce(other, topic, batch("a"))
    other.close()
    assert values(client.receive().responses[0].partitions[0]) == ["a"]
    assert client.receive().error_code == ErrorCode.NONE


def test_requests_without_answers_leave_no_gap(client: Client) -> None:
    topic = new_topic(client)
    for _ in range(3):
        client.send_bytes(client.frame(produce_request(client, topic, [batch("a")], acks=0)))
        client.forget_last()
        client.send(HELLO)
    for _ in range(3):
        assert client.receive().error_code == ErrorCode.NONE
    assert fetch(client, topic).high_watermark == 3


def test_a_failed_write_without_answer_ends_the_connection(client: Client) -> None:
    client.send(produce_request(client, "unknown", [batch("a")], acks=0))
    assert client.is_closed()


@pytest.mark.parametrize("seed", range(5))
def test_frames_come_in_any_pieces(client: Client, seed: int) -> None:
    topic = new_topic(client)
    chance = Random(seed)
    value = "x" * 500
    data = b"".join(client.frame(produce_request(client, topic, [batch(f"{n}{value}")])) for n in range(20))
    while data:
        size = chance.choice([1, 3, 4, 5, 100, 700])
        client.send_bytes(data[:size])
        data = data[size:]
    assert [client.receive().responses[0].partition_responses[0].base_offset for _ in range(20)] == list(range(20))
    assert values(fetch(client, topic)) == [f"{n}{value}" for n in range(20)]


def test_a_frame_may_be_larger_than_the_buffer(client: Client) -> None:
    topic = new_topic(client)
    large = "y" * 700_000
    client.send(*[produce_request(client, topic, [batch(f"{n}{large}")]) for n in range(3)], HELLO)
    assert [client.receive().responses[0].partition_responses[0].error_code for _ in range(3)] == [0, 0, 0]
    assert client.receive().error_code == ErrorCode.NONE
    assert values(fetch(client, topic, 2, max_bytes=1 << 24)) == [f"2{large}"]


@pytest.mark.parametrize(
    "garbage",
    [
        b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n",
        b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" + b"\x00" * 40,
        b"\x00\x00\x00\x00",
        b"\x00\x00\x00\x07" + b"\x00" * 7,
        b"\xff\xff\xff\xff" + b"\x00" * 20,
        b"\x00\x00\x00\x0a\x00\x12\x00\x00\x00\x00\x00\x01\x7f\xff",
        b"\x00\x00\x00\x0d\x00\x12\x00\x00\x00\x00\x00\x01\x00\x03\xff\xfe\xfd",
        b"\x00\x00\x00\x0b\x00\x12\x00\x03\x00\x00\x00\x01\xff\xff\xff",
        b"\x00\x00\x00\x0e\x00\x03\x00\x00\x00\x00\x00\x01\xff\xff\x7f\xff\xff\xff",
    ],
    ids=["http", "tls", "empty", "short", "negative", "client id", "no utf-8", "tags", "array"],
)
def test_garbage_ends_its_own_connection_only(client: Client, garbage: bytes) -> None:
    other = Client(client.broker)
    other.send_bytes(garbage)
    assert other.is_closed()
    assert client.ask(HELLO).error_code == ErrorCode.NONE


@pytest.mark.parametrize("seed", range(20))
def test_random_bytes_never_harm_the_node(client: Client, seed: int) -> None:
    chance = Random(seed)
    for _ in range(10):
        body = chance.choice([24, 22, 26, 0, 1, 28, 3, 11]).to_bytes(2, "big")
        body += chance.randrange(10).to_bytes(2, "big") + chance.randbytes(chance.randrange(6, 80))
        other = Client(client.broker)
        other.send_bytes(len(body).to_bytes(4, "big") + body)
        other.close()
    assert client.ask(HELLO).error_code == ErrorCode.NONE


@pytest.mark.parametrize("rest", [b"\0", b"\0\0\0", bytes(1000)], ids=len)
def test_bytes_behind_a_request_are_not_looked_at(client: Client, rest: bytes) -> None:
    """As in Apache Kafka: librdkafka 2.16 sends three of them with Metadata v13 while a topic that it knew is gone."""
    topic = new_topic(client)
    requests = [HELLO, MetadataRequest(topics=[]), produce_request(client, topic, [batch("a")]), HELLO]
    frames = [client.frame(request)[4:] + rest for request in requests]
    client.send_bytes(b"".join(len(frame).to_bytes(4, "big") + frame for frame in frames))
    client.receive()
    assert client.receive().brokers[0].port == client.broker.port
    assert client.receive().responses[0].partition_responses[0].error_code == ErrorCode.NONE
    assert client.receive().error_code == ErrorCode.NONE
    assert values(fetch(client, topic)) == ["a"]


def test_an_oversized_frame_is_refused_when_it_is_announced() -> None:
    with serving(socket_request_max_bytes=2000) as broker:
        client = Client(broker)
        topic = new_topic(client)
        assert produce(client, topic, batch("z" * 1500)).error_code == ErrorCode.NONE
        other = Client(broker)
        other.send_bytes((2001).to_bytes(4, "big"))
        assert other.is_closed()
        assert client.ask(HELLO).error_code == ErrorCode.NONE
        client.close()


def test_what_came_before_garbage_is_done(client: Client) -> None:
    topic = new_topic(client)
    other = Client(client.broker)
    other.send_bytes(other.frame(produce_request(client, topic, [batch("kept")])) + b"\xff\xff\xff\xff")
    client.ask(HELLO)
    other.close()
    assert values(fetch(client, topic, wait_ms=10_000)) == ["kept"]


def test_answers_that_are_ready_are_sent_before_the_end(client: Client) -> None:
    client.send_bytes(client.frame(HELLO) + client.frame(HELLO) + b"\xff\xff\xff\xff")
    assert client.receive().error_code == client.receive().error_code == ErrorCode.NONE
    assert client.is_closed()


def test_a_client_that_goes_away_while_it_waits_is_forgotten(client: Client) -> None:
    topic = new_topic(client)
    other = Client(client.broker)
    other.send(fetch_request(client, topic, wait_ms=60_000))
    assert other.silent_for(0.05)
    other.close()
    assert produce(client, topic, batch("a")).error_code == ErrorCode.NONE
    assert values(fetch(client, topic)) == ["a"]


def test_more_requests_than_may_wait_are_all_answered(client: Client) -> None:
    topic = new_topic(client)
    waiting = fetch_request(client, topic, wait_ms=10_000)
    client.send(waiting, *[HELLO] * (MOST_WAITING * 2))
    assert client.silent_for(0.05)
    other = Client(client.broker)
    produce(other, topic, batch("a"))
    other.close()
    assert values(client.receive().responses[0].partitions[0]) == ["a"]
    for _ in range(MOST_WAITING * 2):
        assert client.receive().error_code == ErrorCode.NONE


def test_the_end_of_a_transaction_may_be_pipelined_behind_its_write(client: Client) -> None:
    topic = new_topic(client)
    pid, epoch = pair = init(client, "t")
    write = produce_request(client, topic, [batch("a", pair=pair, sequence=0, transactional=True)], "t")
    commit = EndTxnRequest(transactional_id="t", producer_id=pid, producer_epoch=epoch, committed=True)
    client.send(write, commit, InitProducerIdRequest(transactional_id=None, transaction_timeout_ms=0))
    assert client.receive().responses[0].partition_responses[0].error_code == ErrorCode.NONE
    assert client.receive().producer_epoch == epoch + 1
    assert client.receive().error_code == ErrorCode.NONE
    assert values(fetch(client, topic)) == ["a"]
