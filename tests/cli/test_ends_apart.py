"""Who asks for something comes before connections that have ended, of which one turn has only so many."""

from __future__ import annotations

import asyncio
import selectors
import socket
import struct
from collections.abc import Callable, Iterator
from contextlib import ExitStack, suppress
from typing import Any, cast

import pytest

from fencepost.cli.ends_apart import HAS_EPOLL, EndsApart, event_loop

pytestmark = pytest.mark.skipif(not HAS_EPOLL, reason="only Linux has epoll")
READ, WRITE = selectors.EVENT_READ, selectors.EVENT_WRITE


class Pairs:
    """Connections, each with both ends."""

    def __init__(self, held: ExitStack) -> None:
        self._held = held

    def pair(self) -> tuple[socket.socket, socket.socket]:
        ours, theirs = socket.socketpair()
        for each in (ours, theirs):
            each.setblocking(False)
            self._held.callback(each.close)
        return ours, theirs


@pytest.fixture
def pairs() -> Iterator[Pairs]:
    with ExitStack() as held:
        yield Pairs(held)


def test_those_that_have_ended_come_behind_and_a_few_at_a_time(pairs: Pairs) -> None:
    with EndsApart(most=3) as selector:
        ended, asking = [pairs.pair() for _ in range(8)], pairs.pair()
        for number, (ours, theirs) in enumerate(ended):
            selector.register(ours, READ, number)
            theirs.close()
        selector.register(asking[0], READ, "asking")
        asking[1].send(b"?")
        seen = set[object]()
        for expected in (3, 3, 2, 0):
            (first, events), *rest = selector.select(0)
            assert (first.data, events, len(rest)) == ("asking", READ, expected)
            for key, _ in rest:
                selector.unregister(key.fileobj)
                seen.add(key.data)
        assert seen == set(range(8))


def test_of_many_that_ask_each_is_told_in_the_order_in_which_they_came_and_a_few_at_a_time(pairs: Pairs) -> None:
    with EndsApart(most_ready=3) as selector:
        several = [pairs.pair() for _ in range(8)]
        for number, (ours, _) in enumerate(several):
            selector.register(ours, READ, number)
        order = [5, 1, 7, 0, 2, 6, 3, 4]
        for number in order:
            several[number][1].send(b"?")
        turns = list[list[object]]()
        for _ in range(4):
            turns.append([key.data for key, events in selector.select(0) if events == READ])
            for each in cast(list[int], turns[-1]):
                several[each][0].recv(1)
            several[order[0]][1].send(b"again")  # and comes behind the others
        assert turns == [order[:3], order[3:6], order[6:], order[:1]]


def test_those_that_have_ended_come_behind_all_that_ask(pairs: Pairs) -> None:
    with EndsApart(most=3, most_ready=2) as selector:
        for number in range(3):
            ours, theirs = pairs.pair()
            selector.register(ours, READ, "ended")
            theirs.close()
            ours, theirs = pairs.pair()
            selector.register(ours, READ, number)
            theirs.send(b"?")
        assert [key.data for key, _ in selector.select(0)] == [0, 1]
        [(asking, _)] = selector.select(0)
        assert asking.data == 2
        for each in [*selector.get_map().values()]:
            if each.data != "ended":
                selector.unregister(each.fileobj)
        assert [key.data for key, _ in selector.select(0)] == ["ended"] * 3


def test_what_was_left_out_is_not_told_where_it_is_no_longer_asked_for(pairs: Pairs) -> None:
    with EndsApart(most_ready=1) as selector:
        first, gone, changed, another, last = several = [pairs.pair() for _ in range(5)]
        for ours, theirs in several:
            selector.register(ours, READ, ours)
            theirs.send(b"?")
        assert [key.data for key, _ in selector.select(0)] == [first[0]]
        first[0].recv(1)
        descriptor = selector.unregister(gone[0]).fd
        selector.modify(changed[0], 0, changed[0])
        selector.unregister(another[0])
        selector.register(another[0], WRITE, "it writes now")
        assert [(key.data, events) for key, events in selector.select(0)] == [(last[0], READ)]
        last[0].recv(1)
        assert [(key.data, events) for key, events in selector.select(0)] == [("it writes now", WRITE)]
        selector.unregister(another[0])
        assert selector.select(0) == []
        assert descriptor not in {key.fd for key in selector.get_map().values()}


def test_an_end_is_not_told_to_who_does_not_read(pairs: Pairs) -> None:
    with EndsApart() as selector:
        ours, theirs = pairs.pair()
        theirs.shutdown(socket.SHUT_WR)
        while True:
            try:
                ours.send(bytes(100_000))
            except BlockingIOError:
                break
        selector.register(ours, WRITE)
        assert selector.select(0) == []
        selector.modify(ours, READ, "now it does")
        [(key, events)] = selector.select(0)
        assert (key.data, events) == ("now it does", READ)
        selector.modify(ours, READ | WRITE)
        assert [events for _, events in selector.select(0)] == [READ]


