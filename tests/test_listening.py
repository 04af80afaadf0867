"""Listening sockets: who was accepted when they were closed is served by nobody."""

from __future__ import annotations

import asyncio
import errno
import socket
from collections.abc import Callable, Coroutine

import pytest

from fencepost.listening import SocketListener, bound_sockets


class Everybody:
    """Admits whoever comes, so many of them."""

    def __init__(self, room: Callable[[], int] = lambda: 1000) -> None:
        self.room = room
        self.count = 0

    def wait_seconds(self, now: float) -> float:  # noqa: ARG002
        return 0.0

    def accepted(self, now: float) -> None:  # noqa: ARG002
        self.count += 1


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


def resolver(host: str) -> Callable[..., Coroutine[object, object, list[tuple[object, ...]]]]:
    """What a resolver says that knows these addresses of any host."""

    async def answer(_: object, port: int, **__: object) -> list[tuple[object, ...]]:
        found: list[tuple[object, ...]] = []
        for address in host.split():
            family = socket.AF_INET6 if ":" in address else socket.AF_INET
            rest = (0, 0) if ":" in address else ()
            found.append((family, socket.SOCK_STREAM, 6, "", (address, port, *rest)))
        return found

    return answer


@pytest.mark.parametrize(
    "addresses", ["127.0.0.1 127.0.0.2", "127.0.0.1 ::1", "::1 127.0.0.1", ":: 0.0.0.0", "0.0.0.0 ::"]
)
def test_every_address_of_a_host_has_the_port_that_is_told(monkeypatch: pytest.MonkeyPatch, addresses: str) -> None:
    """Where localhost is two addresses, clients try them in any order, and know one port."""

    async def main() -> None:
        monkeypatch.setattr(asyncio.get_running_loop(), "getaddrinfo", resolver(addresses))
        for _ in range(5):
            found = await bound_sockets("localhost", 0)
            assert len(found) == 2
            assert len({each.getsockname()[1] for each in found}) == 1
            for each in found:
                each.close()

    if "::" in addresses and not socket.has_ipv6:
        pytest.skip("there is no IPv6")
    asyncio.run(main())


def test_a_port_that_is_taken_at_another_address_is_not_told(monkeypatch: pytest.MonkeyPatch) -> None:
    """Any free port is asked for; one that was named is refused."""
    made: list[socket.socket] = []
    bind = socket.socket.bind

    def taken(self: socket.socket, address: tuple[str, int]) -> None:
        made.append(self)
        if len(made) in (2, 4):
            raise OSError(errno.EADDRINUSE, "Address already in use")
        bind(self, address)

    async def main() -> None:
        monkeypatch.setattr(asyncio.get_running_loop(), "getaddrinfo", resolver("127.0.0.1 127.0.0.2"))
        monkeypatch.setattr(socket.socket, "bind", taken)
        found = await bound_sockets("localhost", 0)
        assert (len(made), len({each.getsockname()[1] for each in found})) == (6, 1)
        assert all(each.fileno() == -1 for each in made[:4])
        port = found[0].getsockname()[1]
        for each in found:
            each.close()
        made.clear()
        with pytest.raises(OSError, match="in use"):
            await bound_sockets("localhost", port)
        assert len(made) == 2

    asyncio.run(main())


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


async def some_turns() -> None:
    for _ in range(20):
        await asyncio.sleep(0)


def test_whoever_is_beginning_takes_the_room_of_a_connection() -> None:
    async def main() -> None:
        made: list[Served] = []
        admission = Everybody(room=lambda: 1 - len(made))
        listener = SocketListener(lambda: Served(made), await bound_sockets("127.0.0.1", 0), admission)
        clients = [socket.create_connection(("127.0.0.1", listener.port)) for _ in range(3)]
        await some_turns()
        assert (len(made), admission.count) == (1, 1)
        listener.close()
        for each in clients:
            each.close()

    asyncio.run(main())


@pytest.mark.parametrize("pause", ["is over", "goes on"])
def test_where_descriptors_are_used_up_nobody_is_accepted_for_a_while(
    pause: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """However many connections end meanwhile."""
    tried: list[socket.socket] = []
    accept = socket.socket.accept

    def used_up_at_first(self: socket.socket) -> object:
        tried.append(self)
        if len(tried) == 1:
            raise OSError(errno.EMFILE, "Too many open files")
        return accept(self)

    monkeypatch.setattr(socket.socket, "accept", used_up_at_first)
    monkeypatch.setattr("fencepost.listening._PAUSE_SECONDS", 0.01 if pause == "is over" else 1000)

    async def main() -> None:
        made: list[Served] = []
        admission = Everybody()
        listener = SocketListener(lambda: Served(made), await bound_sockets("127.0.0.1", 0), admission)
        client = socket.create_connection(("127.0.0.1", listener.port))
        await some_turns()
        listener.accept_again()
        if pause == "is over":
            async with asyncio.timeout(60):
                while not made:  # noqa: ASYNC110 - it is known by what is made
                    await asyncio.sleep(0.01)
            assert admission.count == 1
        else:
            await some_turns()
            assert (made, len(tried)) == ([], 1)
        listener.close()
        client.close()

    asyncio.run(main())


def test_the_last_descriptors_are_for_files_and_who_would_take_one_is_not_counted(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("fencepost.listening._is_among_the_last", lambda _: True)

    async def main() -> None:
        made: list[Served] = []
        admission = Everybody()
        listener = SocketListener(lambda: Served(made), await bound_sockets("127.0.0.1", 0), admission)
        client = socket.create_connection(("127.0.0.1", listener.port))
        client.settimeout(5)
        assert await asyncio.to_thread(client.recv, 10) == b""
        assert (made, admission.count) == ([], 0)
        listener.close()
        client.close()

    asyncio.run(main())
