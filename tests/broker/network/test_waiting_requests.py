"""Requests of one connection that wait: how many are taken, and which go on without their client."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest
from tests.broker.wire import HELLO, Client, clients, connections_of, on_the_loop, wait_until

from fencepost.broker.network import connection, shares
from fencepost.broker.network.registry import SERVED, Reply, independent
from fencepost.broker.network.request_context import RequestContext
from fencepost.broker.node import Node
from fencepost.protocol.messages import FindCoordinatorRequest, FindCoordinatorResponse

client = clients()
KEY = 10


class Waiting:
    """Requests of one kind: none is done before it may be."""

    def __init__(self, client: Client, patch: pytest.MonkeyPatch) -> None:
        self.broker = client.broker
        self.may_be_done = on_the_loop(self.broker, asyncio.Event)
        self.taken = self.done = self.ended = 0
        self._patch = patch
        self.serve(in_turn=False)

    def serve(self, *, in_turn: bool) -> None:
        """`in_turn`: as what writes."""
        self._patch.setitem(SERVED, KEY, replace(SERVED[KEY], handler=self._handle, in_turn=in_turn))

    async def _handle(self, _: Any, __: RequestContext, ___: Node) -> Reply:
        self.taken += 1
        try:
            await self.may_be_done.wait()
            self.done += 1
        finally:
            self.ended += 1
        return independent(FindCoordinatorResponse(coordinators=[]))

    def go_on(self) -> None:
        on_the_loop(self.broker, self.may_be_done.set)


@pytest.fixture
def waiting(client: Client, monkeypatch: pytest.MonkeyPatch) -> Iterator[Waiting]:
    found = Waiting(client, monkeypatch)
    yield found
    found.go_on()


@pytest.mark.parametrize(("bound", "most", "size"), [("MOST_WAITING", 3, 10), ("MOST_HELD", 1000, 400)])
def test_no_more_are_taken_than_may_wait(
    client: Client, waiting: Waiting, monkeypatch: pytest.MonkeyPatch, bound: str, most: int, size: int
) -> None:
    """The rest stays with the client, however many there are and however large they are."""
    monkeypatch.setattr(connection, bound, most)
    other = Client(client.broker)
    other.send(*[FindCoordinatorRequest(coordinator_keys=["k" * size])] * 10)
    wait_until("as many are taken as may be", lambda: waiting.taken >= 3)
    assert other.silent_for(0.2)
    assert waiting.taken == 3
    waiting.go_on()
    for _ in range(10):
        other.receive()
    other.close()


def test_who_stood_in_line_takes_nothing_before_what_has_its_turn_is_done(
    client: Client, waiting: Waiting, monkeypatch: pytest.MonkeyPatch
) -> None:
    waiting.serve(in_turn=True)
    other = Client(client.broker)
    other.ask(HELLO)
    monkeypatch.setattr(shares, "TURN_REQUESTS", 1)
    on_the_loop(client.broker, lambda: setattr(client.broker.node.shares, "_turn_left", 1))
    other.send(*[FindCoordinatorRequest(coordinator_keys=["k"])] * 3)
    wait_until("the first is taken", lambda: waiting.taken >= 1)
    assert other.silent_for(0.1)
    assert waiting.taken == 1
    waiting.go_on()
    for _ in range(3):
        other.receive()
    other.close()


def test_a_write_that_was_decoded_in_steps_keeps_its_turn_and_its_memory_until_it_is_done(
    client: Client, waiting: Waiting
) -> None:
    waiting.serve(in_turn=True)
    other, memory = Client(client.broker), client.broker.node.request_memory
    keys = ["k" * 10] * 50_000
    other.send(FindCoordinatorRequest(coordinator_keys=keys), FindCoordinatorRequest(coordinator_keys=["k"]))
    wait_until("the first is taken", lambda: waiting.taken >= 1)
    assert other.silent_for(0.1)
    assert waiting.taken == 1
    assert on_the_loop(client.broker, lambda: memory.used) >= 10 * len(keys)
    waiting.go_on()
    for _ in range(2):
        other.receive()
    other.close()


@pytest.mark.parametrize("writes", [False, True])
def test_a_connection_that_ends_takes_along_what_it_waits_for_but_no_write(
    client: Client, waiting: Waiting, *, writes: bool
) -> None:
    waiting.serve(in_turn=writes)
    other = Client(client.broker)
    other.send(FindCoordinatorRequest(coordinator_keys=["k"]))
    wait_until("it is taken", lambda: waiting.taken == 1)
    (mine,) = [each for each in connections_of(client.broker) if each.under_way]
    on_the_loop(client.broker, mine.abort)
    assert other.is_closed()
    waiting.go_on()
    wait_until("that has ended", lambda: waiting.ended == 1)
    assert waiting.done == writes
