"""Whoever says how long something may take is not kept longer, on virtual time: the broker is dead, silent or slow."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import replace
from typing import Any

import pytest
from tests.client.test_producer import shown, simulate

from fencepost.broker.network.connection_quotas import ConnectionQuotas
from fencepost.broker.network.registry import SERVED
from fencepost.client import Admin, Consumer, ConsumerRecord, OutcomeUnknownError, Producer, TopicPartition
from fencepost.client.errors import DeliveryError, TimedOutError
from fencepost.client.lasting import Lasting
from fencepost.simulation.loop import VirtualLoop, run
from fencepost.simulation.world import ADDRESS, PORT, World

AT = TopicPartition("t", 0)
PRODUCE = 0
END_TXN = 26
PATIENCE_MS = 1000
SILENT = "127.0.0.1:7"

CALLS: dict[str, Callable[[World, str], Awaitable[Any]]] = {
    "send": lambda world, servers: _send(_writer(world, servers)),
    "init_transactions": lambda world, servers: _writer(world, servers, transactional_id="id").init_transactions(),
    "commit": lambda world, servers: _reader(world, servers).commit({AT: 1}),
    "committed": lambda world, servers: _reader(world, servers).committed([AT]),
    "end_offsets": lambda world, servers: _reader(world, servers).end_offsets([AT]),
    "offsets_for_times": lambda world, servers: _reader(world, servers).offsets_for_times({AT: 0}),
    "topics": lambda world, servers: _admin(world, servers).topics(),
    "create_topic": lambda world, servers: _admin(world, servers).create_topic("new"),
    "update_feature": lambda world, servers: _admin(world, servers).update_feature("transaction.version", 1),
    "describe_transaction": lambda world, servers: _admin(world, servers).describe_transaction("id"),
    "list_transactions": lambda world, servers: _admin(world, servers).list_transactions(),
}


def _writer(world: World, servers: str, **options: Any) -> Producer:
    return Producer(servers, runtime=world.runtime("client"), max_block_ms=PATIENCE_MS, **options)


async def _send(writer: Producer) -> None:
    await (await writer.start()).send("t", b"", partition=0)


def _reader(world: World, servers: str) -> Consumer:
    runtime = world.runtime("client")
    return Consumer("t", group_id="g", bootstrap_servers=servers, runtime=runtime, max_block_ms=PATIENCE_MS)


def _admin(world: World, servers: str) -> Admin:
    return Admin(servers, runtime=world.runtime("client"), max_block_ms=PATIENCE_MS)


class _Silent(asyncio.Protocol):
    """Takes everything and answers nothing."""


async def be_silent(world: World) -> None:
    await world.network.listen(_Silent, "127.0.0.1", 7, ConnectionQuotas(most=10, most_per_ip=10))


@pytest.mark.parametrize("broker", ["dead", "silent"])
@pytest.mark.parametrize("call", CALLS)
def test_no_call_takes_longer_than_max_block_ms(call: str, broker: str) -> None:
    async def scenario(world: World) -> None:
        await be_silent(world)
        begun = world.loop.time()
        with pytest.raises(TimedOutError, match="within 1000 ms"):
            await CALLS[call](world, SILENT if broker == "silent" else "127.0.0.1:8")
        assert world.loop.time() - begun <= PATIENCE_MS / 1000 + 0.001

    simulate(scenario)


@pytest.mark.parametrize("broker", ["dead", "silent"])
@pytest.mark.parametrize("group", [None, "g"])
def test_no_poll_takes_longer_than_it_may(group: str | None, broker: str) -> None:
    async def scenario(world: World) -> None:
        await be_silent(world)
        servers = SILENT if broker == "silent" else "127.0.0.1:8"
        reader = Consumer("t", group_id=group, bootstrap_servers=servers, runtime=world.runtime("client"))
        for timeout_ms in (0, 100, 1000):
            begun = world.loop.time()
            assert await reader.poll(timeout_ms) == []
            assert world.loop.time() - begun <= timeout_ms / 1000 + 0.001
        begun = world.loop.time()
        await reader.close()
        assert world.loop.time() - begun < 1

    simulate(scenario)


def test_polls_that_are_short_join_a_group_all_the_same() -> None:
    async def scenario(world: World) -> None:
        async with (
            Producer(ADDRESS, runtime=world.runtime("writer")) as writer,
            Consumer("t", group_id="g", bootstrap_servers=ADDRESS, runtime=world.runtime("reader")) as reader,
        ):
            await (await writer.send("t", b"there", partition=0))
            found = list[ConsumerRecord]()
            while not found:
                found = await reader.poll(1)
            assert [record.value for record in found] == [b"there"]

    simulate(scenario)


def test_what_is_assigned_meanwhile_counts_and_not_what_was_being_looked_up() -> None:
    async def scenario(world: World) -> None:
        async with Consumer("t", bootstrap_servers=ADDRESS, runtime=world.runtime("reader")) as reader:
            assert await reader.poll(0) == []
            await reader.unsubscribe()
            reader.assign([AT])
            assert await reader.poll(1000) == []
            assert reader.assignment() == [AT]

    simulate(scenario)


@pytest.mark.parametrize("level", [1, 2])
def test_a_commit_that_is_not_answered_in_time_can_be_called_again(monkeypatch: pytest.MonkeyPatch, level: int) -> None:
    """Before transaction.version 2 the next transaction has another epoch, which a late request cannot end."""
    handler, asked = SERVED[END_TXN].handler, list[int]()

    async def late(reply: Any) -> Any:
        await asyncio.sleep(5)
        return reply

    def handled(request: Any, context: Any, node: Any) -> Any:
        asked.append(request.producer_epoch)
        reply = handler(request, context, node)
        return late(reply) if len(asked) == 1 else reply

    monkeypatch.setitem(SERVED, END_TXN, replace(SERVED[END_TXN], handler=handled))

    async def scenario(world: World) -> None:
        runtime = world.runtime("writer")
        async with Producer(ADDRESS, transactional_id="id", runtime=runtime, max_block_ms=PATIENCE_MS) as writer:
            await writer.init_transactions()
            await writer.begin_transaction()
            await writer.send("t", b"first", partition=0)
            begun, unknown = world.loop.time(), 0
            while True:
                try:
                    await writer.commit_transaction()
                    break
                except OutcomeUnknownError:
                    unknown += 1
                    assert world.loop.time() - begun <= unknown * (PATIENCE_MS / 1000 + 0.1)
            assert unknown >= 4
            async with writer.transaction():
                await writer.send("t", b"second", partition=0)
        assert asked[-1] > asked[0]
        assert await shown(world) == [b"first", b"second"]

    simulate(scenario, level)


def test_a_silent_server_in_front_does_not_keep_anybody_from_the_next_one() -> None:
    async def scenario(world: World) -> None:
        await be_silent(world)
        begun = world.loop.time()
        async with Admin(f"{SILENT},{ADDRESS}", runtime=world.runtime("client")) as admin:
            assert "t" in await admin.topics()
        assert world.loop.time() - begun < 2

    simulate(scenario)


@pytest.mark.parametrize("known", [True, False], ids=["in the middle", "at the start"])
def test_an_outage_shorter_than_delivery_timeout_ms_loses_nothing(known: bool) -> None:
    """However short the patience of its calls is."""

    async def scenario(world: World) -> None:
        async with Producer(ADDRESS, runtime=world.runtime("writer"), max_block_ms=500) as writer:
            told = [await writer.send("t", b"first", partition=0)]
            if known:
                await told[0]
            world.network.break_connections(PORT)
            world.kill()
            if known:
                told.append(await writer.send("t", b"second", partition=0))
            await asyncio.sleep(60)
            await world.start()
            await asyncio.gather(*told)
        assert await shown(world) == ([b"first", b"second"] if known else [b"first"])

    simulate(scenario)


@pytest.mark.parametrize("max_block_ms", [500, 60_000])
@pytest.mark.parametrize("known", [True, False], ids=["in the middle", "at the start"])
def test_a_record_is_given_up_after_delivery_timeout_ms_and_the_next_one_goes(known: bool, max_block_ms: int) -> None:
    async def scenario(world: World) -> None:
        runtime = world.runtime("writer")
        async with Producer(ADDRESS, runtime=runtime, max_block_ms=max_block_ms, delivery_timeout_ms=5000) as writer:
            if known:
                await (await writer.send("t", b"first", partition=0))
            else:
                await writer._placement.looked_up("t", 0)
            world.network.break_connections(PORT)
            world.kill()
            begun = world.loop.time()
            late = await writer.send("t", b"late", partition=0)
            with pytest.raises(DeliveryError, match="delivery_timeout_ms"):
                await late
            assert 5 <= world.loop.time() - begun < 5.001
            await world.start()
            await (await writer.send("t", b"after", partition=0))
        assert await shown(world) == ([b"first", b"after"] if known else [b"after"])

    simulate(scenario)


def answer_late(monkeypatch: pytest.MonkeyPatch) -> None:
    """Have what is written from now on answered after 100 seconds."""
    handler = SERVED[PRODUCE].handler

    async def late(reply: Any) -> Any:
        await asyncio.sleep(100)
        return reply

    monkeypatch.setitem(SERVED, PRODUCE, replace(SERVED[PRODUCE], handler=lambda *given: late(handler(*given))))


def test_a_flush_ends_when_its_records_are_given_up_where_no_answer_comes(monkeypatch: pytest.MonkeyPatch) -> None:
    async def scenario(world: World) -> None:
        how: dict[str, Any] = {"delivery_timeout_ms": 5000, "request_timeout_ms": 30_000}
        async with Producer(ADDRESS, runtime=world.runtime("writer"), **how) as writer:
            await writer.send_and_wait("t", b"first", partition=0)
            answer_late(monkeypatch)
            sent, begun = await writer.send("t", b"late", partition=0), world.loop.time()
            await writer.flush()
            assert 4.999 < world.loop.time() - begun < 5.001
            assert isinstance(sent.exception(), DeliveryError)
            await writer.close(0)
        await asyncio.sleep(100)

    simulate(scenario)


@pytest.mark.parametrize("identified", [True, False])
@pytest.mark.parametrize("most", [1, 5])
def test_each_record_is_given_up_in_its_time_where_no_answer_comes(
    most: int, identified: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also one that waits for its turn behind those without an answer, which have other times."""

    async def scenario(world: World) -> None:
        runtime, took = world.runtime("writer"), list[float]()
        async with Producer(
            ADDRESS,
            runtime=runtime,
            delivery_timeout_ms=5000,
            request_timeout_ms=30_000,
            max_in_flight_requests_per_connection=most,
            enable_idempotence=identified,
        ) as writer:
            await writer.send_and_wait("t", b"first", partition=0)
            answer_late(monkeypatch)

            async def late(number: int) -> None:
                await asyncio.sleep(number * 0.7)
                begun = world.loop.time()
                with pytest.raises(DeliveryError, match="delivery_timeout_ms"):
                    await writer.send_and_wait("t", b"late", partition=0)
                took.append(world.loop.time() - begun)

            await asyncio.gather(*(late(number) for number in range(9)))
            assert len(took) == 9
            assert 4.999 < max(took) < 5.001  # of a batch counts the time of its first
            await writer.close(0)
        await asyncio.sleep(100)  # the answers that nobody waits for any more

    simulate(scenario)


