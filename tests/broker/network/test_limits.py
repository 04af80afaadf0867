"""What one connection, and all of them, may hold: memory, connections, time without a word."""

from __future__ import annotations

import logging
import socket
from functools import partial
from random import Random
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
    produce_request,
    serving,
    values,
    wait_until,
)

from fencepost.broker import BadSetting, Broker
from fencepost.broker.housekeeping import tidy_connections
from fencepost.broker.metadata.settings import Settings
from fencepost.broker.network.frame_buffer import SMALL
from fencepost.broker.network.limits import (
    MOST_HELD,
    MemoryPool,
    Reservation,
)
from fencepost.protocol.decoding import MOST_ITEMS
from fencepost.protocol.errors import ErrorCode
from fencepost.protocol.messages import CreateTopicsRequest, MetadataRequest, OffsetFetchRequest
from fencepost.protocol.messages.create_topics import CreatableTopic
from fencepost.protocol.messages.metadata import MetadataRequestTopic
from fencepost.protocol.steps import ITEM, STEP
from fencepost.runtime import Slices, at_once

client = clients()


def buffers(broker: Broker) -> int:
    """Bytes that the node holds to read requests."""
    return on_the_loop(broker, lambda: sum(each._frames.size for each in connections_of(broker)))


def come(broker: Broker) -> int:
    """Bytes of requests that have come and are not whole yet."""
    return on_the_loop(broker, lambda: sum(each._frames.held for each in connections_of(broker)))


# Answers


def test_answers_are_made_when_they_can_be_sent(client: Client) -> None:
    """A Fetch that waits, and 150 behind it that find a megabyte each: nothing is read for these meanwhile."""
    topic, empty, slow = new_topic(client), new_topic(client), Client(client.broker)
    assert produce(client, topic, batch("x" * (MEGABYTE - 200))).error_code == ErrorCode.NONE
    slow.send(fetch_request(slow, empty, wait_ms=30_000), *[fetch_request(slow, topic)] * 150, HELLO)
    assert slow.silent_for(0.2)
    assert held(client.broker) == 0
    produce(client, empty, batch("go on"))
    assert values(slow.receive().responses[0].partitions[0]) == ["go on"]
    wait_until("the transport is full", lambda: held(client.broker) > 0)
    assert held(client.broker) < 3 * MEGABYTE
    for _ in range(150):
        assert len(values(slow.receive().responses[0].partitions[0])) == 1
    assert slow.receive().error_code == ErrorCode.NONE
    wait_until("everything has left", lambda: client.broker.node.answer_memory.used == 0)
    slow.close()


def test_small_requests_are_taken_ahead(client: Client) -> None:
    """While an answer before them waits, writes are done: they share their syncs."""
    topic, empty, other = new_topic(client), new_topic(client), Client(client.broker)
    other.send(fetch_request(other, empty, wait_ms=30_000), *[produce_request(other, topic, [batch("a")])] * 50)
    wait_until("all are written", lambda: fetch(client, topic).high_watermark == 50)
    produce(client, empty, batch("go on"))
    for _ in range(51):
        other.receive()
    other.close()


def test_waiting_requests_of_one_connection_are_bounded(client: Client) -> None:
    topic, empty, other = new_topic(client), new_topic(client), Client(client.broker)
    large = produce_request(other, topic, [batch("x" * 100_000)])
    other.send(fetch_request(other, empty, wait_ms=30_000))
    names = MetadataRequest(topics=[])
    other.send(names, *[large] * 20)
    assert other.silent_for(0.2)
    (mine,) = on_the_loop(client.broker, lambda: [each for each in connections_of(client.broker) if each._out.slots])
    assert mine._out.held < MOST_HELD
    assert mine._frames.size < 4 * MEGABYTE
    produce(client, empty, batch("go on"))
    for _ in range(22):
        other.receive()
    other.close()


# Requests


