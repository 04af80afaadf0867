"""Whatever the bytes are, decoding gives a message or ProtocolError; what it gives is all that was there."""

from __future__ import annotations

import sys
import tracemalloc
from pathlib import Path
from random import Random
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

sys.path.insert(0, str(Path(__file__).parent))

from random_messages import CLASSES, every_version, message_name, random_message, versions

from fencepost.protocol.codec import (
    decode,
    decode_response,
    decode_stored,
    encode,
    encode_request,
    encode_response,
    encode_stored,
    is_flexible,
    read_request_header,
    stored_version,
)
from fencepost.protocol.errors import ProtocolError
from fencepost.protocol.message import data, request, response, struct, tagged
from fencepost.protocol.messages import (
    REQUESTS,
    RESPONSES,
    ApiVersionsRequest,
    ApiVersionsResponse,
    EndTxnRequest,
    EndTxnResponse,
    FetchResponse,
    HeartbeatRequest,
    MetadataRequest,
    ProduceRequest,
)
from fencepost.protocol.types import batches, binary, int32, string

FLEXIBLE = {api: cls.__schema__.flexible for api, cls in REQUESTS.items()}
EVERY_VERSION = [pytest.param(cls, version, id=f"{cls.__name__}-v{version}") for cls, version in every_version()]


def decoded_or_refused(cls: Any, body: bytes, version: int) -> Any:
    """The message, or None if it was refused in the one way that is allowed."""
    try:
        return decode(cls, body, version)
    except ProtocolError:
        return None


@pytest.mark.parametrize(("cls", "version"), EVERY_VERSION)
def test_a_message_comes_back_as_it_was(cls: Any, version: int) -> None:
    random = Random(f"{cls.__name__} {version}")
    for _ in range(5):
        message = random_message(cls, version, random)
        body = encode(message, version)
        again = decode(cls, body, version)
        assert again == message
        assert encode(again, version) == body


@pytest.mark.parametrize(("cls", "version"), EVERY_VERSION)
def test_a_message_that_is_cut_off_is_refused(cls: Any, version: int) -> None:
    body = encode(random_message(cls, version, Random(f"{cls.__name__} {version}")), version)
    places = range(len(body)) if len(body) < 200 else Random(1).sample(range(len(body)), 200)
    for end in places:
        with pytest.raises(ProtocolError):
            decode(cls, body[:end], version)


@pytest.mark.parametrize(("cls", "version"), EVERY_VERSION)
def test_bytes_behind_a_message_are_refused(cls: Any, version: int) -> None:
    body = encode(random_message(cls, version, Random(f"{cls.__name__} {version}")), version)
    for rest in (b"\x00", b"\xff", bytes(50)):
        with pytest.raises(ProtocolError, match="too many"):
            decode(cls, body + rest, version)


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


@pytest.mark.parametrize(("cls", "version"), EVERY_VERSION)
def test_spoiled_bytes_give_a_message_or_a_protocol_error(cls: Any, version: int) -> None:
    random = Random(f"{cls.__name__} {version}")
    for _ in range(4):
        body = encode(random_message(cls, version, random), version)
        if not body:
            continue
        for _ in range(30):
            message = decoded_or_refused(cls, _spoiled(body, random), version)
            if message is not None:
                assert decode(cls, encode(message, version), version) == message


@given(cls=st.sampled_from(CLASSES), body=st.binary(max_size=60), choice=st.integers(0, 31))
@settings(max_examples=1000, deadline=None)
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


def test_an_array_costs_little_more_than_its_bytes() -> None:
    """An element takes at least one byte, so a frame cannot unfold to more elements than it has bytes."""
    body = (2**31 - 1).to_bytes(4, "big") + bytes(100_000)
    with pytest.raises(ProtocolError):
        decode(MetadataRequest, body, 4)


@pytest.mark.parametrize("version", range(6))
def test_a_version_that_nobody_knows_is_refused(version: int) -> None:
    assert encode(EndTxnRequest(transactional_id="x", producer_id=1, producer_epoch=0, committed=True), version)


@pytest.mark.parametrize("version", [-1, 6, 32767])
def test_an_unknown_version_is_refused(version: int) -> None:
    with pytest.raises(ProtocolError, match="versions 0 to 5"):
        decode(EndTxnRequest, bytes(50), version)
    with pytest.raises(ProtocolError, match="versions 0 to 5"):
        encode(EndTxnResponse(error_code=0), version)
