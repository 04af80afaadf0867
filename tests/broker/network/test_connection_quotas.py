"""How fast connections may come: as Apache Kafka counts, over ten seconds, and nobody is refused for it."""

from __future__ import annotations

import asyncio
import logging
import socket
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.broker.wire import HELLO, Client, serving, wait_until

from fencepost.broker import Broker, running_broker
from fencepost.broker.metadata.settings import Settings
from fencepost.broker.network.connection import Connection
from fencepost.broker.network.connection_quotas import ConnectionQuotas, ConnectionRate
from fencepost.protocol.errors import ErrorCode
from fencepost.simulation.loop import VirtualLoop, run
from fencepost.simulation.network import SimulatedNetwork


@given(st.integers(1, 20), st.lists(st.sampled_from([0.0, 0.0, 0.0, 0.01, 0.4, 3.0, 30.0]), max_size=400))
def test_no_more_than_so_many_a_second_over_ten_seconds(most: int, gaps: list[float]) -> None:
    rate, now, accepted = ConnectionRate(most), 1000.0, []
    for gap in gaps:
        now += gap
        wait = rate.wait_seconds(now)
        assert 0 <= wait <= 1 and wait == pytest.approx(rate.wait_seconds(now)), "to ask changes nothing"
        now += wait
        assert rate.wait_seconds(now) == pytest.approx(0)
        rate.accepted(now)
        accepted.append(now)
        recent = [at for at in accepted if now - at < 10]
        assert len(recent) <= 11 * most + 1
        if len(recent) <= 9 * most and len(accepted) == len(recent):
            assert wait == 0


def test_the_first_may_come_at_once_and_the_others_steadily() -> None:
    rate, now, waits = ConnectionRate(20), 5.0, []
    for _ in range(3000):
        waits.append(rate.wait_seconds(now))
        now += waits[-1]
        rate.accepted(now)
    assert waits[:200] == [0] * 200
    assert 0.8 * 20 <= 2800 / sum(waits) <= 20


def test_what_came_eleven_seconds_ago_is_forgotten() -> None:
    """As in Apache Kafka, which counts in eleven windows of a second."""
    for after, waits in ((10.9, True), (11.0, False)):
        rate = ConnectionRate(2)
        for _ in range(25):
            rate.accepted(1000.0)
        assert (rate.wait_seconds(1000.0 + after) > 0) is waits


def test_a_rate_of_none_lets_one_in_every_second() -> None:
    """A second is the longest that anybody waits."""
    rate = ConnectionRate(0)
    for now in (0.0, 1.0, 50.0):
        assert rate.wait_seconds(now) == 1
        assert rate.wait_seconds(now + 1) == 0
        rate.accepted(now + 1)


def test_everybody_is_accepted_in_the_end() -> None:
    """Thirty at once, of which ten may come at once and then one a second."""
    times: list[float] = []

    async def scenario(loop: VirtualLoop) -> None:
        network = SimulatedNetwork(Random(1))
        quotas = ConnectionQuotas(100, 100, rate=1)
        listener = await network.listen(asyncio.Protocol, "h", 5, quotas)

        async def connect() -> None:
            await network.connect(asyncio.Protocol, "h", 5)
            times.append(loop.time())

        await asyncio.gather(*(connect() for _ in range(30)))
        listener.close()

    run(scenario)
    times.sort()
    assert times[9] - times[0] < 0.1
    for at, since in zip(times[10:], times[9:], strict=False):
        assert 0.9 <= at - since <= 1.1


def test_whom_a_socket_does_not_accept_yet_waits_and_is_answered(caplog: pytest.LogCaptureFixture) -> None:
    with serving(max_connection_creation_rate=2) as broker, caplog.at_level(logging.WARNING):
        clients = [Client(broker) for _ in range(23)]
        for each in clients:
            each.send(HELLO)
        wait_until("some wait", lambda: "max.connection.creation.rate" in caplog.text)
        for each in clients:
            assert each.receive().error_code == ErrorCode.NONE
            each.close()


def test_nobody_waits_unless_that_is_set() -> None:
    assert Settings().number("max.connection.creation.rate") == 2**31 - 1
    with serving(None) as broker:
        for _ in range(100):
            client = Client(broker)
            assert client.ask(HELLO).error_code == ErrorCode.NONE
            client.close()


def test_a_node_that_stops_keeps_nobody_waiting() -> None:
    with serving(max_connection_creation_rate=0) as broker:
        waiting = Client(broker)
        waiting.send(HELLO)
        assert waiting.silent_for(0.1)
    assert waiting.is_closed()


