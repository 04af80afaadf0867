"""Whatever the bytes are, decoding gives a message or ProtocolError; what it gives is all that was there."""

from __future__ import annotations

import re
import tracemalloc
from collections.abc import Iterator
from random import Random
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.protocol.of_each_class import of_each_class
from tests.protocol.random_messages import CLASSES, every_version, random_message, versions

from fencepost.protocol import codec, decoding, encoding
from fencepost.protocol.codec import (
    begin_response,
    decode,
    decode_request,
    decode_request_in_steps,
    decode_response,
    encode,
    encode_request,
    encode_response,
    read_request_header,
)
from fencepost.protocol.decoding import MOST_ITEMS, STEP
from fencepost.protocol.encoding import uvarint
from fencepost.protocol.errors import LONGEST_MESSAGE, ProtocolError, told
from fencepost.protocol.layout import default_of, fields_of
from fencepost.protocol.message import Message
from fencepost.protocol.messages import (
    FLEXIBLE,
    REQUESTS,
    RESPONSES,
    ApiVersionsResponse,
    EndTxnRequest,
    EndTxnResponse,
    ListOffsetsResponse,
    MetadataRequest,
    MetadataResponse,
    OffsetForLeaderEpochRequest,
    ProduceRequest,
)
from fencepost.protocol.messages.list_offsets import ListOffsetsTopicResponse
from fencepost.protocol.messages.metadata import (
    MetadataRequestTopic,
    MetadataResponsePartition,
    MetadataResponseTopic,
)
from fencepost.protocol.messages.offset_for_leader_epoch import OffsetForLeaderPartition, OffsetForLeaderTopic
from fencepost.protocol.messages.produce import PartitionProduceData, TopicProduceData
from fencepost.protocol.steps import finish

EVERY_VERSION = list(every_version())


def decoded_or_refused(cls: Any, body: bytes, version: int) -> Any:
    """The message, or None if it was refused in the one way that is allowed."""
    try:
        return decode(cls, body, version)
    except ProtocolError:
        return None


@of_each_class(EVERY_VERSION)
def test_a_message_comes_back_as_it_was(cls: Any, version: int) -> None:
    random = Random(f"{cls.__name__} {version}")
    for _ in range(5):
        message = random_message(cls, version, random)
        body = encode(message, version)
        again = decode(cls, body, version)
        assert again == message
        assert encode(again, version) == body


@of_each_class(EVERY_VERSION)
def test_a_message_that_is_cut_off_is_refused(cls: Any, version: int) -> None:
    body = encode(random_message(cls, version, Random(f"{cls.__name__} {version}")), version)
    places = range(len(body)) if len(body) < 200 else Random(1).sample(range(len(body)), 200)
    for end in places:
        with pytest.raises(ProtocolError):
            decode(cls, body[:end], version)


@of_each_class(EVERY_VERSION)
def test_bytes_behind_a_message_are_refused(cls: Any, version: int) -> None:
    body = encode(random_message(cls, version, Random(f"{cls.__name__} {version}")), version)
    for rest in (b"\x00", b"\xff", bytes(50)):
        with pytest.raises(ProtocolError, match="too many"):
            decode(cls, body + rest, version)
        if cls in REQUESTS.values():
            again = decode_request(cls, b"front" + body + rest, version, 5)
            assert again == decode(cls, body, version)


