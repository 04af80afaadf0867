"""What real clients and Apache Kafka 4.3.1 said to each other: read and written again, it is the same bytes.

`recorded/exchanges.jsonl.gz` has the longest request and the longest response of every recorded (API, version), also of
APIs that are not declared yet.
"""

from __future__ import annotations

import gzip
import json
from pathlib import Path
from typing import NamedTuple

import pytest

from fencepost.protocol.codec import (
    API_VERSIONS,
    decode,
    decode_response,
    encode_request,
    encode_response,
    read_request_header,
)
from fencepost.protocol.errors import ErrorCode
from fencepost.protocol.messages import REQUESTS, RESPONSES

FLEXIBLE = {api: request.__schema__.flexible for api, request in REQUESTS.items()}


class Exchange(NamedTuple):
    """Frames without their length prefix."""

    api: int
    version: int
    software: str
    request: bytes
    response: bytes


def _recorded() -> list[Exchange]:
    with gzip.open(Path(__file__).parent / "recorded" / "exchanges.jsonl.gz", "rt", encoding="utf-8") as lines:
        rows = [json.loads(line) for line in lines]
    return [
        Exchange(row["api"], row["version"], row["software"], *map(bytes.fromhex, (row["request"], row["response"])))
        for row in rows
    ]


EXCHANGES = [exchange for exchange in _recorded() if exchange.api in REQUESTS]


def _name(exchange: Exchange) -> str:
    return f"{REQUESTS[exchange.api].__name__.removesuffix('Request')}-v{exchange.version}"


@pytest.mark.parametrize("exchange", EXCHANGES, ids=_name)
def test_a_recorded_request_keeps_its_bytes(exchange: Exchange) -> None:
    header = read_request_header(exchange.request, FLEXIBLE)
    assert (header.api_key, header.api_version) == (exchange.api, exchange.version)
    request = decode(REQUESTS[exchange.api], exchange.request, exchange.version, header.body_start)
    frame = encode_request(request, exchange.version, header.correlation_id, header.client_id)
    assert frame == len(exchange.request).to_bytes(4, "big") + exchange.request


def _response_version(exchange: Exchange) -> int:
    """A version of ApiVersions that the broker does not know is answered in version 0 (KIP-511)."""
    error = int.from_bytes(exchange.response[4:6], "big")
    refused = exchange.api == API_VERSIONS and error == ErrorCode.UNSUPPORTED_VERSION
    return 0 if refused else exchange.version


@pytest.mark.parametrize("exchange", EXCHANGES, ids=_name)
def test_a_recorded_response_keeps_its_bytes(exchange: Exchange) -> None:
    version = _response_version(exchange)
    correlation_id, response = decode_response(RESPONSES[exchange.api], exchange.response, version)
    assert correlation_id == read_request_header(exchange.request, FLEXIBLE).correlation_id
    frame = encode_response(response, version, correlation_id)
    assert frame == len(exchange.response).to_bytes(4, "big") + exchange.response


def test_the_recording_covers_the_transactional_apis() -> None:
    versions: dict[int, set[int]] = {}
    for exchange in EXCHANGES:
        versions.setdefault(exchange.api, set()).add(exchange.version)
    for api in (22, 24, 25, 26, 28):  # InitProducerId, AddPartitions, AddOffsets, EndTxn, TxnOffsetCommit
        assert len(versions[api]) >= 5