def test_what_is_announced_is_not_set_aside(client: Client) -> None:
    announcing, broker = [Client(client.broker) for _ in range(20)], client.broker
    for each in announcing:
        each.send_bytes((100 * MEGABYTE).to_bytes(4, "big") + bytes(100_000))
    client.ask(HELLO)
    wait_until("they are read", lambda: come(broker) == 20 * 100_004)
    assert 20 * 100_000 <= broker.node.request_memory.used <= buffers(broker) < 4 * MEGABYTE
    assert produce(client, new_topic(client), batch("a" * 900_000)).error_code == ErrorCode.NONE, "others go on"
    for each in announcing:
        each.close()
    wait_until("all are gone", lambda: client.broker.node.request_memory.used == 0)


def test_buffers_shrink_after_a_large_frame(client: Client) -> None:
    topic, broker = new_topic(client, max_message_bytes=str(3 * MEGABYTE)), client.broker
    assert produce(client, topic, batch("x" * 2 * MEGABYTE)).error_code == ErrorCode.NONE
    assert buffers(broker) > 2 * MEGABYTE
    on_the_loop(broker, lambda: at_once(tidy_connections(broker.node)))
    on_the_loop(broker, lambda: at_once(tidy_connections(broker.node)))
    assert buffers(broker) <= MEGABYTE // 8
    assert broker.node.request_memory.used == 0


def test_large_requests_wait_for_one_another() -> None:
    """As Apache Kafka's memory pool: one may begin while there is memory left, and what has begun is read on."""
    with serving(queued_max_request_bytes=500_000) as broker:
        asking, topic = [Client(broker) for _ in range(10)], ""
        topic = new_topic(asking[0])
        frames = [each.frame(produce_request(each, topic, [batch("x" * 900_000)])) for each in asking]
        for each, frame in zip(asking, frames, strict=True):
            each.send_bytes(frame[:100_000])
        wait_until("the first is begun", lambda: broker.node.request_memory.used > 0)
        assert asking[0].silent_for(0.1)
        assert broker.node.request_memory.used <= 2 * 900_200, "the others wait"
        for each, frame in zip(asking, frames, strict=True):
            each.send_bytes(frame[100_000:])
        for each in asking:
            assert each.receive().responses[0].partition_responses[0].error_code == ErrorCode.NONE
            assert each.ask(HELLO).error_code == ErrorCode.NONE
        wait_until("all of it is given back", lambda: broker.node.request_memory.used == 0)
        for each in asking:
            each.close()


