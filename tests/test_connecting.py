"""A host of several addresses is reached by the first one that answers, whatever becomes of the others."""

from __future__ import annotations

import asyncio
import socket
import ssl
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from tests.ports import free_port

from fencepost.connecting import addresses_of, first_connected
from fencepost.runtime import SocketNetwork, begun


@contextmanager
def a_silent_address() -> Iterator[tuple[str, int]]:
    """An address where connections are neither taken nor refused: as many wait there as may."""
    with socket.socket() as full:
        full.bind(("127.0.0.2", 0))
        full.listen(0)
        waiting = [socket.socket() for _ in range(4)]
        for each in waiting:
            each.setblocking(False)
            each.connect_ex(full.getsockname())
        yield full.getsockname()
        for each in waiting:
            each.close()


def known_as(*addresses: str) -> Any:
    async def getaddrinfo(_: str, port: int, **__: Any) -> list[Any]:
        return [(socket.AF_INET, socket.SOCK_STREAM, 6, "", (address, port)) for address in addresses]

    return getaddrinfo


def test_an_address_that_is_silent_or_refuses_holds_nobody_up(monkeypatch: pytest.MonkeyPatch) -> None:
    async def scenario(port: int) -> None:
        server = await asyncio.start_server(lambda *_: None, "127.0.0.1", port)
        loop = asyncio.get_running_loop()
        for addresses in (("127.0.0.2", "127.0.0.3", "127.0.0.1"), ("127.0.0.3", "127.0.0.1"), ("127.0.0.1",)):
            monkeypatch.setattr(loop, "getaddrinfo", known_as(*addresses), raising=False)
            async with asyncio.timeout(60):
                transport, _ = await SocketNetwork().connect(asyncio.Protocol, "several.test", port)
            assert transport.get_extra_info("peername") == ("127.0.0.1", port)
            transport.close()
        monkeypatch.setattr(loop, "getaddrinfo", known_as("127.0.0.3", "127.0.0.4"), raising=False)
        with pytest.raises(OSError, match=r"127\.0\.0\.3.*127\.0\.0\.4"):
            await SocketNetwork().connect(asyncio.Protocol, "several.test", port)
        server.close()

    with a_silent_address() as (_, port):
        asyncio.run(scenario(port))


class Made(asyncio.Transport):
    aborted = False

    def abort(self) -> None:
        self.aborted = True


@pytest.mark.parametrize("seconds", [0.0, 0.01], ids=["at once", "later"])
def test_what_connects_beside_the_first_is_closed(seconds: float) -> None:
    made: list[Made] = []

    async def attempt() -> tuple[asyncio.Transport, str]:
        try:
            await asyncio.sleep(1000 if not made else seconds)
        except asyncio.CancelledError:
            pass  # it had just been made
        made.append(Made())
        return made[-1], "protocol"

    async def slow_at_first() -> tuple[asyncio.Transport, str]:
        await asyncio.sleep(0.3)
        made.append(Made())
        return made[-1], "protocol"

    async def scenario() -> None:
        won, _ = await first_connected([attempt, slow_at_first])
        for _ in range(5):
            await asyncio.sleep(seconds)
        assert won is made[0]
        assert [each.aborted for each in made] == [False, True]

    asyncio.run(scenario())


def test_who_is_cancelled_leaves_nothing_behind() -> None:
    ended: list[str] = []

    async def attempt() -> tuple[asyncio.Transport, str]:
        try:
            await asyncio.sleep(1000)
        finally:
            ended.append("ended")
        raise AssertionError

    async def scenario() -> None:
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.05):
                await first_connected([attempt, attempt])
        await asyncio.sleep(0)
        assert ended == ["ended"]

    asyncio.run(scenario())


@pytest.mark.parametrize("ends", ["is cancelled", "fails"])
def test_a_connection_whose_beginning_is_cut_short_is_closed(ends: str) -> None:
    async def begin(_: asyncio.Protocol) -> None:
        await asyncio.sleep(1000 if ends == "is cancelled" else 0)
        raise ConnectionError("this is nothing that we know")

    async def scenario() -> None:
        made = Made()
        beginning = asyncio.ensure_future(begun(made, asyncio.Protocol(), begin))
        await asyncio.sleep(0)
        if ends == "is cancelled":
            beginning.cancel()
        with pytest.raises((asyncio.CancelledError, ConnectionError)):
            await beginning
        assert made.aborted

    asyncio.run(scenario())


