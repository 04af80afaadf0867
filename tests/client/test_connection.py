"""A connection: answers in order, and clear words about whatever is not a broker that we can use."""

from __future__ import annotations

import asyncio
import random
import ssl
from collections.abc import Callable, Coroutine
from itertools import product
from types import SimpleNamespace
from typing import Any

import pytest

from fencepost.broker.network.connection_quotas import ConnectionQuotas
from fencepost.client.connection import Connection
from fencepost.client.errors import AuthenticationError, ConnectionLostError, MisuseError, UnsupportedByBrokerError
from fencepost.client.opening import open_connection
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


def test_an_answer_that_cannot_be_read_ends_the_connection_and_who_waits_for_it_is_told() -> None:
    whole = encode_response(MetadataResponse(brokers=[], topics=[]), 1, 2)
    torn = (len(whole) - 5).to_bytes(4, "big") + whole[4:-1]
    assert not talk(lambda: Peer(served(), torn), ends="cannot be read").is_open


#: First and last version of what a side speaks.
RANGES = [(first, last) for first in range(4) for last in range(first, 4)]


@pytest.mark.parametrize("ours", RANGES)
@pytest.mark.parametrize("theirs", RANGES)
def test_the_version_is_the_newest_that_both_sides_speak_and_the_caller_allows(
    ours: tuple[int, int], theirs: tuple[int, int]
) -> None:
    asked: Any = SimpleNamespace(__schema__=SimpleNamespace(api=3, versions=ours), __name__="SomeRequest")
    both = range(max(ours[0], theirs[0]), min(ours[1], theirs[1]) + 1)

    async def main() -> None:
        connection = Connection("test", TIMEOUT_MS)
        with pytest.raises(UnsupportedByBrokerError, match="does not serve Some: use a newer one"):
            connection.version_of(asked)
        connection.ranges[3] = theirs
        for most, least in product((None, *range(4)), range(4)):
            fit = [version for version in both if version >= least and (most is None or version <= most)]
            if fit:
                assert connection.version_of(asked, most, least) == fit[-1]
            else:
                ours_to = ours[1] if most is None else min(ours[1], most)
                with pytest.raises(UnsupportedByBrokerError) as raised:
                    connection.version_of(asked, most, least)
                side = "client" if theirs[0] > ours_to else "broker"
                assert str(raised.value).endswith(f": use a newer {side}"), "it is the older one that holds up"

    asyncio.run(main())


def conversation(scenario: Callable[[Connection], Coroutine[Any, Any, None]], *answers: bytes) -> None:
    """With a peer that gives these answers after that to ApiVersions."""

    async def main(_: VirtualLoop) -> None:
        network = SimulatedNetwork(random.Random(3))
        quotas = ConnectionQuotas(most=10, most_per_ip=10)
        await network.listen(lambda: Peer(served(), *answers), "127.0.0.1", PORT, quotas)
        await scenario(await open_connection(network, "127.0.0.1", PORT, "test", TIMEOUT_MS))

    run(main)


def test_after_the_last_number_of_requests_come_those_from_0_on() -> None:
    """A correlation id is an int32, and is compared with what the broker sends back."""

    async def scenario(connection: Connection) -> None:
        connection._correlation_id = 2**31 - 2
        for _ in range(2):
            assert (await connection.request(MetadataRequest(topics=[]), 1)).brokers == []

    nothing = MetadataResponse(brokers=[], topics=[])
    conversation(scenario, *(encode_response(nothing, 1, number) for number in (2**31 - 1, 0)))


@pytest.mark.parametrize("patience", [(5000, 700), (700, 5000)])
def test_a_connection_ends_when_any_answer_is_late_whichever_request_it_is_to(patience: tuple[int, int]) -> None:
    """One that may wait for records may take longer than what is asked behind it; it is looked now and then."""

    async def scenario(connection: Connection) -> None:
        loop = asyncio.get_running_loop()
        begun = loop.time()
        waiting = [connection.request(MetadataRequest(topics=[]), 1, timeout_ms) for timeout_ms in patience]
        for each in waiting:
            with pytest.raises(ConnectionLostError, match="did not answer in time"):
                await each
        assert 0.7 <= loop.time() - begun <= TIMEOUT_MS / 1000

    conversation(scenario)


def test_what_nobody_answers_is_told_when_the_system_has_it() -> None:
    async def scenario(connection: Connection) -> None:
        connection.pause_writing()
        told = [connection.request(MetadataRequest(topics=[]), 1, answered=False) for _ in range(2)]
        await asyncio.sleep(0.1)
        assert not any(each.done() for each in told) and connection.in_flight == 2
        connection.resume_writing()
        assert await asyncio.gather(*told) == [None, None] and connection.in_flight == 0

    conversation(scenario)


def test_what_ended_a_connection_before_anything_was_asked_is_told_to_who_asks_first() -> None:
    """As where one of several addresses of a host was connected to, and that one wants a certificate."""

    async def scenario() -> None:
        connection = Connection("client", 1000)
        connection.connection_made(asyncio.Transport())
        connection.address = "a:1"
        alert = ssl.SSLError(1, "an alert")
        alert.reason = "TLSV13_ALERT_CERTIFICATE_REQUIRED"
        connection.connection_lost(alert)
        with pytest.raises(AuthenticationError, match="wants a certificate of this client"):
            await connection.ask_what_is_served()

    asyncio.run(scenario())
