"""A producer that was closed stays closed."""

from __future__ import annotations

import asyncio
import gc
import warnings
from contextlib import suppress

import pytest
from tests.client.test_producer import producer, simulate

from fencepost.client import ClosedError
from fencepost.simulation.world import World


@pytest.mark.parametrize("call", ["start", "init_transactions"])
def test_a_closed_producer_begins_nothing_anew(call: str) -> None:
    """It would ask for metadata for ever, and in the end be told of as one that nobody closed."""

    async def scenario(world: World) -> None:
        writer = producer(world)
        await writer.close()
        before = asyncio.all_tasks()
        with suppress(ClosedError):
            await getattr(writer, call)()
        assert asyncio.all_tasks() <= before
        with warnings.catch_warnings(record=True) as told:
            warnings.simplefilter("always")
            del writer
            gc.collect()
        assert [str(each.message) for each in told if each.category is ResourceWarning] == []

    simulate(scenario)
