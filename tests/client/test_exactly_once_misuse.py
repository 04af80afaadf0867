"""What the loop refuses: clients that would break it, and a second loop on the same ones."""

from __future__ import annotations

import asyncio
import gc
from typing import Any

import pytest
from tests.client.test_exactly_once import COUNT, copy, copy_all, fill, output, reader, writer
from tests.client.test_producer import simulate

from fencepost.client import (
    ExactlyOnce,
    Producer,
)
from fencepost.client.errors import MisuseError
from fencepost.simulation.world import ADDRESS, World


@pytest.mark.parametrize(
    ("how", "said"),
    [
        ({"group_id": None}, "group_id"),
        ({"auto_commit": True}, "auto_commit"),
        ({"isolation_level": "read_uncommitted"}, "read_committed"),
    ],
)
def test_a_consumer_that_would_break_it_is_refused(how: dict[str, Any], said: str) -> None:
    async def scenario(world: World) -> None:
        async with reader(world, **how) as consumer, writer(world) as producer:
            with pytest.raises(MisuseError, match=said):
                ExactlyOnce(consumer, producer)

    simulate(scenario)


def test_a_producer_without_transactions_is_refused_and_so_is_a_send_outside_of_the_block() -> None:
    async def scenario(world: World) -> None:
        await fill(world)
        async with reader(world) as consumer, Producer(ADDRESS, runtime=world.runtime("plain")) as plain:
            with pytest.raises(MisuseError, match="transactional_id"):
                ExactlyOnce(consumer, plain)
        async with reader(world) as consumer, writer(world) as producer:
            await producer.init_transactions()
            transaction = await anext(ExactlyOnce(consumer, producer))
            for _ in range(2):
                with pytest.raises(MisuseError, match="not open"):
                    await transaction.send("out", b"1")
                if not transaction.committed:
                    await copy(transaction)
            with pytest.raises(MisuseError, match="once"):
                await copy(transaction)

    simulate(scenario)


async def until_entered(loop: ExactlyOnce, entered: asyncio.Event, leave: asyncio.Event) -> None:
    async for transaction in loop:
        async with transaction:
            for record in transaction.records:
                await transaction.send("out", record.value)
            entered.set()
            await leave.wait()
        loop.stop()


@pytest.mark.parametrize("shared", ["consumer", "producer"])
def test_a_second_loop_on_the_same_client_is_refused_while_the_first_is_at_work(shared: str) -> None:
    """Whatever it were handed would be put back, or committed, with what the first one has."""

    async def scenario(world: World) -> None:
        await fill(world)
        async with (
            reader(world) as one,
            reader(world, "another", group_id="another") as another,
            writer(world) as first,
            writer(world, "second") as second,
        ):
            entered, leave = asyncio.Event(), asyncio.Event()
            working = asyncio.ensure_future(until_entered(ExactlyOnce(one, first, max_records=3), entered, leave))
            await entered.wait()
            intruder = ExactlyOnce(one, second) if shared == "consumer" else ExactlyOnce(another, first)
            with pytest.raises(MisuseError, match=f"another ExactlyOnce loop uses this {shared}.*leave its block"):
                await anext(intruder)
            leave.set()
            await working
            await copy_all(ExactlyOnce(one, second), COUNT - 3)
        assert await output(world) == list(range(COUNT))

    simulate(scenario)


def test_a_loop_that_is_forgotten_is_in_nobodys_way() -> None:
    async def scenario(world: World) -> None:
        await fill(world)
        async with reader(world) as consumer, writer(world) as producer:
            await anext(ExactlyOnce(consumer, producer))
            gc.collect()
            consumer.seek_to_committed()
            await copy_all(ExactlyOnce(consumer, producer))
        assert await output(world) == list(range(COUNT))

    simulate(scenario)


@pytest.mark.parametrize("shared", ["consumer", "producer"])
def test_a_second_loop_is_refused_as_soon_as_the_first_has_handed_something_out(shared: str) -> None:
    async def scenario(world: World) -> None:
        await fill(world)
        async with (
            reader(world) as one,
            reader(world, "another", group_id="another") as another,
            writer(world) as first,
            writer(world, "second") as second,
        ):
            transaction = await anext(ExactlyOnce(one, first))
            intruder = ExactlyOnce(one, second) if shared == "consumer" else ExactlyOnce(another, first)
            with pytest.raises(MisuseError, match=f"another ExactlyOnce loop uses this {shared}"):
                await anext(intruder)
            await copy(transaction)
        assert await output(world) == sorted(int(record.value or b"") for record in transaction.records)

    simulate(scenario)