def test_nobody_waits_for_room_longer_than_max_block_ms(monkeypatch: pytest.MonkeyPatch) -> None:
    """What is on its way has its room until it is answered, also when its time is over."""
    handler, held = SERVED[PRODUCE].handler, asyncio.Event()

    async def late(reply: Any) -> Any:
        await held.wait()
        return reply

    async def scenario(world: World) -> None:
        async with Producer(
            ADDRESS,
            runtime=world.runtime("writer"),
            max_block_ms=PATIENCE_MS,
            delivery_timeout_ms=3000,
            buffer_bytes=1000,
        ) as writer:
            await writer.send_and_wait("t", b"first", partition=0)
            monkeypatch.setitem(SERVED, PRODUCE, replace(SERVED[PRODUCE], handler=lambda *given: late(handler(*given))))
            full = await writer.send("t", b"x" * 1000, partition=0)
            for _ in range(5):
                for call in (writer.send("t", b"one"), writer.send_many("t", [b"one", b"two"])):
                    begun = world.loop.time()
                    with pytest.raises(TimedOutError, match=r"waiting for room .*buffer_bytes.* within 1000 ms"):
                        await call
                    assert world.loop.time() - begun <= PATIENCE_MS / 1000 + 0.001
            with pytest.raises(DeliveryError):
                await full
            held.set()
            await writer.send_and_wait("t", b"after", partition=0)

    simulate(scenario)


def test_work_that_lasts_is_done_once_and_told_to_whoever_is_there() -> None:
    done: list[int] = []

    async def work() -> None:
        await asyncio.sleep(1)
        done.append(len(done))
        if len(done) > 1:
            raise ValueError("the second time")

    async def main(_: VirtualLoop) -> None:
        lasting = Lasting(work)
        assert not await lasting.done_within(0.1)
        assert lasting.is_under_way
        assert not any(await asyncio.gather(lasting.done_within(0.2), lasting.done_within(0.3)))
        assert await lasting.done_within(1)
        assert done == [0]
        assert not lasting.is_under_way
        assert not await lasting.done_within(0.5)
        lasting.cancel()
        lasting.cancel()
        await asyncio.sleep(2)
        assert done == [0]
        with pytest.raises(ValueError, match="the second time"):
            await lasting.done_within(2)
        waiting = asyncio.ensure_future(lasting.done_within(10))
        await asyncio.sleep(0.1)
        lasting.cancel()
        assert not await waiting

    run(main)