def test_who_answers_and_speaks_no_tls_is_told_of_rather_than_who_does_not_answer() -> None:
    async def refused() -> tuple[asyncio.Transport, str]:
        raise ConnectionRefusedError("refused")

    async def no_tls() -> tuple[asyncio.Transport, str]:
        raise ssl.SSLError(1, "wrong version number")

    with pytest.raises(ssl.SSLError):
        asyncio.run(first_connected([refused, no_tls, refused]))


@pytest.mark.parametrize("host", ["127.0.0.1", "::1"])
def test_an_address_is_not_looked_up(host: str, monkeypatch: pytest.MonkeyPatch) -> None:
    async def scenario() -> None:
        monkeypatch.setattr(asyncio.get_running_loop(), "getaddrinfo", None, raising=False)
        assert await addresses_of(host, 1) == [host]

    asyncio.run(scenario())


def test_an_address_that_is_listed_twice_is_tried_once(monkeypatch: pytest.MonkeyPatch) -> None:
    async def scenario() -> None:
        looks_up = known_as("127.0.0.1", "127.0.0.2", "127.0.0.1")
        monkeypatch.setattr(asyncio.get_running_loop(), "getaddrinfo", looks_up, raising=False)
        assert await addresses_of("several.test", 1) == ["127.0.0.1", "127.0.0.2"]

    asyncio.run(scenario())


@pytest.mark.parametrize("tls", [None, ssl.create_default_context()], ids=["plain", "TLS"])
def test_a_certificate_must_be_for_the_name_and_not_for_an_address_of_it(
    tls: ssl.SSLContext | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[Any] = []

    async def create_connection(_: Any, host: str, port: int, **how: Any) -> Any:
        asked.append((host, port, how))
        return Made(), "protocol"

    async def scenario() -> None:
        loop = asyncio.get_running_loop()
        monkeypatch.setattr(loop, "getaddrinfo", known_as("127.0.0.2", "127.0.0.1"), raising=False)
        monkeypatch.setattr(loop, "create_connection", create_connection, raising=False)
        await SocketNetwork().connect(asyncio.Protocol, "several.test", 9, tls)

    asyncio.run(scenario())
    assert asked[0] == ("127.0.0.2", 9, {"ssl": tls, "server_hostname": "several.test" if tls else None})


@pytest.mark.parametrize("spoils", ["closes", "is silent"])
def test_an_address_at_which_nothing_can_be_begun_does_not_stand_for_the_host(
    spoils: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    made: list[asyncio.BaseTransport] = []

    class Noting(asyncio.Protocol):
        def connection_made(self, transport: asyncio.BaseTransport) -> None:
            made.append(transport)
            self.peer = transport.get_extra_info("peername")[0]

    async def begin(protocol: Noting) -> None:
        if protocol.peer != "127.0.0.1":
            await asyncio.sleep(1000 if spoils == "is silent" else 0)
            raise ConnectionError("this is nothing that we know")

    async def scenario() -> None:
        loop = asyncio.get_running_loop()
        hosts = ("127.0.0.1", "127.0.0.2", "127.0.0.3")
        port = free_port(*hosts)
        servers = [await asyncio.start_server(lambda *_: None, host, port) for host in hosts]
        monkeypatch.setattr(loop, "getaddrinfo", known_as("127.0.0.2", "127.0.0.3", "127.0.0.1"), raising=False)
        async with asyncio.timeout(60):
            won, protocol = await SocketNetwork().connect(Noting, "several.test", port, None, begin)
        assert protocol.peer == "127.0.0.1"
        await asyncio.sleep(0.01)
        assert [each.is_closing() for each in made if each is not won] == [True, True]
        assert not won.is_closing()
        won.abort()
        if spoils == "closes":
            monkeypatch.setattr(loop, "getaddrinfo", known_as("127.0.0.4", "127.0.0.3", "127.0.0.2"), raising=False)
            with pytest.raises(ConnectionError, match="nothing that we know"):
                await SocketNetwork().connect(Noting, "several.test", port, None, begin)
        for server in servers:
            server.close()

    asyncio.run(scenario())
