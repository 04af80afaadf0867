"""Thousands that become ready at once are called in slices, in order, and nobody is forgotten."""

from __future__ import annotations

import asyncio
from functools import partial
from types import SimpleNamespace
from typing import Any

import pytest
from tests.broker.wire import Client, batch, fetch_request, new_topic, produce, serving, values, wait_until
from tests.log.log_doubles import run

from fencepost.broker.network.turns import MOST_AT_ONCE, Deadlines, Turns
from fencepost.simulation.loop import VirtualLoop
from fencepost.simulation.loop import run as virtually


class Watch:
    """Counts what is called in each turn of the event loop."""

    def __init__(self) -> None:
        self.called: list[int] = []
        self.turns: list[int] = [0]

    async def turn(self) -> None:
        """Let the event loop have one more turn."""
        self.turns.append(0)
        await asyncio.sleep(0)

    def call(self, number: int) -> None:
        self.called.append(number)
        self.turns[-1] += 1


def break_() -> None:
    raise ZeroDivisionError


@pytest.mark.parametrize("count", [1, MOST_AT_ONCE, MOST_AT_ONCE + 1, 1000, 20_000])
def test_many_are_called_a_few_at_a_time(count: int) -> None:
    async def main() -> None:
        turns, watch = Turns(), Watch()
        for number in range(count):
            turns.call(lambda number=number: watch.call(number))  # type: ignore[misc]
        assert len(watch.called) == min(count, MOST_AT_ONCE), "few are called at once"
        for _ in range(count // MOST_AT_ONCE + 2):
            await watch.turn()
        assert watch.called == list(range(count))
        assert max(watch.turns) <= MOST_AT_ONCE
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        turns.call(lambda: watch.call(-1))
        assert watch.called[-1] == -1, "few again"

    run(main())


def test_who_comes_while_others_wait_is_called_after_them() -> None:
    async def main() -> None:
        turns, watch = Turns(), Watch()
        for number in range(3 * MOST_AT_ONCE):
            turns.call(lambda number=number: watch.call(number))  # type: ignore[misc]
        await asyncio.sleep(0)
        turns.call(lambda: watch.call(3 * MOST_AT_ONCE))
        for _ in range(5):
            await asyncio.sleep(0)
        assert watch.called == list(range(3 * MOST_AT_ONCE + 1))

    run(main())


def test_one_that_fails_does_not_keep_the_others() -> None:
    async def main() -> None:
        turns, watch = Turns(), Watch()
        for number in range(MOST_AT_ONCE):
            turns.call(lambda number=number: watch.call(number))  # type: ignore[misc]
        for callback in (break_, lambda: watch.call(-1)):
            turns.call(callback)
        await asyncio.sleep(0.1)
        assert watch.called[-1] == -1

    run(main())


def test_what_is_due_at_one_moment_shares_a_timer() -> None:
    async def main() -> None:
        watch, loop = Watch(), asyncio.get_running_loop()
        deadlines = Deadlines(Turns())
        begun = loop.time()
        cancels = [
            deadlines.at(begun + 1.0 + number / 1e9, lambda number=number: watch.call(number))  # type: ignore[misc]
            for number in range(1000)
        ]
        later = deadlines.at(begun + 1.5, lambda: watch.call(-1))
        assert len(deadlines._due) <= 3
        for cancel in cancels[::2]:
            cancel()
        await asyncio.sleep(0.999)
        assert watch.called == []
        await asyncio.sleep(0.1)
        assert watch.called == list(range(1, 1000, 2))
        later()
        later()
        await asyncio.sleep(1)
        assert len(watch.called) == 500 and deadlines._due == {}

    run(main())


def test_many_fetches_of_one_partition_are_all_answered_when_woken_and_when_their_time_is_up() -> None:
    with serving() as broker:
        writer = Client(broker)
        topic = new_topic(writer)
        readers = [Client(broker) for _ in range(3 * MOST_AT_ONCE)]
        for reader in readers:
            reader.send(fetch_request(reader, topic, wait_ms=60_000))
        produce(writer, topic, batch("a"))
        for reader in readers:
            assert values(reader.receive().responses[0].partitions[0]) == ["a"]
        for reader in readers:
            reader.send(fetch_request(reader, topic, 1, wait_ms=300))
        for reader in readers:
            assert values(reader.receive().responses[0].partitions[0]) == []
            reader.close()
        writer.close()


def test_those_whose_time_is_up_in_one_millisecond_are_called_in_turns() -> None:
    async def main(loop: VirtualLoop) -> None:
        called, callbacks = list[object](), [lambda number=number: number for number in range(3)]
        turns: Any = SimpleNamespace(call=called.append)
        deadlines = Deadlines(turns)
        for callback in callbacks:
            deadlines.at(loop.time() + 1, callback)
        await asyncio.sleep(2)
        assert called == callbacks

    virtually(main)


def test_no_deadline_rings_before_its_time_whatever_is_lost_in_rounding() -> None:
    """A caller that looks at the clock when it is called, and waits on, would be called again in the same moment."""

    async def main(loop: VirtualLoop) -> None:
        early: list[float] = []
        deadlines = Deadlines(Turns())

        def look(when: float) -> None:
            if loop.time() < when:
                early.append(when)

        for number in range(3000):
            when = 0.1 + number * 0.001 + 4.4e-16 * (number % 7)
            deadlines.at(when, partial(look, when))
        await asyncio.sleep(10)
        assert early == []

    virtually(main)


def test_a_deadline_that_is_taken_back_leaves_nothing() -> None:
    """A Fetch may wait for weeks, and most are answered long before."""

    async def main(loop: VirtualLoop) -> None:
        called: list[int] = []
        deadlines = Deadlines(Turns())
        for number in range(1000):
            cancels = [deadlines.at(loop.time() + 86_400, partial(called.append, n)) for n in (number, -number)]
            await asyncio.sleep(0.01)
            for cancel in cancels:
                cancel()
        assert deadlines._due == deadlines._timers == {}
        assert len(loop._scheduled) < 500, "asyncio forgets cancelled timers when they are many"
        when = loop.time() + 1
        for _ in range(2):
            deadlines.at(when, partial(called.append, 1))()
        deadlines.at(when, partial(called.append, 2))
        await asyncio.sleep(2)
        assert called == [2] and deadlines._due == deadlines._timers == {}

    virtually(main)


@pytest.mark.parametrize("woken", [False, True])
def test_a_fetch_that_is_answered_leaves_nothing_behind(woken: bool) -> None:
    """What it waited for does not know it any more: else everything would grow with every Fetch."""
    with serving() as broker:
        reader, writer = Client(broker), Client(broker)
        topics = [new_topic(writer), new_topic(writer)]
        request = fetch_request(reader, topics[0], wait_ms=60_000 if woken else 20)
        request.topics += fetch_request(reader, topics[1]).topics
        partitions = [broker.node.storage.partition(topic, 0) for topic in topics]
        reader.send(request)
        if woken:
            wait_until("it waits", lambda: all(each is not None and len(each._waiters) == 1 for each in partitions))
            produce(writer, topics[0], batch("a"))
        assert len(reader.receive().responses) == 2
        assert [each is not None and each._waiters for each in partitions] == [{}, {}]
        assert broker.node.deadlines._due == {}
        for each in (reader, writer):
            each.close()


def test_a_fetch_whose_client_has_gone_leaves_nothing_behind() -> None:
    with serving() as broker:
        reader, maker = Client(broker), Client(broker)
        topic = new_topic(maker)
        partition = broker.node.storage.partition(topic, 0)
        assert partition is not None
        reader.send(fetch_request(reader, topic, wait_ms=60_000))
        wait_until("it waits", lambda: len(partition._waiters) == 1)
        reader.close()
        wait_until("nobody waits", lambda: not partition._waiters)
        assert broker.node.deadlines._due == {}
        maker.close()
