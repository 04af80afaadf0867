"""A connection: answers in order, and clear words about whatever is not a broker that we can use."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable

import pytest

from fencepost.broker.network.connection_quotas import ConnectionQuotas
from fencepost.client.connection import Connection, open_connection
from fencepost.client.errors import ConnectionLostError, MisuseError, UnsupportedByBrokerError
from fencepost.protocol.codec import encode_response
from fencepost.protocol.errors import ErrorCode
from fencepost.protocol.messages import ApiVersionsResponse, MetadataRequest, MetadataResponse
from fencepost.protocol.messages.api_versions import ApiVersion
from fencepost.simulation.loop import VirtualLoop, run
from fencepost.simulation.network import SimulatedNetwork

PORT = 9
TIMEOUT_MS = 1000


class Peer(asyncio.Protocol):
    """Answers each piece that arrives with the next of these bytes."""

    def __init__(self, *answers: bytes) -> None:
        self._answers = list(answers)

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport

    def data_received(self, data: bytes) -> None:  # noqa: ARG002
        if self._answers:
            self._transport.write(self._answers.pop(0))


def talk(peer: Callable[[], Peer], ends: str = "did not answer in time") -> Connection:
    """Open a connection to this peer, and ask it something; `ends`: what becomes of that."""

    async def main(_: VirtualLoop) -> Connection:
        network = SimulatedNetwork(random.Random(3))
        await network.listen(peer, "127.0.0.1", PORT, ConnectionQuotas(most=10, most_per_ip=10))
        connection = await open_connection(network, "127.0.0.1", PORT, "test", TIMEOUT_MS)
        with pytest.raises(UnsupportedByBrokerError, match="versions 0 to 1"):
            connection.version_of(MetadataRequest, least=4)
        waiting = connection.request(MetadataRequest(topics=[]), 1)
        with pytest.raises(ConnectionLostError, match=ends):
            await waiting
        return connection

    return run(main)


def served(*, error: ErrorCode = ErrorCode.NONE, version: int = 3) -> bytes:
    keys = [ApiVersion(api_key=3, min_version=0, max_version=1)]
    return encode_response(ApiVersionsResponse(error_code=error, api_keys=keys), version, 1)


def test_what_is_served_is_asked_once_and_silence_ends_the_connection() -> None:
    assert not talk(lambda: Peer(served())).is_open


def test_an_old_broker_is_named_for_what_it_is() -> None:
    with pytest.raises(UnsupportedByBrokerError, match=r"older than Apache Kafka 2\.4"):
        talk(lambda: Peer(served(error=ErrorCode.UNSUPPORTED_VERSION, version=0)))


def test_what_is_no_broker_is_named_for_what_it_is() -> None:
    with pytest.raises(ConnectionLostError, match="no Kafka broker"):
        talk(lambda: Peer(b"HTTP/1.1 400 Bad Request\r\n\r\n"))


def test_an_answer_that_nobody_asked_for_ends_the_connection() -> None:
    with pytest.raises(ConnectionLostError, match="out of order"):
        talk(lambda: Peer(served()[:4] + b"\x00\x00\x00\x63" + served()[8:]))


def test_a_request_that_cannot_be_encoded_takes_nobodys_answer() -> None:
    async def main(_: VirtualLoop) -> None:
        network = SimulatedNetwork(random.Random(3))
        await network.listen(lambda: Peer(served()), "127.0.0.1", PORT, ConnectionQuotas(most=10, most_per_ip=10))
        connection = await open_connection(network, "127.0.0.1", PORT, "test", TIMEOUT_MS)
        with pytest.raises(MisuseError, match=r"^MetadataRequest cannot be sent: .* Correct what the call was given$"):
            connection.request(MetadataRequest(topics=[None]), 1)  # type: ignore[list-item]
        assert connection.in_flight == 0

    run(main)


def test_the_answer_to_an_earlier_request_ends_the_connection() -> None:
    """As one to a later request does: nothing that follows it could be told apart."""
    earlier = encode_response(MetadataResponse(brokers=[], topics=[]), 1, 1)
    assert not talk(lambda: Peer(served(), earlier), ends="out of order").is_open
