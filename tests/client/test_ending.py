"""How a producer's work ends: what a flush waits for, what is said of records whose answer did not come."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from random import Random
from typing import Any

import pytest
from tests.client.forgetting import what_is_said_of_clients_that_go
from tests.client.slow_requests import slowly
from tests.client.test_in_flight import Brokers, Faults, Partition, play, send
from tests.client.test_producer import producer, shown, simulate

from fencepost.client import Admin, BrokerError, ClosedError, MisuseError, Producer, TopicPartition
from fencepost.client.errors import DeliveryError
from fencepost.client.sender import Sender
from fencepost.client.transaction_state import CALLS
from fencepost.protocol.errors import ErrorCode
from fencepost.protocol.messages import ProduceRequest
from fencepost.simulation.world import ADDRESS, World


def test_a_flush_waits_for_what_was_sent_before_it_and_not_for_what_comes() -> None:
    async def scenario(sender: Sender, _: Brokers) -> None:
        await send(sender, b"first")
        before = [send(sender, b"%d" % n) for n in range(7)]

        async def go_on() -> None:
            for n in range(1000):
                send(sender, b"later %d" % n)
                await asyncio.sleep(0.01)

        others = asyncio.create_task(go_on())
        await asyncio.sleep(0)
        async with asyncio.timeout(2):
            await sender.flush()
        assert all(future.done() for future in before)
        assert not others.done()
        await others
        await sender.flush()

    play(Brokers(Faults(Random(1))), scenario)


def test_who_closes_without_an_answer_is_not_told_that_nothing_was_written() -> None:
    """It is there; who sends it again because of what he is told pays twice."""

    async def scenario(world: World) -> None:
        producer = await Producer(ADDRESS, runtime=world.runtime("closes")).start()
        await producer.send_and_wait("t", b"0", partition=0)
        sent = await producer.send("t", b"pay", partition=0)
        await asyncio.sleep(0)
        await producer.close(0)
        assert sent.done()
        with pytest.raises(ClosedError, match="whether the record was written is not known"):
            await sent

    simulate(scenario)


def test_nothing_is_taken_while_it_closes() -> None:
    async def scenario(world: World) -> None:
        producer = await Producer(ADDRESS, runtime=world.runtime("closes")).start()
        sent = await producer.send("t", b"0", partition=0)
        closing = asyncio.create_task(producer.close())
        await asyncio.sleep(0)
        for refused in (producer.send("t", b"1"), producer.send_many("t", [b"2"])):
            with pytest.raises(ClosedError, match="being closed"):
                await refused
        await closing
        assert (await sent).offset == 0

    simulate(scenario)


@pytest.mark.parametrize("call", [*CALLS])
def test_no_call_is_taken_while_a_transaction_ends_because_of_a_close(call: str) -> None:
    """Its state is that of the abort, which is none of the caller's."""
    arguments = {
        "send": ("t", b"1"),
        "send_offsets_to_transaction": ({TopicPartition("t", 0): 1}, "g"),
        "complete_transaction": ("1:1",),
    }

    async def scenario(world: World) -> None:
        producer = await Producer(ADDRESS, transactional_id="id", runtime=world.runtime("closes")).start()
        await producer.init_transactions()
        await producer.begin_transaction()
        sent = await producer.send("t", b"0", partition=0)
        closing = asyncio.create_task(producer.close())
        await asyncio.sleep(0)
        with pytest.raises(ClosedError, match="being closed"):
            await getattr(producer, call)(*arguments.get(call, ()))
        await closing
        assert sent.done()

    simulate(scenario)


@pytest.mark.parametrize("partition", [1.0, True, "0"])
def test_a_partition_that_only_equals_a_number_is_none(partition: Any) -> None:
    async def scenario(world: World) -> None:
        async with Producer(ADDRESS, runtime=world.runtime("wrong")) as producer:
            for _ in range(2):  # before and after the topic is known
                with pytest.raises(TypeError, match="partition="):
                    await producer.send("t", b"1", partition=partition)
                with pytest.raises(TypeError, match="partition="):
                    await producer.send_many("t", [b"2"], partition=partition)
                await producer.send_and_wait("t", b"0", partition=0)
            with pytest.raises(TypeError, match="topic=None"):
                await producer.send(None, b"")  # type: ignore[arg-type]

        async with Producer(ADDRESS, runtime=world.runtime("chooses"), partitioner=lambda *_: partition) as producer:
            with pytest.raises(ValueError, match="partitioner returned"):
                await producer.send("t", b"4")

    simulate(scenario)