@pytest.mark.parametrize("most", [0, 1, 3])
def test_an_address_has_so_many_places_and_gets_back_what_it_gives_back(most: int) -> None:
    quotas = ConnectionQuotas(100, most, "10.0.0.2:2")
    for _ in range(2):
        for address, places in (("10.0.0.1", most), ("10.0.0.2", 2)):
            assert [quotas.opened(address) for _ in range(places + 2)] == [True] * places + [False] * 2
        assert quotas.room() == 100 - most - 2 - 4
        for address, places in (("10.0.0.1", most), ("10.0.0.2", 2)):
            for _ in range(places + 2):
                quotas.closed(address)
        assert quotas.room() == 100


@pytest.mark.parametrize("spelled", ["10.0.0.7", "::ffff:10.0.0.7", "::FFFF:a00:7"])
def test_an_address_of_ipv4_may_be_spelled_as_one_of_ipv6(spelled: str) -> None:
    """To Apache Kafka both are the same."""
    quotas = ConnectionQuotas(10, 0, f"{spelled}:1")
    assert [quotas.opened("10.0.0.7") for _ in range(2)] == [True, False]


def served(broker: Broker, source: str = "", to: str | None = None) -> Client | None:
    """A connection from this address, or None where it is refused."""
    client = Client(broker, source=source, to=to)
    try:
        assert client.ask(HELLO).error_code == ErrorCode.NONE
    except (EOFError, ConnectionError):
        client.close()
        return None
    return client


def test_connections_are_counted_for_each_address_by_itself() -> None:
    with serving(max_connections_per_ip=2, max_connections_per_ip_overrides="127.0.0.3:1") as broker:
        held = [
            [served(broker, source) for _ in range(3)]
            for source in ("127.0.0.1", "127.0.0.2", "127.0.0.3", "127.0.0.4")
        ]
        assert [sum(each is not None for each in found) for found in held] == [2, 2, 1, 2]
        first = held[1][0]
        assert first is not None
        first.close()
        wait_until("one has ended", lambda: len(broker.node.connections) == 6)
        held.append([served(broker, "127.0.0.1"), served(broker, "127.0.0.2")])
        assert [each is not None for each in held[-1]] == [False, True]
        for each in (each for found in held for each in found if each is not None):
            each.close()


@pytest.mark.skipif(not socket.has_ipv6, reason="there is no IPv6")
def test_who_comes_to_an_address_of_ipv4_by_one_of_ipv6_is_counted_with_the_others() -> None:
    with serving(max_connections_per_ip=2) as broker:
        held = [served(broker, to=to) for to in ("127.0.0.1", "::ffff:127.0.0.1", "::ffff:127.0.0.1", "127.0.0.1")]
        assert [each is not None for each in held] == [True, True, False, False]
        for each in held:
            if each is not None:
                each.close()


@pytest.mark.skipif(not socket.has_ipv6, reason="there is no IPv6")
@pytest.mark.parametrize("override", ["::1:1", "0:0:0:0:0:0:0:1:1"])
def test_connections_of_ipv6_are_counted_too(override: str) -> None:
    settings = {"max.connections.per.ip": "5", "max.connections.per.ip.overrides": override}
    with running_broker(listen="[::1]:0", settings=settings) as broker:
        held = [served(broker) for _ in range(2)]
        assert [each is not None for each in held] == [True, False]
        for each in held:
            if each is not None:
                each.close()


@pytest.mark.parametrize("address", ["127.0.0.1", "[::1]"])
def test_the_system_looks_whether_a_client_that_is_silent_is_still_there(address: str) -> None:
    """As in Apache Kafka: else one whose machine is gone holds its connection for ever where nothing else ends it."""
    if address != "127.0.0.1" and not socket.has_ipv6:
        pytest.skip("there is no IPv6")
    with running_broker(listen=f"{address}:0", settings={"connections.max.idle.ms": "-1"}) as broker:
        client = served(broker)
        assert client is not None
        (connection,) = broker.node.connections
        assert isinstance(connection, Connection) and connection._transport is not None
        ours = connection._transport.get_extra_info("socket")
        assert ours.getsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE) == 1
        client.close()


@pytest.mark.parametrize("spelled", ["fe80::a:1", "FE80:0:0:0:0:0:A:1", "fe80:0000::000a:0001"])
def test_an_address_may_be_spelled_in_every_way(spelled: str) -> None:
    quotas = ConnectionQuotas(10, 0, f"10.0.0.7:2,{spelled}:1")
    came = ["fe80::a:1", "fe80::a:1", "10.0.0.7", "::1"]
    assert [quotas.opened(address) for address in came] == [True, False, True, False]
