"""The calls of a transactional producer while something of its transaction is on its way."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from typing import Any

import pytest
from tests.client.test_producer import producer, shown, simulate

from fencepost.broker.network.registry import SERVED
from fencepost.client import ClosedError
from fencepost.simulation.world import PORT, World

ADD_PARTITIONS = 24
INIT_PRODUCER_ID = 22


def test_an_abort_comes_after_partitions_that_are_being_made_part_of_the_transaction(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Their request is repeated, for its answer was lost: behind the abort it would begin a transaction by itself."""
    handler = SERVED[ADD_PARTITIONS].handler
    asked = 0

    async def scenario(world: World) -> None:
        is_asked = asyncio.Event()

        def without_answer(request: Any, context: Any, node: Any) -> Any:
            nonlocal asked
            asked += 1
            if asked == 1:
                world.network.break_connections(PORT)
            is_asked.set()
            return handler(request, context, node)

        monkeypatch.setitem(SERVED, ADD_PARTITIONS, replace(SERVED[ADD_PARTITIONS], handler=without_answer))
        async with producer(world) as writer:
            await writer.init_transactions()
            await writer.begin_transaction()
            await writer.send("t", b"aborted", partition=0)
            await is_asked.wait()
            await writer.abort_transaction()
            async with writer.transaction():
                await writer.send("t", b"committed", partition=0)
        assert await shown(world) == [b"committed"]

    simulate(scenario, 1)
    assert asked == 3, "it was repeated, and asked for again in the next transaction"


def test_closing_does_not_wait_for_an_id_that_is_being_taken_over(monkeypatch: pytest.MonkeyPatch) -> None:
    async def scenario(world: World) -> None:
        asked = asyncio.Event()

        def never(*_: Any) -> Any:
            asked.set()
            return asyncio.Event().wait()

        monkeypatch.setitem(SERVED, INIT_PRODUCER_ID, replace(SERVED[INIT_PRODUCER_ID], handler=never))
        writer = producer(world)
        taking = asyncio.ensure_future(writer.init_transactions())
        await asked.wait()
        begun = world.loop.time()
        await writer.close()
        assert world.loop.time() - begun < 1
        with pytest.raises(ClosedError):
            await taking

    simulate(scenario)
