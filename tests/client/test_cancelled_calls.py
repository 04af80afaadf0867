"""Whoever is cancelled in a call is cancelled, whatever it waits for, and the client can be closed after it."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import pytest
from tests.client.slow_requests import slowly
from tests.client.test_closed import ADMIN_CALLS, AT, CONSUMER_CALLS, PRODUCER_CALLS
from tests.client.test_producer import simulate

from fencepost.client import Admin, Consumer, Producer
from fencepost.simulation.world import ADDRESS, World

Calls = dict[str, Callable[[Any], Awaitable[Any]]]


def close(client: Any) -> Awaitable[None]:
    closed: Awaitable[None] = client.close()
    return closed


async def producing(world: World) -> Producer:
    """With a record on its way."""
    writer = await Producer(ADDRESS, runtime=world.runtime(f"writer {world.random.random()}")).start()
    await (await writer.send("t", b"before", partition=0))
    return writer


async def in_transaction(world: World) -> Producer:
    runtime = world.runtime(f"writer {world.random.random()}")
    writer = await Producer(ADDRESS, transactional_id=f"id {world.random.random()}", runtime=runtime).start()
    await writer.init_transactions()
    await writer.begin_transaction()
    await (await writer.send("t", b"before", partition=0))
    return writer


async def consuming(world: World) -> Consumer:
    runtime = world.runtime(f"reader {world.random.random()}")
    reader = Consumer(bootstrap_servers=ADDRESS, group_id=f"g {world.random.random()}", runtime=runtime)
    reader.assign([AT])
    await reader.poll(1000)
    return reader


async def administering(world: World) -> Admin:
    admin = Admin(ADDRESS, runtime=world.runtime(f"admin {world.random.random()}"))
    await admin.topics()
    return admin


CASES: dict[str, tuple[Callable[[World], Awaitable[Any]], Calls, int]] = {
    "producer": (
        producing,
        {"send_and_wait": lambda one: one.send_and_wait("t", b"", partition=0), "flush": lambda one: one.flush()},
        2,
    ),
    "transactions": (in_transaction, PRODUCER_CALLS, 3),
    "consumer": (consuming, CONSUMER_CALLS, 7),
    "admin": (administering, ADMIN_CALLS, 9),
}


@pytest.mark.parametrize("broker", ["dead", "silent"])
@pytest.mark.parametrize("kind", CASES)
def test_whoever_is_cancelled_in_a_call_is_cancelled(monkeypatch: pytest.MonkeyPatch, kind: str, broker: str) -> None:
    made, calls, at_least = CASES[kind]
    calls = {**calls, "close": close} if kind != "admin" else calls  # whose close waits for nobody

    async def scenario(world: World) -> None:
        clients = {call: await made(world) for call in calls}
        with monkeypatch.context() as silence:
            if broker == "silent":
                slowly(silence, object, 1000)
            else:
                world.kill()
            if kind == "producer":
                for client in clients.values():
                    await client.send("t", b"on its way", partition=0)
            waiting = {call: asyncio.ensure_future(calls[call](client)) for call, client in clients.items()}
            await asyncio.sleep(1)
            waiting = {call: task for call, task in waiting.items() if not task.done()}
            assert len(waiting) >= at_least
            for task in waiting.values():
                task.cancel()
            await asyncio.wait(waiting.values(), timeout=5)
            assert [call for call, task in waiting.items() if not (task.done() and task.cancelled())] == []
        if broker == "dead":
            await world.start()
        async with asyncio.timeout(100):
            await asyncio.gather(*(client.close(1000) for client in clients.values()))

    simulate(scenario)
