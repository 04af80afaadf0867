"""Large answers: what they hold together, and who makes a long one when."""

from __future__ import annotations

import asyncio
from collections import Counter
from functools import partial
from random import Random
from types import SimpleNamespace
from typing import Any

import pytest
from tests.broker.interrupted import held as interrupted_requests
from tests.broker.wire import (
    HELLO,
    MEGABYTE,
    Client,
    batch,
    clients,
    connections_of,
    fetch,
    fetch_request,
    held,
    new_topic,
    on_the_loop,
    produce,
    serving,
    values,
    wait_until,
)

from fencepost.broker import Broker
from fencepost.broker.housekeeping import tidy_connections
from fencepost.broker.network.answer_memory import MAKERS, AnswerMemory
from fencepost.broker.network.limits import LARGE_ANSWER, LEAST_ANSWER, NODE_ANSWERS
from fencepost.broker.network.outgoing import Outgoing
from fencepost.broker.network.pacing import HandlerSteps, awaited, in_steps
from fencepost.broker.network.registry import Reply, independent
from fencepost.protocol.errors import ErrorCode
from fencepost.protocol.messages import MetadataRequest, MetadataResponse
from fencepost.protocol.messages.metadata import MetadataRequestTopic
from fencepost.protocol.types import Lsn
from fencepost.runtime import Slices, at_once
from fencepost.simulation.loop import run

client = clients()

LIMIT = 1000


def unknown(count: int) -> MetadataRequest:
    names = [MetadataRequestTopic(name=f"none{number}") for number in range(count)]
    return MetadataRequest(topics=names, allow_auto_topic_creation=False)


def test_what_is_left_is_what_nobody_has_and_never_less_than_the_least() -> None:
    memory = AnswerMemory(100)
    assert memory.left(10) == 100
    memory.add(60)
    assert memory.left(10) == 40
    memory.keep(35)
    assert (memory.left(10), memory.used) == (10, 95)
    memory.add(1000)
    assert memory.left(10) == 10


@pytest.mark.parametrize("end", ["sent", "dropped", "dropped when ready"])
def test_memory_of_answers_is_given_back_whether_they_leave_or_not(end: str) -> None:
    memory = AnswerMemory(1 << 30)
    out = Outgoing(memory)
    for size in (10, LARGE_ANSWER + 1, 3 * LARGE_ANSWER):
        out.put(bytes(size), out.new_slot(0), Lsn(0), Lsn(0))
    assert memory.used == 4 * LARGE_ANSWER + 1
    if end != "dropped":
        out.take_ready(0)
        assert memory.used == 4 * LARGE_ANSWER + 1
    if end == "sent":
        out.send(None)
    else:
        out.clear()
    assert memory.used == 0


class Crowd:
    """Clients who ask at random for answers that take long, give up, and take what they are given, or not."""

    def __init__(self, seed: int) -> None:
        self.chance, self.memory = Random(seed), AnswerMemory(LIMIT)
        self.ends: Counter[str] = Counter()
        self.untaken: list[int] = []
        self.most = 0
        self.asked: list[int] = []
        self.admitted: list[int] = []

    async def ask(self, number: int) -> None:
        memory, chance = self.memory, self.chance
        self.asked.append(number)
        try:
            await memory.place()
            self.admitted.append(number)
            for _ in range(chance.randrange(5)):
                await memory.place()
                self.most = max(self.most, len(memory._makers))
                await asyncio.sleep(0)
            if chance.random() < 0.3:  # it waits for something else, as for a topic to be made
                memory.leave(asyncio.current_task())
                await asyncio.sleep(0)
                await memory.place()
            size = chance.randrange(1, 500)
            if chance.random() < 0.3:  # an answer before it is still made
                memory.keep(size)
                await asyncio.sleep(0)
                memory.let_go(size)
            memory.add(size)
            self.untaken.append(size)
            self.ends["answered"] += 1
        except asyncio.CancelledError:
            self.ends["given up"] += 1
            raise

    async def run(self, count: int) -> None:
        tasks = []
        for number in range(count):
            task = asyncio.create_task(self.ask(number))
            task.add_done_callback(self.memory.leave)
            tasks.append(task)
        rounds = 0
        while self.ends.total() < count or self.untaken:
            rounds += 1
            assert rounds < 100 * count, "all wait for one another"
            if self.untaken and self.chance.random() < 0.5:
                self.memory.give(self.untaken.pop(self.chance.randrange(len(self.untaken))))
            if self.chance.random() < 0.05:
                self.chance.choice(tasks).cancel()
            await asyncio.sleep(0)
            self.ends["given up"] = sum(task.cancelled() for task in tasks)
            assert self.memory._untaken < LIMIT + MAKERS * 500


@pytest.mark.parametrize("seed", range(30))
def test_a_crowd_is_answered_a_few_at_a_time_and_waits_for_those_who_do_not_take(seed: int) -> None:
    crowd = Crowd(seed)
    asyncio.run(crowd.run(60))
    assert crowd.most <= MAKERS
    assert crowd.admitted == [number for number in crowd.asked if number in set(crowd.admitted)]
    assert (crowd.memory.used, crowd.memory._makers, crowd.memory._waiting) == (0, set(), {})


