"""A client in a forked child, and one that nobody closes."""

from __future__ import annotations

import asyncio
import gc
import os
import subprocess
import sys
import traceback
import warnings
from collections.abc import Callable
from typing import Any

import pytest
from tests.client.forgetting import what_is_said_of_clients_that_go
from tests.client.test_producer import simulate

from fencepost.broker import running_broker
from fencepost.client import Consumer, Producer, TopicPartition, blocking
from fencepost.client.errors import MisuseError
from fencepost.simulation.world import ADDRESS, World

AT = TopicPartition("t", 0)
SAID = "this client was made before the process was forked.*make a new one in the child"


def in_a_child(work: Callable[[], None]) -> None:
    """Have it done in a forked process, which must end well within ten seconds."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)
        child = os.fork()
    if child == 0:
        code = 1
        try:
            work()
            code = 0
        except BaseException:
            traceback.print_exc()
        finally:
            os._exit(code)
    for _ in range(100):
        ended, status = os.waitpid(child, os.WNOHANG)
        if ended:
            assert status == 0
            return
        subprocess.run([sys.executable, "-c", "import time; time.sleep(0.1)"], check=True)
    os.kill(child, 9)
    os.waitpid(child, 0)
    raise AssertionError("the child hangs")


def test_a_blocking_client_says_so_at_once_and_its_parent_goes_on() -> None:
    with running_broker() as broker:
        servers = broker.bootstrap_servers
        with (
            blocking.Producer(servers) as writer,
            blocking.Consumer("t", bootstrap_servers=servers, group_id="g") as reader,
            blocking.Admin(servers) as admin,
        ):
            writer.send("t", b"1", partition=0).result()
            reader.poll(100)
            left = writer.send("t", b"2", partition=0)

            def use() -> None:
                calls: list[Callable[[], Any]] = [
                    lambda: writer.send("t", b"of the child", partition=0),
                    writer.flush,
                    reader.poll,
                    reader.commit,
                    admin.topics,
                ]
                for call in calls:
                    with pytest.raises(MisuseError, match=SAID):
                        call()
                for client in (writer, reader, admin):
                    client.close()

            in_a_child(use)
            assert left.result().offset == 1
            writer.send("t", b"3", partition=0).result()
            assert [next(reader).value for _ in range(3)] == [b"1", b"2", b"3"]
            assert admin.topics() == ["__consumer_offsets", "t"]


def test_an_asyncio_client_says_so_at_once_and_its_parent_goes_on() -> None:
    async def use_in_parent(servers: str) -> None:
        async with Producer(servers) as writer, Consumer("t", bootstrap_servers=servers, group_id="g") as reader:
            await (await writer.send("t", b"1", partition=0))
            await reader.poll(100)

            async def use() -> None:
                for call in (writer.send("t", b"2", partition=0), reader.poll(), reader.commit({AT: 1})):
                    with pytest.raises(MisuseError, match=SAID):
                        await call
                await writer.close()
                await reader.close()

            def finish() -> None:
                asyncio.events._set_running_loop(None)
                asyncio.run(use())

            in_a_child(finish)
            await (await writer.send("t", b"3", partition=0))
            assert [(await anext(reader)).value for _ in range(2)] == [b"1", b"3"]

    with running_broker() as broker:
        asyncio.run(use_in_parent(broker.bootstrap_servers))


def forget(clients: list[Any]) -> None:
    clients.clear()
    gc.collect()


def test_a_producer_that_is_forgotten_says_what_may_be_lost(caplog: pytest.LogCaptureFixture) -> None:
    async def scenario(world: World) -> None:
        clients = [Producer(ADDRESS, runtime=world.runtime("writer"), linger_ms=1000, transactional_id="id")]
        await clients[0].init_transactions()
        await clients[0].begin_transaction()
        for number in range(3):
            await clients[0].send("t", b"%d" % number, partition=number % 2)
        with pytest.warns(ResourceWarning, match=r"producer 'fencepost-producer' \(transactional_id='id'\) was not"):
            forget(clients)
        assert "3 records were not acknowledged: they may be lost" in caplog.text

    simulate(scenario)


def test_a_consumer_that_is_forgotten_says_who_waits_for_it() -> None:
    async def scenario(world: World) -> None:
        clients = [Consumer("t", group_id="g", bootstrap_servers=ADDRESS, runtime=world.runtime("reader"))]
        await clients[0].poll(1000)
        with pytest.warns(ResourceWarning, match="consumer 'fencepost-consumer' of group 'g' was not closed"):
            forget(clients)

    simulate(scenario)


def test_a_child_says_nothing_of_a_client_that_its_parent_closes() -> None:
    clients = [blocking.Producer("127.0.0.1:1")]
    (writer,) = clients

    def leave() -> None:
        nonlocal writer
        with what_is_said_of_clients_that_go() as said:
            del writer
            clients.clear()
        assert said == []

    try:
        in_a_child(leave)
    finally:
        writer.close()


def test_who_is_closed_says_nothing() -> None:
    async def scenario(world: World) -> None:
        async with Producer(ADDRESS, runtime=world.runtime("writer")) as writer:
            await writer.send("t", b"1", partition=0)
        async with Consumer("t", bootstrap_servers=ADDRESS, runtime=world.runtime("reader")) as reader:
            await reader.poll(100)
        with what_is_said_of_clients_that_go() as said:
            del writer, reader
        assert said == []

    simulate(scenario)


@pytest.mark.parametrize("imported", ["fencepost.client", "fencepost.client.blocking"])
def test_a_process_that_ends_without_closing_says_so(imported: str) -> None:
    blocks = imported.endswith("blocking")
    lines = [
        f"import asyncio, fencepost.client.blocking as b, {imported} as c",
        "async def start():",
        "    writer = c.Producer('127.0.0.1:1')",
        "    await writer.start()",
        "    return writer",
        "w = b.Producer('127.0.0.1:1')" if blocks else "w = asyncio.run(start())",
    ]
    code = [sys.executable, "-W", "default::ResourceWarning", "-c", "\n".join(lines)]
    ended = subprocess.run(code, capture_output=True, text=True, timeout=60)
    assert ended.returncode == 0
    assert ended.stderr.count("producer 'fencepost-producer' was not closed, and 0 records") == 1, ended.stderr


def test_records_that_a_thread_left_count_where_nobody_closes() -> None:
    """Whether or not the event loop has put them into batches by then."""
    with running_broker() as broker:
        lines = [
            "import fencepost.client.blocking as b",
            f"w = b.Producer({broker.bootstrap_servers!r}, linger_ms=60_000)",
            "for _ in range(1000): w.send('t', b'1')",
        ]
        code = [sys.executable, "-W", "default::ResourceWarning", "-c", "\n".join(lines)]
        ended = subprocess.run(code, capture_output=True, text=True, timeout=60)
    assert ended.returncode == 0
    assert "producer 'fencepost-producer' was not closed, and 1000 records were not acknow" in ended.stderr, (
        ended.stderr
    )