@pytest.mark.parametrize("flexible", [False, True])
def test_the_items_of_a_request_are_bounded_whatever_their_depth(flexible: bool) -> None:
    """Fifteen megabytes of empty names cost 25 seconds and 5.5 GB."""
    version = 4 if flexible else 3

    def offsets(topics: int, partitions: int) -> bytes:
        one = OffsetForLeaderTopic(topic="t", partitions=[OffsetForLeaderPartition(partition=0, leader_epoch=0)])
        one.partitions *= partitions
        return encode(OffsetForLeaderEpochRequest(replica_id=-1, topics=[one] * topics), version)

    most = MOST_ITEMS
    for topics, partitions, fits in ((10, most // 10 - 1, True), (10, most // 10, False), (most + 1, 0, False)):
        body = offsets(topics, partitions)
        if fits:
            assert len(decode(OffsetForLeaderEpochRequest, body, version).topics) == topics
        else:
            with pytest.raises(ProtocolError, match=f"no more than {most}"):
                decode(OffsetForLeaderEpochRequest, body, version)


def test_unknown_tagged_fields_are_bounded() -> None:
    count = MOST_ITEMS + 1
    fields = uvarint(count) + b"\x7f\x00" * count
    with pytest.raises(ProtocolError, match="no more than"):
        decode(MetadataRequest, encode(MetadataRequest(topics=[]), 12)[:-1] + fields, 12)
    header = b"\x00\x03\x00\x0c\x00\x00\x00\x01\xff\xff" + fields
    with pytest.raises(ProtocolError, match="no more than"):
        read_request_header(header, FLEXIBLE)


def test_what_is_read_may_be_as_long_as_it_is() -> None:
    """Answers and what is stored are our own, or of whom we asked."""
    many = ListOffsetsResponse(topics=[ListOffsetsTopicResponse(name="", partitions=[])] * (MOST_ITEMS + 1))
    assert len(decode(ListOffsetsResponse, encode(many, 3), 3).topics) == MOST_ITEMS + 1


def _spoiled(body: bytes, random: Random) -> bytes:
    """The bytes with one thing wrong: bits, a number at its edge, or a part left out, doubled or moved."""
    spoiled = bytearray(body)
    at = random.randrange(len(body))
    match random.randrange(5):
        case 0:
            spoiled[at] ^= 1 << random.randrange(8)
        case 1:
            spoiled[at] = random.choice((0, 1, 0x7F, 0x80, 0xFE, 0xFF))
        case 2:
            edge = random.choice((b"\x7f\xff\xff\xff", b"\x80\x00\x00\x00", b"\xff\xff\xff\xff\x0f", b"\xff" * 10))
            spoiled[at : at + len(edge)] = edge
        case 3:
            del spoiled[at : at + random.randrange(1, 9)]
        case _:
            spoiled[at:at] = random.randbytes(random.randrange(1, 9))
    return bytes(spoiled)


@of_each_class(EVERY_VERSION)
def test_spoiled_bytes_give_a_message_or_a_protocol_error(cls: Any, version: int) -> None:
    random = Random(f"{cls.__name__} {version}")
    for _ in range(4):
        body = encode(random_message(cls, version, random), version)
        if not body:
            continue
        for _ in range(30):
            message = decoded_or_refused(cls, _spoiled(body, random), version)
            if message is not None:
                whole = encode(message, version)
                # Not the messages: a number in them may be none (NaN), and then equals nothing.
                assert encode(decode(cls, whole, version), version) == whole


@given(cls=st.sampled_from(CLASSES), body=st.binary(max_size=60), choice=st.integers(0, 31))
@settings(max_examples=1000)
def test_any_bytes_give_a_message_or_a_protocol_error(cls: Any, body: bytes, choice: int) -> None:
    known = versions(cls)
    decoded_or_refused(cls, body, known[choice % len(known)])


def test_a_large_claim_costs_no_memory() -> None:
    """A count or length of 2147483647 in a few bytes is refused before anything is made for it."""
    tracemalloc.start()
    try:
        for cls, version in every_version():
            for body in (b"\x7f\xff\xff\xff" * 8, b"\xff\xff\xff\xff\x07" * 6, b"\x00" * 9 + b"\xff\xff\xff\xff\x0f"):
                decoded_or_refused(cls, body, version)
        assert tracemalloc.get_traced_memory()[1] < 64 * 1024 * 1024
    finally:
        tracemalloc.stop()


def _with_long_error_texts(cls: Any, version: int, text: str) -> Any:
    """One of each item; with the text wherever an error is told, and nothing else."""
    values: dict[str, Any] = {}
    for field in fields_of(cls):
        item = field.of if field.kind == "array" else field
        if not field.wire.in_version(version):
            values[field.name] = default_of(field)
        elif item.kind == "struct":
            inner = _with_long_error_texts(item.of, version, text)
            values[field.name] = [inner] if field.kind == "array" else inner
        elif field.name.endswith("error_message"):
            values[field.name] = text
        else:
            values[field.name] = default_of(field)
    return cls(**values)


def _error_texts(message: Any) -> Iterator[str | None]:
    for field in fields_of(type(message)):
        value = getattr(message, field.name)
        for each in value if isinstance(value, list) else [value]:
            if isinstance(each, Message):
                yield from _error_texts(each)
        if field.name.endswith("error_message"):
            yield value


@of_each_class([(cls, version) for cls, version in EVERY_VERSION if cls in RESPONSES.values()])
def test_whatever_an_error_text_names_it_has_room_in_an_answer(cls: Any, version: int) -> None:
    for letter in ("x", "\u00e9", "\U0001f512"):
        text = f"{letter * 32_767}: there is no such thing"
        message = _with_long_error_texts(cls, version, text)
        found = list(_error_texts(decode(cls, encode(message, version), version)))
        assert found == [said and told(said) for said in _error_texts(message)]
        assert all(said is None or len(said) <= LONGEST_MESSAGE + 3 for said in found)


@pytest.mark.parametrize("version", [-1, 6, 32767])
def test_an_unknown_version_is_refused(version: int) -> None:
    with pytest.raises(ProtocolError, match="versions 0 to 5"):
        decode(EndTxnRequest, bytes(50), version)
    with pytest.raises(ProtocolError, match="versions 0 to 5"):
        encode(EndTxnResponse(throttle_time_ms=0, error_code=0), version)


def test_a_body_may_start_anywhere_in_any_kind_of_buffer() -> None:
    message = EndTxnRequest(transactional_id="orders", producer_id=7, producer_epoch=3, committed=True)
    body = encode(message, 5)
    for buffer in (body, bytearray(body), memoryview(body)):
        assert decode(EndTxnRequest, buffer, 5) == message
    assert decode(EndTxnRequest, b"before" + body, 5, start=6) == message


def test_record_batches_are_slices_of_the_frame() -> None:
    records = bytes(range(256))
    partition = PartitionProduceData(index=0, records=records)
    topic = TopicProduceData(name="orders", partition_data=[partition])
    frame = encode(ProduceRequest(acks=-1, timeout_ms=1000, topic_data=[topic]), 9)
    taken = decode(ProduceRequest, frame, 9).topic_data[0].partition_data[0].records
    assert isinstance(taken, memoryview)
    assert taken.obj is frame
    assert taken == records


# Frames


@pytest.mark.parametrize("client_id", [None, "", "orders", "Grüße"])
@pytest.mark.parametrize("version", [1, 5])
def test_a_request_frame_comes_back_as_it_was(client_id: str | None, version: int) -> None:
    message = EndTxnRequest(transactional_id="orders", producer_id=7, producer_epoch=3, committed=True)
    frame = encode_request(message, version, -5, client_id)
    assert int.from_bytes(frame[:4], "big") == len(frame) - 4
    header = read_request_header(frame, FLEXIBLE, start=4)
    assert header[:4] == (26, version, -5, client_id)
    assert decode(EndTxnRequest, frame, version, header.body_start) == message


@pytest.mark.parametrize("version", [1, 5])
def test_a_response_frame_comes_back_as_it_was(version: int) -> None:
    message = EndTxnResponse(throttle_time_ms=0, error_code=47)
    frame = encode_response(message, version, 2**31 - 1)
    assert int.from_bytes(frame[:4], "big") == len(frame) - 4
    assert decode_response(EndTxnResponse, frame[4:], version) == (2**31 - 1, message)


def test_only_the_header_of_an_api_versions_response_stays_inflexible() -> None:
    """A client reads it before it knows what the broker speaks (KIP-511)."""
    body = encode(ApiVersionsResponse(error_code=0, api_keys=[]), 3)
    assert encode_response(ApiVersionsResponse(error_code=0, api_keys=[]), 3, 9)[4:] == b"\0\0\0\x09" + body
    body = encode(EndTxnResponse(throttle_time_ms=0, error_code=0), 3)
    assert encode_response(EndTxnResponse(throttle_time_ms=0, error_code=0), 3, 9)[4:] == b"\0\0\0\x09\0" + body


def test_the_header_of_an_unknown_api_ends_with_the_client_id() -> None:
    header = read_request_header(b"\x7f\x00\x00\x63\x00\x00\x00\x01\x00\x02me" + b"\xff" * 20, FLEXIBLE)
    assert header == (0x7F00, 0x63, 1, "me", 12)


def test_tagged_fields_in_headers_are_stepped_over() -> None:
    tags = b"\x02\x00\x03abc\x90\x4e\x80\x01" + bytes(128)  # tag 0 with 3 bytes, tag 10000 with 128
    header = read_request_header(b"\x00\x1a\x00\x05\x00\x00\x00\x01\xff\xff" + tags + b"body", FLEXIBLE)
    assert header.body_start == 10 + len(tags)
    message = EndTxnResponse(throttle_time_ms=0, error_code=0)
    assert decode_response(EndTxnResponse, b"\0\0\0\x01" + tags + encode(message, 5), 5) == (1, message)


def test_a_header_that_is_cut_off_is_refused() -> None:
    message = EndTxnRequest(transactional_id="orders", producer_id=7, producer_epoch=3, committed=True)
    frame = encode_request(message, 5, 1, "client")[4:]
    body_start = read_request_header(frame, FLEXIBLE).body_start
    for end in range(body_start):
        with pytest.raises(ProtocolError):
            read_request_header(frame[:end], FLEXIBLE)
    for end in range(5):
        with pytest.raises(ProtocolError):
            decode_response(EndTxnResponse, b"\0\0\0\x01\0"[:end], 5)


@given(st.binary(max_size=80))
@settings(max_examples=500)
def test_any_frame_has_a_header_or_is_refused(frame: bytes) -> None:
    for start in (b"", b"\x00\x1a\x00\x05", b"\x00\x1a\x00\x05\x00\x00\x00\x01\x00\x01x"):
        try:
            header = read_request_header(start + frame, FLEXIBLE)
        except ProtocolError:
            continue
        assert header.body_start <= len(start + frame)


@pytest.mark.parametrize("version", [0, 12])
def test_a_long_response_is_encoded_in_steps_that_are_bounded(version: int) -> None:
    """To the same bytes; what each step adds is at most so many elements, however they are nested."""
    partitions = [
        MetadataResponsePartition(error_code=0, partition_index=n, leader_id=1, replica_nodes=[1], isr_nodes=[1])
        for n in range(3 * STEP)
    ]
    topics = [
        MetadataResponseTopic(error_code=0, name=f"t{n}", partitions=partitions if n == 7 else [])
        for n in range(3 * STEP)
    ]
    message = MetadataResponse(brokers=[], topics=topics)
    begun = begin_response(message, version, 5)
    assert not isinstance(begun, bytes)
    steps = 0
    while True:
        try:
            next(begun)
        except StopIteration as done:
            frame = done.value
            break
        steps += 1
    assert steps == 6
    front = b"\0\0\0\x05" + (b"\0" if codec.is_flexible(MetadataResponse, version) else b"")
    assert frame[4:] == front + encode(message, version)
    assert int.from_bytes(frame[:4], "big") == len(frame) - 4
    assert isinstance(begin_response(MetadataResponse(brokers=[], topics=topics[: STEP // 2][:7]), version, 5), bytes)


def test_the_last_step_of_a_long_response_copies_nothing_of_those_before() -> None:
    """As long as that would take everybody else would wait."""
    topics = [MetadataResponseTopic(error_code=0, name="t" * 249, partitions=[]) for _ in range(20 * STEP)]
    begun = begin_response(MetadataResponse(brokers=[], topics=topics), 12, 5)
    assert not isinstance(begun, bytes)
    tracemalloc.start()
    try:
        while True:
            tracemalloc.reset_peak()
            before, _ = tracemalloc.get_traced_memory()
            try:
                next(begun)
            except StopIteration as done:
                frame = done.value
                break
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak - before < len(frame) // 2


@pytest.fixture
def steps_of_one(monkeypatch: pytest.MonkeyPatch) -> None:
    """One element in each step."""
    for room, cache in ((encoding, "_STEPPED_ENCODERS"), (decoding, "_STEPPED_DECODERS")):
        monkeypatch.setattr(room, "STEP", 1)
        monkeypatch.setattr(codec, cache, {})


@pytest.mark.usefixtures("steps_of_one")
@of_each_class([(cls, version) for cls, version in EVERY_VERSION if cls in RESPONSES.values()])
def test_in_steps_a_response_has_the_same_bytes(cls: Any, version: int) -> None:
    for seed in range(10):
        message = random_message(cls, version, Random(seed))
        begun = begin_response(message, version, 5)
        frame = begun if isinstance(begun, bytes) else finish(begun)
        body = encode(message, version)
        assert frame[4:8] == b"\0\0\0\x05" and frame[-len(body) :] == body and len(frame) - len(body) in (8, 9)


@pytest.mark.usefixtures("steps_of_one")
@of_each_class([(cls, version) for cls, version in EVERY_VERSION if cls in REQUESTS.values()])
def test_in_steps_a_request_is_the_same_and_refused_for_the_same(cls: Any, version: int) -> None:
    for seed in range(10):
        random = Random(seed)
        message = random_message(cls, version, random)
        body = encode(message, version)
        assert finish(decode_request_in_steps(cls, b"front" + body + b"behind", version, 5)) == message
        end = random.randrange(len(body) or 1)
        if not body:
            continue
        with pytest.raises(ProtocolError) as expected:
            decode_request(cls, body[:end], version, 0)
        with pytest.raises(ProtocolError, match=re.escape(str(expected.value))):
            finish(decode_request_in_steps(cls, body[:end], version, 0))


@pytest.mark.parametrize("version", [4, 12])
def test_a_large_request_is_decoded_in_steps_that_are_bounded(version: int) -> None:
    topics = [MetadataRequestTopic(name=f"t{number}") for number in range(3 * STEP)]
    body = encode(MetadataRequest(topics=topics), version)
    steps = decode_request_in_steps(MetadataRequest, body, version, 0)
    assert sum(1 for _ in steps) == 3
