"""transaction.abort.on.disconnect: what a producer left open is aborted soon after its connection closed."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any

import pytest

from fencepost.broker.authorizer import AllowEverything
from fencepost.broker.network.disconnections import Disconnections
from fencepost.broker.network.request_context import Peer
from fencepost.client import Admin, Producer
from fencepost.protocol.types import Milliseconds, ProducerId, ProducerIdAndEpoch
from fencepost.simulation.loop import VirtualLoop, run
from fencepost.simulation.world import ADDRESS, World

GRACE_MS = 500


async def state_after(world: World, seconds: float) -> str:
    await asyncio.sleep(seconds)
    async with Admin(ADDRESS, runtime=world.runtime(f"admin-{world.loop.time()}")) as admin:
        found = await admin.describe_transaction("id")
    assert found is not None
    return found.state


def states(enabled: bool, leaves: bool, prepared: bool = False) -> tuple[str, str]:
    """State of the open transaction within the grace time, and after it."""

    async def main(loop: VirtualLoop) -> tuple[str, str]:
        settings = {
            "transaction.abort.on.disconnect": enabled,
            "transaction.abort.on.disconnect.grace.ms": GRACE_MS,
            "transaction.two.phase.commit.enable": True,
        }
        world = World(loop, 1, settings)
        await world.start()
        producer = Producer(ADDRESS, transactional_id="id", runtime=world.runtime("producer"))
        await producer.init_transactions()
        if prepared:
            assert world.broker is not None
            answer = world.broker.node.transactions.init_producer_id("id", Milliseconds(60_000), enable_2pc=True)
            assert producer._transactions is not None
            producer._transactions._producer_id_and_epoch = ProducerIdAndEpoch.of(
                answer.producer_id, answer.producer_epoch
            )
        await producer.begin_transaction()
        await (await producer.send("t", b"open"))
        if leaves:
            await producer.abandon()
        found = await state_after(world, GRACE_MS / 2000), await state_after(world, GRACE_MS / 1000)
        await producer.abandon()
        await world.stop()
        return found

    return run(main)


@pytest.mark.promise("2014.closed-connection")
def test_it_is_aborted_after_the_grace_time() -> None:
    assert states(enabled=True, leaves=True) == ("Ongoing", "CompleteAbort")


@pytest.mark.parametrize(("enabled", "leaves"), [(False, True), (True, False)])
def test_it_stays_open_while_the_producer_does_or_where_the_setting_is_off(enabled: bool, leaves: bool) -> None:
    assert states(enabled, leaves) == ("Ongoing", "Ongoing")


def test_a_two_phase_commit_is_left_alone() -> None:
    assert states(enabled=True, leaves=True, prepared=True) == ("Ongoing", "Ongoing")


def test_whoever_comes_back_within_the_grace_time_goes_on() -> None:
    """Under the producer id that it had."""
    aborted: list[tuple[str, int]] = []
    transactions: Any = SimpleNamespace(abort_abandoned=lambda name, producer_id: aborted.append((name, producer_id)))

    async def main(_: VirtualLoop) -> None:
        disconnections = Disconnections(transactions, True, Milliseconds(GRACE_MS))
        first, second = Peer(AllowEverything(), "/here"), Peer(AllowEverything(), "/here")
        disconnections.claimed("id", first, ProducerId(7))
        disconnections.lost(first)
        await asyncio.sleep(GRACE_MS / 2000)
        disconnections.claimed("id", second, ProducerId(7))
        disconnections.lost(first)
        await asyncio.sleep(GRACE_MS / 500)
        assert aborted == []
        disconnections.lost(second)
        await asyncio.sleep(GRACE_MS / 2000)
        disconnections.claimed("id", first, ProducerId(7))
        disconnections.lost(first)
        await asyncio.sleep(GRACE_MS / 1500)
        assert aborted == [], "the grace time begins anew"
        await asyncio.sleep(GRACE_MS / 1500)
        assert aborted == [("id", 7)] and disconnections._claims == disconnections._timers == {}

    run(main)


@pytest.mark.parametrize("closed", ["before it is lost", "in its grace time", "never"])
def test_a_node_that_stops_aborts_nothing_of_those_whose_connections_it_ends(closed: str) -> None:
    async def main(_: VirtualLoop) -> list[str]:
        aborted: list[str] = []
        transactions: Any = SimpleNamespace(abort_abandoned=lambda name, _: aborted.append(name))
        disconnections, peer = Disconnections(transactions, True, Milliseconds(GRACE_MS)), Peer(AllowEverything(), "/h")
        disconnections.claimed("id", peer, ProducerId(1))
        if closed == "before it is lost":
            disconnections.close()
        disconnections.lost(peer)
        if closed == "in its grace time":
            disconnections.close()
        await asyncio.sleep(2 * GRACE_MS / 1000)
        return aborted

    assert run(main) == (["id"] if closed == "never" else [])


def test_a_node_that_has_ended_aborts_nothing() -> None:
    """Its next start knows nothing of who was connected, and the producer may have come back to that."""

    async def main(loop: VirtualLoop) -> list[Any]:
        settings = {"transaction.abort.on.disconnect": True, "transaction.abort.on.disconnect.grace.ms": GRACE_MS}
        world, aborted = World(loop, 1, settings), list[Any]()
        await world.start()
        assert world.broker is not None
        producer = Producer(ADDRESS, transactional_id="id", runtime=world.runtime("producer"))
        await producer.init_transactions()
        await producer.begin_transaction()
        await (await producer.send("t", b"open"))
        await producer.abandon()
        world.broker.node.transactions.abort_abandoned = lambda *given: aborted.append(given)  # type: ignore[method-assign]
        await asyncio.sleep(GRACE_MS / 2000)
        await world.stop()
        await asyncio.sleep(GRACE_MS / 500)
        return aborted

    assert run(main) == []
