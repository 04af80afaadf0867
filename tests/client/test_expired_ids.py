"""KIP-360, failure handling: a producer whose transactional id has expired (INVALID_PRODUCER_ID_MAPPING)."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from dataclasses import replace
from typing import Any

import pytest
from tests.client.test_producer import LEVELS, producer, shown, simulate

from fencepost.broker.network.registry import SERVED
from fencepost.client import (
    Admin,
    CommitInDoubtError,
    Producer,
    ProducerFencedError,
    TopicPartition,
    TransactionAbortableError,
    TransactionTimedOutError,
)
from fencepost.simulation.world import ADDRESS, World

END_TXN = 26
EXPIRY = {"transactional.id.expiration.ms": 5000, "transaction.remove.expired.transaction.cleanup.interval.ms": 1000}
CALLS = pytest.mark.parametrize("call", ["send", "offsets"])


async def commit(writer: Producer, value: bytes) -> None:
    async with writer.transaction():
        await writer.send("t", value, partition=0)


async def use(writer: Producer, call: str) -> None:
    await writer.begin_transaction()
    if call == "send":
        await writer.send("t", b"with the expired pair", partition=1)
    else:
        await writer.send_offsets_to_transaction({TopicPartition("t", 0): 1}, "group")
    await writer.commit_transaction()


async def expire(world: World) -> None:
    await asyncio.sleep(10)
    async with Admin(ADDRESS, runtime=world.runtime("admin")) as admin:
        assert await admin.list_transactions() == {}


@pytest.mark.promise("360.mapping-gone")
@LEVELS
@CALLS
def test_cases_1_and_2_the_open_transaction_is_aborted_and_the_same_producer_goes_on(level: int, call: str) -> None:
    async def scenario(world: World) -> None:
        async with producer(world) as writer:
            await writer.init_transactions()
            await commit(writer, b"before")
            await expire(world)
            with pytest.raises(TransactionAbortableError, match="has forgotten") as told:
                await use(writer, call)
            assert not isinstance(told.value, TransactionTimedOutError), "nothing was open for too long"
            await writer.abort_transaction()
            await commit(writer, b"after")
        assert await shown(world) == [b"before", b"after"]

    simulate(scenario, level, **EXPIRY)


@pytest.mark.promise("360.expired-and-reused", "360.mapping-taken")
@LEVELS
@CALLS
def test_case_3_another_producer_has_the_id_by_now(level: int, call: str) -> None:
    async def scenario(world: World) -> None:
        async with producer(world) as first, producer(world) as second:
            await first.init_transactions()
            await commit(first, b"first")
            await expire(world)
            await second.init_transactions()
            await commit(second, b"second")
            with pytest.raises(ProducerFencedError):
                await use(first, call)
            await commit(second, b"second again")
        assert await shown(world) == [b"first", b"second", b"second again"]

    simulate(scenario, level, **EXPIRY)


async def interrupted(monkeypatch: pytest.MonkeyPatch, call: Coroutine[Any, Any, object]) -> None:
    """Its EndTxn is carried out; whoever waits for the answer is interrupted then."""
    handler, asking = SERVED[END_TXN].handler, asyncio.create_task(call)

    def carried_out(request: Any, context: Any, node: Any) -> Any:
        asking.cancel()
        return handler(request, context, node)

    with monkeypatch.context() as patched:
        patched.setitem(SERVED, END_TXN, replace(SERVED[END_TXN], handler=carried_out))
        await asyncio.wait([asking])
    assert asking.cancelled()


@LEVELS
@pytest.mark.parametrize("expires", [True, False])
def test_a_commit_that_was_interrupted_is_in_doubt_once_the_id_is_forgotten(
    monkeypatch: pytest.MonkeyPatch, level: int, expires: bool
) -> None:
    """It was carried out here: whoever is told that nothing of it is there writes it again."""

    async def scenario(world: World) -> None:
        async with producer(world) as writer:
            await writer.init_transactions()
            await writer.begin_transaction()
            await writer.send("t", b"paid", partition=0)
            await interrupted(monkeypatch, writer.commit_transaction())
            if expires:
                await expire(world)
                with pytest.raises(CommitInDoubtError, match="committed or not: read the output"):
                    await writer.commit_transaction()
            else:
                await writer.commit_transaction()
        assert await shown(world) == [b"paid"]

    simulate(scenario, level, **EXPIRY)


def test_a_prepared_transaction_whose_completion_was_interrupted_is_not_known_to_be_committed_then(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async def scenario(world: World) -> None:
        async with producer(world) as writer:
            await writer.init_transactions()
            await writer.begin_transaction()
            await writer.send("t", b"paid", partition=0)
            kept = str(await writer.prepare_transaction())
        async with producer(world) as other:
            await interrupted(monkeypatch, other.complete_transaction(kept))
            await expire(world)
            assert not await other.complete_transaction(kept)
        assert await shown(world) == [b"paid"]

    simulate(scenario, **EXPIRY)