def test_who_is_cancelled_in_send_has_handed_over_nothing() -> None:
    async def scenario(world: World) -> None:
        async with Producer(ADDRESS, runtime=world.runtime("cancelled"), batch_bytes=1) as producer:
            handed = 0
            for number in range(200):
                sending = asyncio.create_task(producer.send("t", b"%d" % number, partition=0))
                await asyncio.sleep(0)
                sending.cancel()
                try:
                    await sending
                    handed += 1
                except asyncio.CancelledError:
                    pass
            await producer.flush()
            last = await producer.send_and_wait("t", b"end", partition=0)
            assert last.offset == handed

    simulate(scenario)


class Forgetful(Partition):
    """Knows nothing of any producer, but that it is not at its first record."""

    def append(self, data: bytes) -> tuple[ErrorCode, int]:  # noqa: ARG002
        return ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER, -1


@pytest.mark.parametrize("lost", [None, "error_after", "lost"])
def test_a_refusal_after_a_lost_answer_says_that_the_records_may_be_written(lost: str | None) -> None:
    """As by a broker that was started again and knows less of a producer than before."""

    async def scenario(sender: Sender, brokers: Brokers) -> None:
        await send(sender, b"0")
        brokers.faults = Faults(Random(1), **({} if lost is None else {lost: 1.0}))
        sent = send(sender, b"1")
        await asyncio.sleep(0.06)
        brokers.faults = Faults(Random(1))
        brokers.partition = Forgetful()
        if lost is None:
            await sent
            sent = send(sender, b"2")
        with pytest.raises(BrokerError) as told:
            await sent
        assert ("may have written them" in str(told.value)) is (lost is not None)

    play(Brokers(Faults(Random(1))), scenario)


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
        with what_is_said_of_clients_that_go() as said:
            del writer
        assert said == []

    simulate(scenario)


def test_a_flush_does_not_linger_because_another_one_was_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    """What it waits for has its turn only when the request before it is answered."""

    async def scenario(world: World) -> None:
        options: dict[str, Any] = {"linger_ms": 60_000, "max_in_flight_requests_per_connection": 1, "batch_bytes": 500}
        async with Producer(ADDRESS, runtime=world.runtime("writer"), **options) as writer:
            await (await writer.send("t", bytes(600), partition=0))
            slowly(monkeypatch, ProduceRequest, 2)
            await writer.send("t", bytes(600), partition=0)
            last = await writer.send("t", b"last", partition=1)
            flushing, given_up = asyncio.create_task(writer.flush()), asyncio.create_task(writer.flush())
            await asyncio.sleep(1)
            given_up.cancel()
            async with asyncio.timeout(10):
                await flushing
            assert last.done()

    simulate(scenario)


@pytest.mark.parametrize("most", [1, 2, 5])
def test_no_more_requests_are_on_their_way_than_may_be(monkeypatch: pytest.MonkeyPatch, most: int) -> None:
    async def scenario(world: World) -> None:
        options: dict[str, Any] = {"max_in_flight_requests_per_connection": most, "batch_bytes": 1}
        async with Admin(ADDRESS, runtime=world.runtime("more")) as admin:
            await admin.create_topic("u", partitions=10)
        async with Producer(ADDRESS, runtime=world.runtime("writer"), **options) as writer:
            await (await writer.send("u", b"0", partition=0))
            slowly(monkeypatch, ProduceRequest, 1)
            on_their_way = []
            for number in range(10):
                await writer.send("u", b"1", partition=number)
                await asyncio.sleep(0.01)
                on_their_way.append(writer.statistics().requests_in_flight)
            assert on_their_way == [min(number, most) for number in range(1, 11)]

    simulate(scenario)


