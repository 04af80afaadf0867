"""The examples of the pages on consumer groups, on reading in commit order and on the loop, each run on a node."""

from __future__ import annotations

import asyncio
import textwrap
from collections.abc import Awaitable, Callable
from functools import partial
from typing import Any

import pyarrow as pa
import pytest
from tests.client.test_producer import simulate
from tests.docs.reading import ROOT, blocks

from fencepost import client
from fencepost.simulation.world import ADDRESS, World

DOCS = ROOT / "docs"
LISTENER, NEW_PROTOCOL, BATCHES, ROWS = blocks(DOCS / "consumer_groups.md", "python")
(COMMIT_ORDER,) = blocks(DOCS / "commit_order.md", "python")
LOOP = blocks(DOCS / "exactly_once.md", "python")[0]
VALUES = [b"1", b"2", b"3"]


async def for_a_while(block: str, names: dict[str, Any]) -> None:
    """The example, which goes on for ever, for five virtual seconds; what it raises is raised."""
    exec("async def example():\n" + textwrap.indent(block, "    "), names)
    running = asyncio.ensure_future(names["example"]())
    await asyncio.wait([running], timeout=5)
    if running.done():
        running.result()
    running.cancel()
    await asyncio.wait([running])


def on_a_node(use: Callable[[World, dict[str, Any]], Awaitable[None]], monkeypatch: pytest.MonkeyPatch) -> None:
    """With records in `payments` and `payments-eu`, and with all names of the client, which work in that world."""

    async def scenario(world: World) -> None:
        runtime = world.runtime("reader of the page")
        names: dict[str, Any] = {name: getattr(client, name) for name in client.__all__} | {"servers": ADDRESS}
        for name in ("Consumer", "Producer"):
            made = partial(getattr(client, name), runtime=runtime)
            monkeypatch.setattr(client, name, made)
            names[name] = made
        async with client.Admin(ADDRESS, runtime=runtime) as admin:
            await admin.create_topics([client.NewTopic(name) for name in ("payments", "payments-eu", "ledger")])
        async with client.Producer(ADDRESS) as producer:
            for topic in ("payments", "payments-eu"):
                for value in VALUES:
                    await producer.send_and_wait(topic, value)
        await use(world, names)

    simulate(scenario)


async def position(world: World, topic: str) -> int:
    async with client.Admin(ADDRESS, runtime=world.runtime("admin")) as admin:
        found = await admin.list_group_offsets("ledger", [client.TopicPartition(topic, 0)])
    place = found[client.TopicPartition(topic, 0)]
    return -1 if place is None else place.offset


def test_a_group_with_a_listener_reads_and_commits(monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[bytes] = []

    async def use(world: World, names: dict[str, Any]) -> None:
        # the listener of the example knows the consumer as a variable of its module
        await for_a_while("global consumer\n" + LISTENER, names | {"print": seen.append})
        assert await position(world, "payments-eu") == len(VALUES)

    on_a_node(use, monkeypatch)
    assert seen == VALUES


def test_a_member_of_the_new_protocol_can_be_made(monkeypatch: pytest.MonkeyPatch) -> None:
    async def use(_: World, names: dict[str, Any]) -> None:
        await for_a_while(NEW_PROTOCOL, names)

    on_a_node(use, monkeypatch)


def test_batches_are_read_and_committed(monkeypatch: pytest.MonkeyPatch) -> None:
    async def use(world: World, names: dict[str, Any]) -> None:
        member = client.Consumer("payments", bootstrap_servers=ADDRESS, group_id="ledger", auto_commit=False)
        async with member as consumer:
            await for_a_while("global table\n" + BATCHES, names | {"consumer": consumer})
        assert await position(world, "payments") == len(VALUES)

    on_a_node(use, monkeypatch)


def test_rows_of_a_table_are_written(monkeypatch: pytest.MonkeyPatch) -> None:
    written: list[Any] = []

    async def use(_: World, names: dict[str, Any]) -> None:
        async with client.Producer(ADDRESS) as producer:
            await for_a_while("global rows\n" + ROWS, names | {"producer": producer, "pa": pa, "print": written.append})

    on_a_node(use, monkeypatch)
    (told,) = written
    assert sum(len(each) for ranges in told.values() for each in ranges) == 2


def test_a_consumer_in_commit_order_reads(monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[bytes] = []

    async def use(_: World, names: dict[str, Any]) -> None:
        await for_a_while(COMMIT_ORDER.replace("...", "seen.append(record.value)"), names | {"seen": seen})

    on_a_node(use, monkeypatch)
    assert seen == VALUES


def test_the_loop_writes_what_it_has_read(monkeypatch: pytest.MonkeyPatch) -> None:
    read: list[bytes | None] = []

    async def use(world: World, names: dict[str, Any]) -> None:
        await for_a_while(LOOP, names)
        assert await position(world, "payments") == len(VALUES)
        async with client.Consumer("ledger", bootstrap_servers=ADDRESS) as consumer:
            read.extend(record.value for record in await consumer.poll(5000))

    on_a_node(use, monkeypatch)
    assert read == VALUES