def test_a_client_that_says_no_more_has_no_memory_of_its_last_large_request(client: Client) -> None:
    """Nor where its answer took more than one turn: others would wait for what nobody uses."""
    rest: dict[str, Any] = {"num_partitions": 1, "replication_factor": 9, "assignments": [], "configs": []}
    topics = [CreatableTopic(name=f"{number:0200d}", **rest) for number in range(2 * SMALL // 200)]
    answered = client.ask(CreateTopicsRequest(topics=topics, timeout_ms=1000))
    assert {topic.error_code for topic in answered.topics} == {ErrorCode.INVALID_REPLICATION_FACTOR}
    wait_until("all of it is given back", lambda: client.broker.node.request_memory.used == 0)


def test_who_gives_up_waiting_for_memory_is_forgotten() -> None:
    with serving(queued_max_request_bytes=500_000) as broker:
        first, second, third = Client(broker), Client(broker), Client(broker)
        topic = new_topic(first)
        frames = [each.frame(produce_request(each, topic, [batch("x" * 900_000)])) for each in (first, second, third)]
        first.send_bytes(frames[0][:500_000])
        wait_until("the first is begun", lambda: broker.node.request_memory.used > 500_000)
        second.send_bytes(frames[1][:100_000])
        third.send_bytes(frames[2])
        wait_until("two wait", lambda: len(broker.node.request_memory._waiting) == 2)
        second.close()
        assert third.silent_for(0.05)
        first.close()
        assert third.receive().responses[0].partition_responses[0].error_code == ErrorCode.NONE
        third.close()
        wait_until("all of it is given back", lambda: broker.node.request_memory.used == 0)


def test_a_pool_wakes_who_waits_in_turn() -> None:
    pool, woken = MemoryPool(100), []

    def wants(name: str) -> None:
        woken.append(name)
        assert pool.take(60, waiting[name])

    def holder() -> None:
        raise AssertionError("it does not wait")

    waiting = {name: lambda name=name: wants(name) for name in "abc"}
    assert pool.take(150, holder)
    for each in waiting.values():
        assert not pool.take(1, each)
        pool.wait(each)
    assert woken == []
    pool.give(150, holder)
    assert (woken, pool.used) == (["a", "b"], 120)
    pool.forget(waiting["c"])
    pool.give(60, waiting["a"])
    pool.give(60, waiting["b"])
    assert (woken, pool.used) == (["a", "b"], 0)


@pytest.mark.parametrize("seed", range(20))
def test_requests_that_grow_together_are_read_one_after_the_other(seed: int) -> None:
    """However they come, and whoever gives up: who has memory for the longest gets more, so somebody always goes on."""
    chance, pool, whole = Random(seed), MemoryPool(1000), 0
    ready = list(range(20))
    asking: dict[int, Reservation] = {}
    asking |= {number: Reservation(pool, partial(ready.append, number)) for number in ready}
    while asking:
        assert ready, "all wait for one another"
        number = ready.pop(chance.randrange(len(ready)))
        mine = asking[number]
        if mine.held >= 640 or chance.random() < 0.05:
            mine.forget()
            mine.release()
            del asking[number]
            whole += 1
        elif mine.grow(max(2 * mine.held, 10)):
            ready.append(number)
        assert pool.used < 1000 + 2 * 640
    assert (whole, pool.used, pool.is_wanted) == (20, 0, False)


def test_who_keeps_memory_from_others_and_sends_nearly_nothing_ends() -> None:
    with serving(queued_max_request_bytes=500_000) as broker:
        slow, steady, other = Client(broker), Client(broker), Client(broker)
        topic = new_topic(other)
        frames = [each.frame(produce_request(each, topic, [batch("x" * 900_000)])) for each in (slow, steady, other)]
        slow.send_bytes(frames[0][:200_000])
        wait_until("the first is begun", lambda: broker.node.request_memory.used >= 200_000)
        steady.send_bytes(frames[1][:200_000])
        wait_until("the second is begun", lambda: broker.node.request_memory.used >= 500_000)
        for _ in range(3):
            on_the_loop(broker, lambda: at_once(tidy_connections(broker.node)))
        assert slow.silent_for(0.01), "nobody waits"
        other.send_bytes(frames[2])
        wait_until("the third waits", lambda: broker.node.request_memory.is_wanted)
        steady.send_bytes(frames[1][200_000:])
        wait_until("so does the second", lambda: len(broker.node.request_memory._waiting) == 2)
        on_the_loop(broker, lambda: at_once(tidy_connections(broker.node)))
        assert slow.is_closed()
        for each in (steady, other):
            assert each.receive().responses[0].partition_responses[0].error_code == ErrorCode.NONE
            each.close()


@pytest.mark.parametrize("version", [0, 4, 9, 12])
def test_a_request_of_more_things_than_anybody_has_ends_its_connection_only(client: Client, version: int) -> None:
    other = Client(client.broker)
    asked = [MetadataRequestTopic(name="" if version == 0 else "x")] * (MOST_ITEMS + 1)
    other.send(MetadataRequest(topics=asked, allow_auto_topic_creation=False), version=version)
    assert other.is_closed()
    assert client.ask(HELLO).error_code == ErrorCode.NONE


def test_metadata_of_many_topics_leaves_turns_for_others(client: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    """Other requests are answered between the first topic and the last, and that again and again."""
    broker, names = client.broker, [f"none{number}" for number in range(30_000)]
    request = MetadataRequest(topics=[MetadataRequestTopic(name=name) for name in names])
    request.allow_auto_topic_creation = False
    other, turns, pause = Client(broker), 0, Slices.pause

    async def counted(slices: Slices) -> None:
        nonlocal turns
        turns += 1
        await pause(slices)

    with interrupted_requests(broker, monkeypatch) as interrupted:
        other.send(request, version=9)
        interrupted(1)
        for _ in range(3):
            assert client.ask(HELLO).error_code == ErrorCode.NONE
        monkeypatch.setattr(Slices, "pause", counted)
    answer = other.receive()
    assert [topic.name for topic in answer.topics] == names
    assert all(topic.error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION for topic in answer.topics)
    assert turns >= len(names) * ITEM // STEP - 1
    other.close()


def test_what_came_of_one_request_is_not_compared_with_what_came_of_the_last() -> None:
    pool = MemoryPool(1000)
    mine, other = Reservation(pool, lambda: None), Reservation(pool, lambda: None)
    for _ in range(2):
        assert mine.grow(1000) and not other.grow(1)
        assert not mine.is_kept_from_others(10), "it has only begun"
        mine.release()
        other.forget()
    assert mine.grow(1000) and not other.grow(1)
    assert [mine.is_kept_from_others(10) for _ in range(2)] == [False, True]


# Connections


def test_beyond_max_connections_who_connects_waits(caplog: pytest.LogCaptureFixture) -> None:
    with serving(max_connections=2) as broker, caplog.at_level(logging.WARNING):
        first, second, third = Client(broker), Client(broker), Client(broker)
        for each in (first, second):
            assert each.ask(HELLO).error_code == ErrorCode.NONE
        third.send(HELLO)
        assert third.silent_for(0.2)
        assert first.ask(HELLO).error_code == ErrorCode.NONE
        first.close()
        assert third.receive().error_code == ErrorCode.NONE
        assert second.ask(HELLO).error_code == ErrorCode.NONE
        assert len(connections_of(broker)) == 2
        for each in (second, third):
            each.close()
    assert "max.connections" in caplog.records[0].getMessage()


@pytest.mark.parametrize(
    ("most", "overrides"),
    [(2, ""), (0, "127.0.0.2:1,127.0.0.1:2")],
)
def test_beyond_the_number_of_its_address_a_connection_is_closed(
    most: int, overrides: str, caplog: pytest.LogCaptureFixture
) -> None:
    given = {"max_connections_per_ip": most, "max_connections_per_ip_overrides": overrides}
    with serving(None, **given) as broker, caplog.at_level(logging.WARNING):
        first, second, third = Client(broker), Client(broker), Client(broker)
        for each in (first, second):
            assert each.ask(HELLO).error_code == ErrorCode.NONE
        assert third.is_closed()
        first.close()
        wait_until("it is gone", lambda: len(connections_of(broker)) == 1)
        fourth = Client(broker)
        assert fourth.ask(HELLO).error_code == ErrorCode.NONE
        for each in (second, fourth):
            each.close()
    assert "127.0.0.1" in caplog.records[0].getMessage() and "max.connections.per.ip" in caplog.records[0].getMessage()


def test_an_override_names_addresses() -> None:
    Settings({"max.connections.per.ip.overrides": "10.0.0.1:5, ::1:7"})
    for wrong in ("somewhere:5", "10.0.0.1", "10.0.0.1:many", "10.0.1:5", "10.0.0.300:5", "abc:5", "1::2::3:5"):
        with pytest.raises(BadSetting, match=r"max.connections.per.ip.overrides"):
            Settings({"max.connections.per.ip.overrides": wrong})


def test_a_connection_that_nobody_uses_ends() -> None:
    with serving(connections_max_idle_ms=300) as broker:
        idle, busy = Client(broker), Client(broker)
        assert idle.ask(HELLO).error_code == ErrorCode.NONE
        topic = new_topic(busy)
        for _ in range(12):
            assert busy.silent_for(0.05)
            assert busy.ask(OffsetFetchRequest(groups=[])).groups == []
        assert idle.is_closed()
        assert fetch(busy, topic).error_code == ErrorCode.NONE
        busy.close()


@pytest.mark.parametrize("refused", [False, True], ids=["idle", "refused"])
def test_a_connection_that_takes_nothing_ends_too(refused: bool, caplog: pytest.LogCaptureFixture) -> None:
    """To close it sends what is left first, which nobody takes: it would be there, and in the way, for good."""
    caplog.set_level(logging.INFO, "fencepost.broker.network.connection")
    with serving(connections_max_idle_ms=200) as broker:
        writer = Client(broker)
        topic = new_topic(writer, max_message_bytes=str(20 * MEGABYTE))
        produce(writer, topic, batch(*["x" * MEGABYTE] * 16))
        reader = Client(broker)
        reader.send(fetch_request(reader, topic, max_bytes=20 * MEGABYTE))
        wait_until("its answer is there", lambda: held(broker) > MEGABYTE)
        if refused:
            reader.send_bytes(b"\xff" * 100)
        wait_until("both are gone", lambda: not connections_of(broker))
        assert held(broker) == 0
        reader.close()
        writer.close()
    assert len(caplog.messages) == 2, "each was said once"


@pytest.mark.parametrize("idle_ms", [-1, 600_000])
def test_idle_time_is_counted_from_the_last_byte(client: Client, idle_ms: int) -> None:
    broker = client.broker
    assert client.ask(HELLO).error_code == ErrorCode.NONE
    (connection,) = on_the_loop(broker, lambda: connections_of(broker))
    for now in (1000.0, 1000.0 + 599.9):
        on_the_loop(broker, lambda now=now: connection.tidy(now, idle_ms / 1000))  # type: ignore[misc]
    assert client.ask(HELLO).error_code == ErrorCode.NONE
    on_the_loop(broker, lambda: connection.tidy(1600.0, idle_ms / 1000))
    on_the_loop(broker, lambda: connection.tidy(1600.0 + 599.9, idle_ms / 1000))
    assert client.ask(HELLO).error_code == ErrorCode.NONE
    on_the_loop(broker, lambda: connection.tidy(3000.0, idle_ms / 1000))
    on_the_loop(broker, lambda: connection.tidy(3600.0, idle_ms / 1000))
    assert client.is_closed() if idle_ms > 0 else client.ask(HELLO).error_code == ErrorCode.NONE


def test_idle_time_is_counted_from_the_last_answer_too(client: Client) -> None:
    """It may come long after its request, as that of a JoinGroup."""
    topic = new_topic(client)
    (connection,) = on_the_loop(client.broker, lambda: connections_of(client.broker))
    client.send(fetch_request(client, topic, wait_ms=60_000))
    wait_until("it waits", lambda: bool(connection.under_way))
    for now in (1000.0, 1001.0, 1599.0):
        on_the_loop(client.broker, lambda now=now: connection.tidy(now, 600))  # type: ignore[misc]
    writer = Client(client.broker)
    produce(writer, topic, batch("a"))
    assert values(client.receive().responses[0].partitions[0]) == ["a"]
    on_the_loop(client.broker, lambda: connection.tidy(1600.0, 600))
    assert client.ask(HELLO).error_code == ErrorCode.NONE
    writer.close()


def test_the_other_end_is_looked_after(client: Client) -> None:
    """SO_KEEPALIVE, as Apache Kafka: who is gone without a word is noticed."""
    client.ask(HELLO)
    (connection,) = on_the_loop(client.broker, lambda: connections_of(client.broker))
    assert connection._transport is not None
    ours = connection._transport.get_extra_info("socket")
    assert ours.getsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE) == 1
    assert ours.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY) == 1
