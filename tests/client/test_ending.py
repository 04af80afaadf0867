"""How a producer's work ends: what a flush waits for, what is said of records whose answer did not come."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from random import Random
from typing import Any

import pytest
from tests.client.forgetting import what_is_said_of_clients_that_go
from tests.client.test_in_flight import Brokers, Faults, Partition, play, send
from tests.client.test_producer import producer, simulate

from fencepost.client import BrokerError, ClosedError, Producer, TopicPartition
from fencepost.client.sender import Sender
from fencepost.client.transaction_state import CALLS
from fencepost.protocol.errors import ErrorCode
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


@pytest.mark.parametrize("lost", [False, True])
def test_a_refusal_after_a_lost_answer_says_that_the_records_may_be_written(lost: bool) -> None:
    """As by a broker that was started again and knows less of a producer than before."""

    async def scenario(sender: Sender, brokers: Brokers) -> None:
        await send(sender, b"0")
        brokers.faults = Faults(Random(1), error_after=float(lost))
        sent = send(sender, b"1")
        await asyncio.sleep(0.06)
        brokers.faults = Faults(Random(1))
        brokers.partition = Forgetful()
        if not lost:
            await sent
            sent = send(sender, b"2")
        with pytest.raises(BrokerError) as told:
            await sent
        assert ("may have written them" in str(told.value)) is lost

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