def test_each_record_that_is_on_its_way_is_told_when_its_own_time_is_up(monkeypatch: pytest.MonkeyPatch) -> None:
    async def scenario(world: World) -> None:
        async with Producer(ADDRESS, runtime=world.runtime("writer"), delivery_timeout_ms=5000) as writer:
            for number in range(2):
                await (await writer.send("t", b"first", partition=number))
            slowly(monkeypatch, ProduceRequest, 20)
            began, told = asyncio.get_running_loop().time(), list[float]()

            def note(late: asyncio.Future[Any]) -> None:
                assert isinstance(late.exception(), DeliveryError)
                told.append(asyncio.get_running_loop().time() - began)

            for number in range(2):
                sent = await writer.send("t", b"late", partition=number)
                sent.add_done_callback(note)
                await asyncio.sleep(1)
            await asyncio.sleep(10)
            assert [round(when, 1) for when in told] == [5.0, 6.0]

    simulate(scenario)


@pytest.mark.parametrize("transactional_id", [None, "id"])
def test_who_is_cancelled_in_close_is_cancelled_and_the_producer_closed(transactional_id: str | None) -> None:
    async def scenario(world: World) -> None:
        runtime = world.runtime("writer")
        writer = await Producer(ADDRESS, runtime=runtime, transactional_id=transactional_id).start()
        if transactional_id is not None:
            await writer.init_transactions()
            await writer.begin_transaction()
        await (await writer.send("t", b"first", partition=0))
        world.kill()
        await writer.send("t", b"unanswered", partition=0)
        closing = asyncio.create_task(writer.close())
        await asyncio.sleep(1)
        closing.cancel()
        await asyncio.wait([closing])
        assert closing.cancelled()
        with pytest.raises(ClosedError):
            await writer.send("t", b"more")
        await world.start()

    simulate(scenario)


@pytest.mark.parametrize("at_once", [1, 5])
def test_what_waits_for_room_is_not_part_of_the_next_transaction(monkeypatch: pytest.MonkeyPatch, at_once: int) -> None:
    async def scenario(world: World) -> None:
        async with producer(world, buffer_bytes=100) as writer:
            await writer.init_transactions()
            async with writer.transaction():
                await writer.send("t", b"first", partition=0)
            with monkeypatch.context() as slow:
                slowly(slow, ProduceRequest, 0.5)
                await writer.begin_transaction()
                await writer.send("t", bytes(200), partition=0)
                values = [b"waits for room"] * at_once
                sending = writer.send_many("t", values, partition=0) if at_once > 1 else writer.send("t", values[0])
                waiting = asyncio.ensure_future(sending)
                await asyncio.sleep(0.1)
                assert not waiting.done()
                await writer.abort_transaction()
                with pytest.raises(MisuseError):
                    await waiting
            async with writer.transaction():
                await writer.send("t", b"last", partition=0)
        assert await shown(world) == [b"first", b"last"]

    simulate(scenario)


def test_why_others_cannot_be_sent_is_not_said_of_what_is_on_its_way(monkeypatch: pytest.MonkeyPatch) -> None:
    async def scenario(world: World) -> None:
        options: dict[str, Any] = {"delivery_timeout_ms": 5000, "max_in_flight_requests_per_connection": 1}
        async with Producer(ADDRESS, runtime=world.runtime("writer"), **options) as writer:
            await (await writer.send("t", b"first", partition=0))
            slowly(monkeypatch, ProduceRequest, 20)
            sent = await writer.send("t", b"on its way", partition=0)
            await asyncio.sleep(0.1)
            waits = await writer.send("t", b"waits", partition=1)
            assert writer._sender is not None
            writer._sender.hindered(None, "nobody is there")
            with pytest.raises(DeliveryError, match="; last: nobody is there: they were not written"):
                await waits
            with pytest.raises(DeliveryError, match="delivery_timeout_ms: whether they were written is not known"):
                await sent

    simulate(scenario)
