"""Every API in every version that it is served in answers something that decodes; no other version is answered."""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from typing import Any

import pytest
from tests.broker.wire import Client, serving

from fencepost.broker import Broker
from fencepost.broker.network.registry import SERVED
from fencepost.protocol.codec import API_VERSIONS, encode_request
from fencepost.protocol.errors import ErrorCode
from fencepost.protocol.layout import Field, fields_of
from fencepost.protocol.message import Message
from fencepost.protocol.messages import REQUESTS, ApiVersionsRequest, ApiVersionsResponse

PRODUCE, INIT_PRODUCER_ID = 0, 22
EVERY = [(key, version) for key, served in sorted(SERVED.items()) for version in range(served.first, served.last + 1)]
TOPIC = 2
#: fields that mean something with few values only
MEANT: dict[str, Any] = {"acks": -1, "resource_type": TOPIC}
SAMPLES: dict[str, Any] = {
    "boolean": False,
    "string": "sample",
    "uuid": uuid.UUID(int=7),
    "binary": b"sample",
    "batches": b"",
    "float64": 0.0,
}


@pytest.fixture(scope="module")
def node() -> Iterator[Broker]:
    with serving(transaction_two_phase_commit_enable=True) as broker:
        yield broker


@pytest.fixture
def client(node: Broker) -> Iterator[Client]:
    connected = Client(node)
    yield connected
    connected.close()


def sample(of: type[Message], version: int, count: int) -> Any:
    """A message whose arrays have `count` elements."""
    fields = [field for field in fields_of(of) if field.wire.in_version(version) and field.wire.tag is None]
    return of(**{field.name: value(field, version, count) for field in fields})


def value(field: Field, version: int, count: int) -> Any:
    if field.name in MEANT:
        return MEANT[field.name]
    if field.kind == "struct":
        return sample(field.of, version, count)
    if field.kind == "array":
        return [value(field.of, version, count) for _ in range(count)]
    return SAMPLES.get(field.kind, 0)


def name_of(place: tuple[int, int]) -> str:
    return f"{REQUESTS[place[0]].__name__.removesuffix('Request')}-v{place[1]}"


@pytest.mark.parametrize("count", [0, 1, 2])
@pytest.mark.parametrize("place", EVERY, ids=name_of)
def test_every_served_version_is_answered(client: Client, place: tuple[int, int], count: int) -> None:
    key, version = place
    answer = client.ask(sample(SERVED[key].request, version, count), version)
    assert type(answer) is SERVED[key].response
    assert client.ask(ApiVersionsRequest(), 0).error_code == ErrorCode.NONE, "the connection goes on"


@pytest.mark.parametrize("place", EVERY, ids=name_of)
def test_bytes_behind_a_request_change_nothing(client: Client, place: tuple[int, int]) -> None:
    """librdkafka sends some behind Metadata v13; whoever takes the frame apart lets them be, not the decoder alone."""
    key, version = place
    for behind in (b"\x00", b"\xff\xff\xff", bytes(5000)):
        frame = client.frame(sample(SERVED[key].request, version, 1), version)
        client.send_bytes((len(frame) - 4 + len(behind)).to_bytes(4, "big") + frame[4:] + behind)
        assert type(client.receive()) is SERVED[key].response
    assert client.ask(ApiVersionsRequest(), 0).error_code == ErrorCode.NONE, "the connection goes on"


def unserved(key: int) -> list[int]:
    served = SERVED.get(key)
    around = [0, 1, 99] if served is None else [served.first - 1, served.last + 1, 99]
    return [version for version in around if version >= 0]


NOT_SERVED = [(key, version) for key in sorted(REQUESTS) if key != API_VERSIONS for version in unserved(key)]


@pytest.mark.parametrize("place", NOT_SERVED, ids=name_of)
def test_a_version_that_is_not_served_closes_the_connection(client: Client, place: tuple[int, int]) -> None:
    client.send_bytes(frame(*place))
    assert client.is_closed()


