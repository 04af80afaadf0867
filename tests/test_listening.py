"""Listening sockets: who was accepted when they were closed is served by nobody."""

from __future__ import annotations

import asyncio
import socket

import pytest

from fencepost.listening import SocketListener, bound_sockets


class Everybody:
    """Admits whoever comes."""

    def room(self) -> int:
        return 1000

    def wait_seconds(self, now: float) -> float:  # noqa: ARG002
        return 0.0

    def accepted(self, now: float) -> None:
        pass


class Served(asyncio.Protocol):
    """Notes what happens to it."""

    def __init__(self, all_of_them: list[Served]) -> None:
        all_of_them.append(self)
        self.transport: asyncio.BaseTransport | None = None
        self.was_given: list[bytes] = []
        self.is_lost = False

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = transport

    def data_received(self, data: bytes) -> None:
        self.was_given.append(data)

    def connection_lost(self, exc: Exception | None) -> None:  # noqa: ARG002
        self.is_lost = True


@pytest.mark.parametrize("turns", range(8))
def test_nobody_is_served_who_began_when_it_was_closed(turns: int) -> None:
    async def main() -> None:
        made: list[Served] = []
        listener = SocketListener(lambda: Served(made), await bound_sockets("127.0.0.1", 0), Everybody())
        client = socket.create_connection(("127.0.0.1", listener.port))
        client.sendall(b"a request")
        for _ in range(turns):
            await asyncio.sleep(0)
        listener.close()
        known = [each for each in made if each.transport is not None]
        before = [list(each.was_given) for each in known]
        for each in known:  # as their owner does
            assert isinstance(each.transport, asyncio.Transport)
            each.transport.abort()
        client.settimeout(5)
        try:
            assert await asyncio.to_thread(client.recv, 10) == b""
        except ConnectionResetError:
            pass
        client.close()
        for _ in range(5):
            await asyncio.sleep(0)
        assert all(each.is_lost or each.transport is None for each in made)
        assert [each.was_given for each in known] == before
        assert all(not each.was_given for each in made if each not in known)
        assert not listener._beginning

    asyncio.run(main())
