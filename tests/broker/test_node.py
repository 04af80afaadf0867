"""Where clients find a node."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest
from tests.broker.wire import SETTINGS, Client

from fencepost.broker import Broker
from fencepost.broker.network.limits import NODE_REQUESTS, Reservation
from fencepost.broker.node import Endpoint
from fencepost.protocol.messages import DescribeClusterRequest, FindCoordinatorRequest, MetadataRequest


@pytest.mark.parametrize(
    ("text", "host", "port", "said"),
    [
        ("127.0.0.1:9092", "127.0.0.1", 9092, "127.0.0.1:9092"),
        ("node.example:0", "node.example", 0, "node.example:0"),
        ("[::1]:65535", "::1", 65535, "[::1]:65535"),
        ("::1:9092", "::1", 9092, "[::1]:9092"),
    ],
)
def test_what_is_given_is_understood_and_said_again(text: str, host: str, port: int, said: str) -> None:
    endpoint = Endpoint.of(text)
    assert (endpoint.host, endpoint.port, str(endpoint)) == (host, port, said)
    assert Endpoint.of(said) == endpoint


@pytest.mark.parametrize(
    "text", ["", ":", "9092", "host", "host:", ":9092", "[]:9092", "host:-1", "host:65536", "host:\u0661"]
)
def test_what_is_no_endpoint_is_refused_with_what_to_give(text: str) -> None:
    with pytest.raises(ValueError, match=r"give a host and a port between 0 and 65535, as in 127\.0\.0\.1:9092"):
        Endpoint.of(text)


@pytest.mark.parametrize("advertised", ["node.example:19092", "node.example:0"])
def test_clients_are_told_what_is_advertised_by_every_request_that_names_a_broker(
    tmp_path: Path, advertised: str
) -> None:
    async def main() -> None:
        async with Broker(data=tmp_path, settings=SETTINGS, advertised=advertised) as broker:
            expected = ("node.example", 19092 if "1" in advertised else broker.port)
            client = await asyncio.to_thread(Client, broker)
            asked = await asyncio.to_thread(client.ask, MetadataRequest(topics=[]))
            told = [(each.host, each.port) for each in asked.brokers]
            cluster = await asyncio.to_thread(
                client.ask, DescribeClusterRequest(include_cluster_authorized_operations=False)
            )
            told += [(each.host, each.port) for each in cluster.brokers]
            found = await asyncio.to_thread(client.ask, FindCoordinatorRequest(coordinator_keys=["g"]))
            told += [(each.host, each.port) for each in found.coordinators]
            assert told == [expected] * 3
            await asyncio.to_thread(client.close)

    asyncio.run(main())


@pytest.mark.parametrize(("setting", "least"), [(50_000_000, 50_000_000), (-1, NODE_REQUESTS)])
def test_requests_take_together_what_queued_max_request_bytes_allows(tmp_path: Path, setting: int, least: int) -> None:
    async def main() -> None:
        async with Broker(data=tmp_path, settings={**SETTINGS, "queued.max.request.bytes": setting}) as broker:
            first, second = (Reservation(broker.node.request_memory, lambda: None) for _ in range(2))
            assert first.grow(least)
            assert not second.grow(1)

    asyncio.run(main())