def frame(key: int, version: int, body: bytes = b"\x00" * 40) -> bytes:
    payload = key.to_bytes(2, "big") + version.to_bytes(2, "big") + b"\x00\x00\x00\x01\xff\xff" + body
    return len(payload).to_bytes(4, "big") + payload


def test_an_api_that_nobody_knows_closes_the_connection(client: Client) -> None:
    client.send_bytes(frame(1234, 0))
    assert client.is_closed()


@pytest.mark.parametrize("version", [6, 7, 99, 32767])
def test_api_versions_of_the_future_gets_version_0_with_35_and_can_go_on(client: Client, version: int) -> None:
    client.frame(ApiVersionsRequest(), 0)  # so that a v0 answer is expected
    client.send_bytes(frame(API_VERSIONS, version))
    answer = client.receive()
    assert answer.error_code == ErrorCode.UNSUPPORTED_VERSION
    assert [(key.api_key, key.min_version, key.max_version) for key in answer.api_keys] == [(18, 0, 5)]
    told = client.ask(ApiVersionsRequest(client_software_name="wire", client_software_version="1"), 5)
    assert told.error_code == ErrorCode.NONE


@pytest.mark.parametrize("version", range(6))
def test_api_versions_tells_what_is_served(client: Client, version: int) -> None:
    request = ApiVersionsRequest(client_software_name="wire", client_software_version="1.0")
    answer: ApiVersionsResponse = client.ask(request, version)
    told = {key.api_key: (key.min_version, key.max_version) for key in answer.api_keys}
    served = {key: (served.first, served.last) for key, served in SERVED.items()}
    assert told == served | {PRODUCE: (0, 13)}, "librdkafka looks for Produce v0 (KAFKA-18659)"
    if version >= 3:
        finalized = {
            feature.name: (feature.min_version_level, feature.max_version_level)
            for feature in answer.finalized_features
        }
        assert finalized == {"transaction.version": (2, 2)}
        names = {feature.name for feature in answer.supported_features}
        assert ("transaction.version" in names) == (version >= 4), "older clients refuse a least level of 0"


@pytest.mark.parametrize(("name", "number"), [("", "1"), ("wire", ""), ("-wire", "1"), ("wire", "1 0"), ("wi/re", "1")])
def test_api_versions_checks_the_name_of_the_software(client: Client, name: str, number: str) -> None:
    request = ApiVersionsRequest(client_software_name=name, client_software_version=number)
    answer = client.ask(request, 4)
    assert (answer.error_code, answer.api_keys) == (ErrorCode.INVALID_REQUEST, [])


def test_api_versions_refuses_whoever_means_another_cluster_or_node(client: Client) -> None:
    known = client.broker.node.cluster_id
    for cluster, node, error in [
        (None, -1, ErrorCode.NONE),
        (known, 0, ErrorCode.NONE),
        ("another", 0, ErrorCode.REBOOTSTRAP_REQUIRED),
        (known, 1, ErrorCode.REBOOTSTRAP_REQUIRED),
    ]:
        request = ApiVersionsRequest(
            client_software_name="wire", client_software_version="1", cluster_id=cluster, node_id=node
        )
        assert client.ask(request, 5).error_code == error


def test_a_request_without_client_id_is_answered(client: Client) -> None:
    client.frame(ApiVersionsRequest(), 0)
    client.send_bytes(encode_request(ApiVersionsRequest(), 0, 1, None))
    assert client.receive().error_code == ErrorCode.NONE


def test_two_phase_commit_is_neither_advertised_nor_served_where_it_is_not_allowed() -> None:
    with serving() as broker:
        client = Client(broker)
        answer: ApiVersionsResponse = client.ask(ApiVersionsRequest(), 0)
        told = {key.api_key: key.max_version for key in answer.api_keys}
        assert told[INIT_PRODUCER_ID] == 5
        client.send_bytes(frame(INIT_PRODUCER_ID, 6))
        assert client.is_closed()
        client.close()
