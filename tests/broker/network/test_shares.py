"""However much some have sent at once, everybody's first request comes soon, and no turn is long."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable
from typing import Any

import pytest
from tests.broker.wire import Client, clients, on_the_loop
from tests.log.log_doubles import VirtualLoop, run

from fencepost.broker.network import shares as shares_module
from fencepost.broker.network.connection import Connection
from fencepost.broker.network.shares import TURN_REQUESTS, TURN_SECONDS, Shares
from fencepost.protocol.messages import MetadataRequest
from fencepost.protocol.messages.metadata import MetadataRequestTopic

client = clients()


class Node:
    """Counts what is handled in each turn of the loop, each request of which takes some time."""

    def __init__(self, seconds: float) -> None:
        self.shares = Shares()
        self.seconds = seconds
        self.handled: list[str] = []
        self.in_turn: Counter[int] = Counter()

    @property
    def loop(self) -> VirtualLoop:
        loop = asyncio.get_running_loop()
        assert isinstance(loop, VirtualLoop)
        return loop


class Sender:
    """A connection on which so many requests have come."""

    def __init__(self, node: Node, name: str, requests: int) -> None:
        self.node, self.name, self.left = node, name, requests

    def arrive(self) -> None:
        if self.left and self.node.shares.begin(self.again, self.node.loop.time()):
            self.again()

    def again(self) -> None:
        while self.left:
            self.left -= 1
            self.node.handled.append(self.name)
            self.node.in_turn[self.node.loop.turns] += 1
            self.node.loop._virtual.now += self.node.seconds
            if not self.node.shares.goes_on(self.again, self.node.loop.time()):
                return


async def until(holds: Callable[[], bool]) -> None:
    while not holds():  # noqa: ASYNC110 - it counts turns
        await asyncio.sleep(0)


@pytest.mark.parametrize("seconds", [0.0, 0.0001, 0.001, 0.1])
@pytest.mark.parametrize(("senders", "requests"), [(1, 1), (1, 1000), (7, 300), (200, 50), (500, 3)])
def test_no_turn_is_long_and_everybodys_first_request_comes_soon(senders: int, requests: int, seconds: float) -> None:
    async def main() -> None:
        node = Node(seconds)
        everybody = [Sender(node, f"s{number}", requests) for number in range(senders)]
        for each in everybody:
            each.arrive()
        await until(lambda: not any(each.left for each in everybody))
        # What takes long by itself takes that long, and no more is done beside it.
        most = min(TURN_REQUESTS, int(TURN_SECONDS / seconds) + 1) if seconds else TURN_REQUESTS
        assert max(node.in_turn.values()) <= most + 1
        first = [node.handled.index(each.name) for each in everybody]
        assert max(first) <= most + 2 * senders + most, "newcomers have half of each turn"
        assert Counter(node.handled) == {each.name: requests for each in everybody}

    run(main())


@pytest.mark.parametrize("seconds", [0.0, 0.0001, 0.002])
@pytest.mark.parametrize("senders", [20, 200, 2000])
def test_who_comes_later_and_asks_for_little_waits_for_one_turn(senders: int, seconds: float) -> None:
    async def main() -> None:
        node = Node(seconds)
        everybody = [Sender(node, f"s{number}", 10_000) for number in range(senders)]
        for each in everybody:
            each.arrive()
        # Until everybody has used up a share: before that all of them are newcomers.
        await until(lambda: len(node.shares._busy) == senders)
        for number in range(10):
            before = node.loop.turns
            name = f"late {number}"
            Sender(node, name, 1).arrive()
            while name not in node.handled[-TURN_REQUESTS:]:  # noqa: ASYNC110 - it counts turns
                await asyncio.sleep(0)
            assert node.loop.turns - before <= 2

    run(main())


@pytest.mark.parametrize("seconds", [0.0, 0.0001, 0.02])
def test_newcomers_do_not_keep_the_others_from_their_turns(seconds: float) -> None:
    async def main() -> None:
        node = Node(seconds)
        busy = [Sender(node, f"s{number}", 400) for number in range(5)]
        for each in busy:
            each.arrive()
        await until(lambda: len(node.shares._busy) == len(busy))
        begun, arrived = node.loop.turns, 0
        while any(each.left for each in busy):
            while len(node.shares._newcomers) < TURN_REQUESTS:
                arrived += 1
                Sender(node, f"newcomer {arrived}", 1).arrive()
            await asyncio.sleep(0)
            assert node.loop.turns - begun < 2 * 5 * 400 + 10, "one of the others in every second turn at the least"
        served = [name for name in node.handled if name.startswith("newcomer")]
        assert served == [f"newcomer {number + 1}" for number in range(len(served))]

    run(main())


def test_who_has_used_up_a_share_is_no_newcomer_when_more_has_come() -> None:
    async def main() -> None:
        node = Node(0.0)
        everybody = [Sender(node, f"s{number}", 1000) for number in range(50)]
        for each in everybody:
            each.arrive()
        await until(lambda: len(node.shares._busy) == len(everybody))
        again = everybody[0]
        node.shares._line.pop(again.again)  # all that had come is handled
        again.arrive()
        assert again.again in node.shares._line and not node.shares._newcomers

    run(main())


def test_newcomers_are_served_though_the_line_that_was_due_is_gone() -> None:
    async def main() -> None:
        node = Node(2 * TURN_SECONDS)
        busy, *late = [Sender(node, f"s{number}", 5) for number in range(4)]
        busy.arrive()
        await until(lambda: busy.again in node.shares._line)
        for each in late:
            each.arrive()
        await until(lambda: node.shares._line_is_due)
        for again in list(node.shares._line):
            node.shares.forget(again)
        await until(lambda: not node.shares._newcomers)

    run(main())


def test_who_is_forgotten_is_not_called_and_nobody_else_is_left_out() -> None:
    async def main() -> None:
        node = Node(0.0)
        everybody = [Sender(node, f"s{number}", 3 * TURN_REQUESTS) for number in range(4)]
        for each in everybody:
            each.arrive()
        gone = everybody[2]
        gone.node.shares.forget(gone.again)
        left = gone.left
        await until(lambda: not any(each.left for each in everybody if each is not gone))
        assert gone.left == left
        await asyncio.sleep(1)
        assert not node.shares._line and not node.shares._newcomers and not node.shares._busy
        assert not node.shares._is_running
        again = Sender(node, "again", 1)
        again.arrive()
        assert again.left == 0, "at once, for nobody waits"

    run(main())


def test_what_one_connection_has_sent_at_once_is_handled_in_turns_and_another_comes_between(
    client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(shares_module, "TURN_REQUESTS", 5)
    monkeypatch.setattr(shares_module, "TURN_SECONDS", 1000.0)
    turns = 0
    handled: list[tuple[int, Any]] = []
    request = Connection._request

    def noted(connection: Connection, frame: memoryview) -> None:
        handled.append((turns, connection))
        request(connection, frame)

    def tick() -> None:
        nonlocal turns
        turns += 1
        asyncio.get_running_loop().call_soon(tick)

    other = Client(client.broker)
    other.ask(MetadataRequest(topics=[]))
    monkeypatch.setattr(Connection, "_request", noted)
    on_the_loop(client.broker, tick)
    asked = [f"nowhere-{number}" for number in range(400)]
    client.send(
        *(MetadataRequest(topics=[MetadataRequestTopic(name=name)], allow_auto_topic_creation=False) for name in asked)
    )
    assert other.ask(MetadataRequest(topics=[])).brokers
    assert [client.receive().topics[0].name for _ in asked] == asked
    assert max(Counter(turn for turn, _ in handled).values()) <= 6
    assert len(handled) == len(asked) + 1


def test_a_connection_that_ends_while_it_stands_in_line_is_forgotten(
    client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(shares_module, "TURN_REQUESTS", 1)
    for _ in range(5):
        other = Client(client.broker)
        other.send(*[MetadataRequest(topics=[])] * 500)
        other.close()
    assert client.ask(MetadataRequest(topics=[])).brokers
    shares = client.broker.node.shares
    for _ in range(100):
        if len(client.broker.node.connections) == 1 and not on_the_loop(
            client.broker, lambda: len(shares._line) + len(shares._newcomers)
        ):
            break
        assert client.ask(MetadataRequest(topics=[])).brokers
    else:
        pytest.fail("somebody who is gone stands in line")


def test_a_connection_that_ends_is_in_no_line_any_more_whether_there_are_turns_or_not(client: Client) -> None:
    other, shares = Client(client.broker), client.broker.node.shares
    other.ask(MetadataRequest(topics=[]))
    mine: Any = list(client.broker.node.connections)[-1]

    def end_in_line() -> None:
        shares._line[mine._my_turn] = None
        mine.abort()

    on_the_loop(client.broker, end_in_line)
    assert other.is_closed()
    assert not on_the_loop(client.broker, lambda: mine._my_turn in shares._line)


def test_who_comes_alone_again_and_again_never_stands_in_line_and_costs_little(monkeypatch: pytest.MonkeyPatch) -> None:
    looked = 0
    next_turn = Shares._next_turn

    def counted(shares: Shares) -> None:
        nonlocal looked
        looked += 1
        next_turn(shares)

    async def main() -> None:
        shares = Shares()
        for _ in range(1000):
            now = asyncio.get_running_loop().time()
            assert shares.begin(print, now)
            assert shares.goes_on(print, now)
            await asyncio.sleep(0)

    monkeypatch.setattr(Shares, "_next_turn", counted)
    run(main())
    assert 0 < looked <= 1000 // (TURN_REQUESTS // 2)


def test_a_turn_of_many_short_shares_is_no_longer_than_another() -> None:
    """However much of it has passed since the last time that somebody looked whether it is over."""

    async def main(before: int) -> None:
        node = Node(TURN_SECONDS / 100)
        for number in range(before):
            Sender(node, f"before {number}", 1).arrive()
            await asyncio.sleep(0)
        node.in_turn.clear()
        for number in range(500):
            Sender(node, f"s{number}", 1).arrive()
        assert sum(node.in_turn.values()) <= 101
        await asyncio.sleep(0)

    for before in (0, 1, 30, 49, 50, 51, 99, 100):
        run(main(before))
