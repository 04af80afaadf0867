"""A name of several addresses, of which some are no broker: the one that is one is found, whatever others answer."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest
from tests.broker.wire import SETTINGS
from tests.ports import free_port

from fencepost.broker import Broker
from fencepost.client import Admin, ConnectionLostError
from fencepost.client.opening import open_connection
from fencepost.runtime import SocketNetwork


async def is_a_web_server(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    writer.write(b"HTTP/1.1 400 Bad Request\r\nConnection: close\r\n\r\n")
    await writer.drain()
    writer.close()


async def closes(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    writer.close()


async def says_nothing(reader: asyncio.StreamReader, _: asyncio.StreamWriter) -> None:
    await reader.read(-1)


async def speaks_tls(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    writer.write(b"\x15\x03\x03\x00\x02\x02\x46")
    await writer.drain()
    writer.close()


FOREIGN = (is_a_web_server, closes, says_nothing, speaks_tls)


def known_as(name: str, *addresses: str) -> Any:
    looks_up = socket.getaddrinfo

    def getaddrinfo(host: Any, port: Any, *how: Any, **more: Any) -> Any:
        if host == name:
            return [(socket.AF_INET, socket.SOCK_STREAM, 6, "", (address, port)) for address in addresses]
        return looks_up(host, port, *how, **more)

    return getaddrinfo


@pytest.mark.parametrize("foreign", FOREIGN)
def test_an_address_that_is_no_broker_does_not_stand_for_its_name(
    foreign: Callable[[Any, Any], Awaitable[None]], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def scenario() -> None:
        port = free_port("127.0.0.1", "127.0.0.2")
        async with Broker(data=tmp_path, settings=SETTINGS, listen=f"127.0.0.1:{port}") as broker:
            other = await asyncio.start_server(foreign, "127.0.0.2", port)
            monkeypatch.setattr(socket, "getaddrinfo", known_as("several.test", "127.0.0.2", "127.0.0.1"))
            for _ in range(2):  # by the same name each time
                async with (
                    asyncio.timeout(30),
                    Admin(f"several.test:{broker.port}", request_timeout_ms=120_000) as admin,
                ):
                    assert (await admin.describe_cluster()).controller == 0
            other.close()

    asyncio.run(scenario())


@pytest.mark.parametrize("foreign", [each for each in FOREIGN if each is not speaks_tls])  # that is told at once
def test_a_server_that_is_no_broker_leaves_the_other_bootstrap_servers_their_turn(
    foreign: Callable[[Any, Any], Awaitable[None]], tmp_path: Path
) -> None:
    async def scenario() -> None:
        async with Broker(data=tmp_path, settings=SETTINGS) as broker:
            other = await asyncio.start_server(foreign, "127.0.0.2", 0)
            port = other.sockets[0].getsockname()[1]
            async with (
                asyncio.timeout(30),
                Admin(f"127.0.0.2:{port},127.0.0.1:{broker.port}", request_timeout_ms=120_000) as admin,
            ):
                assert (await admin.describe_cluster()).controller == 0
            other.close()

    asyncio.run(scenario())


def test_who_is_no_broker_is_told_of_rather_than_who_does_not_answer(monkeypatch: pytest.MonkeyPatch) -> None:
    async def scenario() -> str:
        other = await asyncio.start_server(is_a_web_server, "127.0.0.2", 0)
        port = other.sockets[0].getsockname()[1]
        monkeypatch.setattr(socket, "getaddrinfo", known_as("several.test", "127.0.0.3", "127.0.0.2"))
        with pytest.raises(ConnectionLostError) as told:
            await open_connection(SocketNetwork(), "several.test", port, "client", 30_000)
        other.close()
        return str(told.value)

    assert "this is no Kafka broker" in asyncio.run(scenario())