def connected(held: ExitStack) -> tuple[socket.socket, socket.socket]:
    with socket.create_server(("127.0.0.1", 0)) as server:
        theirs = held.enter_context(socket.create_connection(server.getsockname()))
        ours = held.enter_context(server.accept()[0])
    ours.setblocking(False)
    return ours, theirs


def nothing_came(_: socket.socket, __: socket.socket) -> None: ...


def something_came(_: socket.socket, theirs: socket.socket) -> None:
    theirs.send(b"?")


def it_has_ended(_: socket.socket, theirs: socket.socket) -> None:
    theirs.close()


def something_came_and_it_has_ended(_: socket.socket, theirs: socket.socket) -> None:
    theirs.send(b"?")
    theirs.close()


def it_was_reset(_: socket.socket, theirs: socket.socket) -> None:
    theirs.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    theirs.close()


def both_have_ended(ours: socket.socket, theirs: socket.socket) -> None:
    ours.shutdown(socket.SHUT_RDWR)
    theirs.close()


def nothing_more_can_be_sent(ours: socket.socket, _: socket.socket) -> None:
    with suppress(BlockingIOError):
        while ours.send(bytes(1_000_000)):
            pass


@pytest.mark.parametrize(
    "befalls",
    [
        nothing_came,
        something_came,
        it_has_ended,
        something_came_and_it_has_ended,
        it_was_reset,
        both_have_ended,
        nothing_more_can_be_sent,
        None,
    ],
)
@pytest.mark.parametrize("events", [READ, WRITE, READ | WRITE])
def test_what_is_ready_is_what_the_standard_selector_says(
    events: int, befalls: Callable[[socket.socket, socket.socket], None] | None
) -> None:
    """None: it was never connected."""
    with ExitStack() as held, EndsApart() as ours, selectors.EpollSelector() as standard:
        if befalls is None:
            watched = held.enter_context(socket.socket())
        else:
            watched, theirs = connected(held)
            befalls(watched, theirs)
        for selector in (ours, standard):
            selector.register(watched, events, "data")
        told, expected = ([tuple(each) for each in selector.select(0.01)] for selector in (ours, standard))
        assert told == expected


@pytest.mark.parametrize(("given", "waits"), [(None, None), (-1, 0), (0, 0), (0.0001, 0.001), (0.0021, 0.003), (5, 5)])
def test_it_never_waits_for_less_than_it_is_asked_to(given: float | None, waits: float | None) -> None:
    """Else the loop would go round until a timer is due."""
    asked = list[float | None]()

    class Waits:
        def poll(self, timeout: float | None, _: int) -> list[tuple[int, int]]:
            asked.append(timeout)
            return []

        def close(self) -> None: ...

    selector = EndsApart()
    selector.close()
    selector._epoll = cast(Any, Waits())
    assert selector.select(given) == []
    assert asked == [waits]


def test_what_is_registered_is_found_by_what_it_is(pairs: Pairs) -> None:
    with EndsApart() as selector:
        ours, theirs = pairs.pair()
        key = selector.register(ours, READ, "data")
        assert [selector.get_key(each) for each in (ours, ours.fileno())] == [key, key]
        assert len(selector.get_map()) == 1 and list(selector.get_map()) == [ours.fileno()]
        with pytest.raises(KeyError, match="registered already"):
            selector.register(ours, READ)
        with pytest.raises(KeyError):
            selector.get_key(theirs)
        theirs.close()
        with pytest.raises(KeyError, match="is not registered"):
            selector.unregister(theirs)
        ours.close()
        assert selector.unregister(ours) == key
        assert selector.select(0) == []


def test_an_event_loop_serves_connections_and_sees_them_end(pairs: Pairs) -> None:
    async def answered(ours: socket.socket) -> bytes:
        reader, writer = await asyncio.open_connection(sock=ours)
        writer.write((await reader.readexactly(1)) * 3)
        rest = await reader.read()
        writer.close()
        return rest

    async def main() -> None:
        many = [pairs.pair() for _ in range(20)]
        tasks = [asyncio.ensure_future(answered(ours)) for ours, _ in many]
        loop = asyncio.get_running_loop()
        for _, theirs in many:
            await loop.sock_sendall(theirs, b"x")
            assert await loop.sock_recv(theirs, 10) == b"xxx"
            theirs.close()
        assert await asyncio.gather(*tasks) == [b""] * 20

    with asyncio.Runner(loop_factory=event_loop) as runner:
        runner.run(main())
