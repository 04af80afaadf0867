"""The calls of a transactional producer while something of its transaction is on its way."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from typing import Any

import pytest
from tests.client.test_producer import producer, shown, simulate

from fencepost.broker.network.registry import SERVED
from fencepost.simulation.world import PORT, World

ADD_PARTITIONS = 24


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