def test_what_waits_for_an_earlier_answer_keeps_nobody_from_making_that() -> None:
    async def make(memory: AnswerMemory) -> None:
        await memory.place()

    async def run() -> None:
        memory = AnswerMemory(LIMIT)
        memory.keep(10 * LIMIT)
        await asyncio.wait_for(make(memory), 1)
        memory.let_go(10 * LIMIT)
        memory.add(LIMIT)
        waiting = asyncio.create_task(make(memory))
        await asyncio.sleep(0)
        assert memory.is_wanted and not waiting.done()
        memory.give(1)
        await asyncio.wait_for(waiting, 1)

    asyncio.run(run())


# On the wire


def test_who_waits_for_others_leaves_his_place_to_them() -> None:
    """They may need one to do what he waits for."""

    async def scenario() -> None:
        told = asyncio.get_running_loop().create_future()
        context: Any = None
        node: Any = SimpleNamespace(slices=Slices(), answer_memory=AnswerMemory(LIMIT))

        @in_steps
        def waiting(*_: Any) -> HandlerSteps[Reply]:
            yield None
            yield from awaited(told)
            return independent(MetadataResponse(brokers=[], topics=[]))

        @in_steps
        def telling(*_: Any) -> HandlerSteps[Reply]:
            yield None
            told.set_result(None)
            return independent(MetadataResponse(brokers=[], topics=[]))

        begun: list[Any] = [handler(unknown(1), context, node) for handler in (*[waiting] * MAKERS, telling)]
        async with asyncio.timeout(60):
            await asyncio.gather(*begun)

    run(lambda _: scenario())


def test_a_fetch_gives_less_where_others_do_not_take_what_they_were_given(client: Client) -> None:
    topic, memory = new_topic(client), client.broker.node.answer_memory
    for _ in range(5):
        assert produce(client, topic, batch("x" * 600_000)).error_code == ErrorCode.NONE
    assert len(values(fetch(client, topic, max_bytes=1 << 24))) == 5
    on_the_loop(client.broker, lambda: memory.add(NODE_ANSWERS))
    assert len(values(fetch(client, topic, max_bytes=1 << 24))) == LEAST_ANSWER // 600_000
    on_the_loop(client.broker, lambda: memory.give(NODE_ANSWERS))
    assert len(values(fetch(client, topic, max_bytes=1 << 24))) == 5


def test_what_a_client_did_not_take_is_forgotten_with_it(client: Client) -> None:
    topic, slow, memory = new_topic(client), Client(client.broker), client.broker.node.answer_memory
    for _ in range(10):
        assert produce(client, topic, batch("x" * 900_000)).error_code == ErrorCode.NONE
    slow.send(fetch_request(slow, topic, max_bytes=1 << 24))
    wait_until("it is there", lambda: memory.used > 6 * MEGABYTE)
    slow.close()
    wait_until("it is forgotten", lambda: memory.used == 0)


def test_of_many_who_ask_for_long_answers_a_few_are_served_at_a_time(
    client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    broker, crowd = client.broker, [Client(client.broker) for _ in range(3 * MAKERS)]
    with interrupted_requests(broker, monkeypatch) as interrupted:
        for each in crowd:
            each.send(unknown(2000))
        wait_until("the others wait", lambda: len(broker.node.answer_memory._waiting) == 2 * MAKERS)
        interrupted(MAKERS)
        crowd[0].close()
        crowd[-1].close()
        assert client.ask(HELLO).error_code == ErrorCode.NONE
    for each in crowd[1:-1]:
        assert len(each.receive().topics) == 2000
        each.close()
    wait_until("nothing is left of them", lambda: in_memory(broker) == (0, set(), {}))


def in_memory(broker: Broker) -> tuple[int, Any, Any]:
    memory = broker.node.answer_memory
    return memory.used, memory._makers, memory._waiting


def test_who_does_not_take_what_others_wait_for_ends() -> None:
    """Nobody does while nobody waits; who takes some keeps its connection."""
    with serving() as broker:
        other, steady, slow, asking = (Client(broker) for _ in range(4))
        topic, memory = new_topic(other), broker.node.answer_memory
        for _ in range(20):
            assert produce(other, topic, batch("x" * 900_000)).error_code == ErrorCode.NONE
        for each in (steady, slow):
            before = memory.used
            each.send(fetch_request(each, topic, max_bytes=1 << 24))
            wait_until("it is there", partial(holds_more, broker, before + 6 * MEGABYTE))
        for _ in range(3):
            look(broker)
        assert len(connections_of(broker)) == 4
        on_the_loop(broker, lambda: memory.add(NODE_ANSWERS))
        asking.send(unknown(10_000), HELLO)
        wait_until("it waits", lambda: memory.is_wanted)
        assert other.ask(HELLO).error_code == ErrorCode.NONE
        before = held(broker)
        steady.read(2 * MEGABYTE)
        wait_until("it comes on", lambda: held(broker) < before - 1.5 * MEGABYTE)
        look(broker)
        wait_until("one connection ends", lambda: len(connections_of(broker)) == 3)
        assert steady.read(MEGABYTE)
        on_the_loop(broker, lambda: memory.give(NODE_ANSWERS))
        assert len(asking.receive().topics) == 10_000
        assert asking.receive().error_code == ErrorCode.NONE
        for each in (steady, slow, other, asking):
            each.close()
        wait_until("nothing is left of them", lambda: in_memory(broker) == (0, set(), {}))


def holds_more(broker: Broker, than: int) -> bool:
    return broker.node.answer_memory.used > than


def look(broker: Broker) -> None:
    on_the_loop(broker, lambda: at_once(tidy_connections(broker.node)))
