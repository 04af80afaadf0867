"""One connection does not harm the node or the others: slow readers, failing handlers."""

from __future__ import annotations

import asyncio
import gc
import logging
from collections.abc import Callable
from dataclasses import replace
from typing import Any
from weakref import ref

import pytest
from tests.broker.group_talk import alone, find_group, join_request
from tests.broker.wire import (
    HELLO,
    MEGABYTE,
    Client,
    batch,
    clients,
    connections_of,
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

from fencepost.broker.authorizer import Operation, Resource
from fencepost.broker.network.connection import Connection
from fencepost.broker.network.registry import SERVED, Reply, independent
from fencepost.broker.network.request_context import RequestContext
from fencepost.broker.node import Node
from fencepost.log.commit_log import StorageFailed
from fencepost.protocol.errors import ErrorCode
from fencepost.protocol.messages import (
    FindCoordinatorRequest,
    FindCoordinatorResponse,
    LeaveGroupRequest,
    MetadataRequest,
)
from fencepost.protocol.messages.find_coordinator import Coordinator

client = clients()


@pytest.mark.parametrize("pieces", [1, 100])
def test_a_client_that_does_not_read_is_not_answered_without_end(client: Client, pieces: int) -> None:
    """However it sends its requests: one answer more than the transport takes, and no further request is handled."""
    topic, slow = new_topic(client), Client(client.broker)
    assert produce(client, topic, batch("x" * (MEGABYTE - 200))).error_code == ErrorCode.NONE
    requests = [slow.frame(fetch_request(slow, topic)) for _ in range(100)]
    for number in range(pieces):
        share = len(requests) // pieces
        slow.send_bytes(b"".join(requests[number * share : (number + 1) * share]))
    assert client.ask(HELLO).error_code == ErrorCode.NONE
    assert held(client.broker) < 4 * MEGABYTE
    for _ in range(100):
        (fetched,) = slow.receive().responses[0].partitions
        assert len(values(fetched)) == 1
    assert slow.ask(HELLO).error_code == ErrorCode.NONE
    slow.close()


class Breaks:
    """An authorizer with a bug."""

    def allows(self, principal: str, host: str, operation: Operation, resource: Resource, name: str) -> bool:  # noqa: ARG002
        raise ZeroDivisionError(name)


@pytest.mark.parametrize(
    ("request_", "api"),
    [(MetadataRequest(topics=None), 3), (join_request(), 11)],
    ids=["a function", "a coroutine function"],
)
def test_a_handler_that_fails_ends_its_own_connection_only(
    request_: object, api: int, caplog: pytest.LogCaptureFixture
) -> None:
    with serving(Breaks()) as broker, caplog.at_level(logging.ERROR):
        client = Client(broker)
        on_the_loop(broker, lambda: broker.node.topics.create_at_once("t", 1))
        client.send(HELLO, request_, HELLO)
        assert client.receive().error_code == ErrorCode.NONE
        assert client.receive().error_code == ErrorCode.UNKNOWN_SERVER_ERROR
        assert client.receive().error_code == ErrorCode.NONE, "the connection goes on"
        client.close()
    (line,) = [record for record in caplog.records if record.name == "fencepost.broker.network.error_responses"]
    assert f"api={api} " in line.getMessage()
    assert line.exc_info is not None and line.exc_info[0] is ZeroDivisionError


def test_a_failure_that_no_answer_can_tell_ends_its_own_connection_only() -> None:
    with serving(Breaks()) as broker:
        client, other = Client(broker), Client(broker)
        on_the_loop(broker, lambda: broker.node.topics.create_at_once("t", 1))
        client.send(HELLO)
        client.send(MetadataRequest(topics=None), version=12)
        assert client.receive().error_code == ErrorCode.NONE, "what was answered before is sent"
        assert client.is_closed()
        assert other.ask(HELLO).error_code == ErrorCode.NONE
        other.close()


@pytest.mark.parametrize("request_", [MetadataRequest(topics=None), join_request()], ids=["at once", "later"])
def test_a_request_that_fails_while_the_node_stops_is_not_answered(
    request_: object, caplog: pytest.LogCaptureFixture
) -> None:
    """Whoever is told of an unknown error gives up; who loses his connection asks again when the node is back."""
    with serving(Breaks()) as broker, caplog.at_level(logging.ERROR):
        client = Client(broker)
        on_the_loop(broker, lambda: broker.node.topics.create_at_once("t", 1))
        assert client.ask(HELLO).error_code == ErrorCode.NONE
        on_the_loop(broker, lambda: broker.node.storage.fail(StorageFailed("the disk did not take a sync")))
        client.send(request_)
        assert client.is_closed()
    assert "a request failed" not in caplog.text


@pytest.mark.parametrize("waits", [False, True])
def test_an_answer_that_cannot_be_sent_is_an_error(monkeypatch: pytest.MonkeyPatch, waits: bool) -> None:
    async def later(request: Any, context: RequestContext, node: Node) -> Reply:
        return now(request, context, node)

    def now(_: Any, __: RequestContext, node: Node) -> Reply:
        broken = FindCoordinatorResponse(error_code=ErrorCode.NONE, coordinators=[_coordinator("x" * 32_768)])
        return Reply(broken, node.storage.last_appended)

    key = 10
    monkeypatch.setitem(SERVED, key, replace(SERVED[key], handler=later if waits else now))
    with serving() as broker:
        client = Client(broker)
        topic = new_topic(client)
        client.send(produce_request(client, topic, [batch("a")]))
        client.send(FindCoordinatorRequest(coordinator_keys=["g"]), FindCoordinatorRequest(coordinator_keys=["h"]))
        assert client.receive().responses[0].partition_responses[0].error_code == ErrorCode.NONE
        for name in "gh":
            (told,) = client.receive().coordinators
            assert (told.key, told.error_code) == (name, ErrorCode.UNKNOWN_SERVER_ERROR)
        client.close()


def _coordinator(name: str) -> Coordinator:
    return Coordinator(key=name, node_id=0, host="h", port=1, error_code=ErrorCode.NONE)


def test_what_fails_while_somebody_else_is_answered_ends_its_own_connection_only(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A sync calls back every connection that waits for it, and one of them goes on with its next request."""
    with serving() as broker:
        first, second, third = Client(broker), Client(broker), Client(broker)
        topic = new_topic(first)
        every = [first, second, third]
        for client in every:
            assert client.ask(HELLO).error_code == ErrorCode.NONE
        ready = Connection._ready
        broken = on_the_loop(broker, lambda: connections_of(broker)[0])

        def breaks(self: Connection) -> None:
            if self is broken:
                raise ZeroDivisionError
            ready(self)

        monkeypatch.setattr(Connection, "_ready", breaks)
        requests = [client.frame(produce_request(client, topic, [batch("a")])) for client in every]

        def at_once() -> None:
            """In one step of the loop, so that one sync answers them all."""
            for connection, request in zip(connections_of(broker), requests, strict=True):
                connection.get_buffer(-1)[: len(request)] = request
                connection.buffer_updated(len(request))

        on_the_loop(broker, at_once)
        for client in every[1:]:
            assert client.receive().responses[0].partition_responses[0].error_code == ErrorCode.NONE
            assert client.ask(HELLO).error_code == ErrorCode.NONE
        for client in every:
            client.close()


@pytest.mark.parametrize("versions", [(3, 4), (4, 3), (4, 4)])
def test_a_request_that_waits_keeps_its_own_name_and_version(
    monkeypatch: pytest.MonkeyPatch, versions: tuple[int, int]
) -> None:
    """What is said of it later is said of its client, whoever else uses the connection meanwhile."""
    seen: list[tuple[str | None, int]] = []
    waiting: list[asyncio.Future[None]] = []

    async def later(_: Any, context: RequestContext, __: Node) -> Reply:
        if not waiting:
            waiting.append(asyncio.get_running_loop().create_future())
            await waiting[0]
        else:
            waiting[0].set_result(None)
        seen.append((context.client_id, context.version))
        return independent(FindCoordinatorResponse(error_code=ErrorCode.NONE))

    monkeypatch.setitem(SERVED, 10, replace(SERVED[10], handler=later, in_turn=False))
    with serving() as broker:
        client = Client(broker)
        frames = []
        for name, version in zip(("first", "second"), versions, strict=True):
            client._client_id = name
            frames.append(client.frame(FindCoordinatorRequest(), version))
        client.send_bytes(b"".join(frames))
        for _ in frames:
            assert client.receive().error_code == ErrorCode.NONE
        client.close()
    assert sorted(seen) == [("first", versions[0]), ("second", versions[1])]


@pytest.mark.parametrize("version", [0, 3, 4, 9])
def test_a_client_id_that_leaves_no_room_for_a_member_id(version: int) -> None:
    """Apache Kafka answers -1 to it; others in the group do not notice."""
    with serving() as broker:
        other = Client(broker)
        find_group(other)
        for name, fits in (("x" * 32_734, True), ("x" * 32_735, False), ("ü" * 16_383, False), ("x" * 32_767, False)):
            strange = Client(broker, client_id=name)
            joined = strange.ask(join_request(), version)
            if not fits:
                assert (joined.error_code, joined.member_id) == (ErrorCode.UNKNOWN_SERVER_ERROR, "")
            else:
                assert joined.error_code == (ErrorCode.MEMBER_ID_REQUIRED if version >= 4 else ErrorCode.NONE)
                leave = LeaveGroupRequest(group_id="g", member_id=joined.member_id)
                assert strange.ask(leave, 2).error_code == ErrorCode.NONE
            strange.close()
        assert alone(other).member_id
        other.close()


def test_a_stop_leaves_no_connection_to_a_client_that_does_not_read(client: Client) -> None:
    """It would never be told that nobody answers any more, and what it asked for would stay in memory."""
    topic, slow = new_topic(client), Client(client.broker)
    assert produce(client, topic, batch("x" * (MEGABYTE - 200))).error_code == ErrorCode.NONE
    slow.send(*(fetch_request(slow, topic) for _ in range(100)))
    assert client.ask(HELLO).error_code == ErrorCode.NONE
    assert client.broker.failed is not None
    asyncio.run_coroutine_threadsafe(client.broker.stop(), client.broker.failed.get_loop()).result(20)
    wait_until("no connection is left", lambda: not connections_of(client.broker), 2)
    slow.close()


def test_idle_time_is_counted_from_when_a_client_took_more_of_its_answers(client: Client) -> None:
    """One may be long, and its client slow: it asks for nothing meanwhile."""
    assert client.ask(HELLO).error_code == ErrorCode.NONE
    (connection,) = on_the_loop(client.broker, lambda: connections_of(client.broker))
    for now in (1000.0, 1001.0):
        on_the_loop(client.broker, lambda now=now: connection.tidy(now, 600))  # type: ignore[misc]
    on_the_loop(client.broker, connection.pause_writing)
    on_the_loop(client.broker, lambda: connection.tidy(1400.0, 600))
    on_the_loop(client.broker, connection.resume_writing)
    for now in (1599.0, 1601.0):
        on_the_loop(client.broker, lambda now=now: connection.tidy(now, 600))  # type: ignore[misc]
    assert client.ask(HELLO).error_code == ErrorCode.NONE


def _half_of_a_large_request(client: Client, topic: str) -> None:
    client.send_bytes(client.frame(produce_request(client, topic, [batch("x" * MEGABYTE)]))[: MEGABYTE // 2])


def _a_fetch_that_waits(client: Client, topic: str) -> None:
    client.send(fetch_request(client, topic, min_bytes=1000, wait_ms=60_000))


def _a_record(client: Client, topic: str) -> None:
    assert produce(client, topic, batch("x")).error_code == ErrorCode.NONE


@pytest.mark.parametrize("did", [_half_of_a_large_request, _a_fetch_that_waits, _a_record])
def test_a_connection_is_gone_with_its_client(client: Client, did: Callable[[Client, str], None]) -> None:
    """And its buffers, without the garbage collector, which may not come for a day (`fencepost.cli.garbage`)."""
    topic, before = new_topic(client), set(map(id, connections_of(client.broker)))
    other = Client(client.broker)
    assert other.ask(HELLO).error_code == ErrorCode.NONE
    gone = [ref(each) for each in connections_of(client.broker) if id(each) not in before]
    gc.disable()
    try:
        did(other, topic)
        client.ask(HELLO)
        other.close()
        wait_until("nothing refers to it", lambda: [each() for each in gone] == [None])
    finally:
        gc.enable()


def test_nobody_is_idle_for_too_long_where_that_is_not_bounded(client: Client) -> None:
    """connections.max.idle.ms=-1."""
    assert client.ask(HELLO).error_code == ErrorCode.NONE
    (connection,) = on_the_loop(client.broker, lambda: connections_of(client.broker))
    for now in (1000.0, 2000.0, 1e9):
        on_the_loop(client.broker, lambda now=now: connection.tidy(now, -0.001))  # type: ignore[misc]
    assert client.ask(HELLO).error_code == ErrorCode.NONE
