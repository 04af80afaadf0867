"""The calls of a transactional producer while something of its transaction is on its way."""

from __future__ import annotations

import asyncio
import inspect
from contextlib import suppress
from dataclasses import replace
from typing import Any

import pytest
from tests.client.slow_requests import slowly
from tests.client.test_producer import LEVELS, producer, shown, simulate

from fencepost.broker.network.registry import SERVED
from fencepost.client import (
    ClosedError,
    MisuseError,
    OutcomeUnknownError,
    Producer,
    TopicPartition,
    TransactionAbortableError,
    TransactionTimedOutError,
)
from fencepost.protocol.batch import read_header
from fencepost.protocol.messages import EndTxnRequest, InitProducerIdRequest, TxnOffsetCommitRequest
from fencepost.simulation.world import ADDRESS, PORT, World

AT = TopicPartition("t", 0)
ADD_PARTITIONS = 24
INIT_PRODUCER_ID = 22
PRODUCE = 0


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


@pytest.mark.parametrize("level", [0, 1, 2])
def test_a_producer_goes_on_after_one_time_out_and_after_another(level: int) -> None:
    async def scenario(world: World) -> None:
        async with producer(world) as writer:
            await writer.init_transactions()
            for number in range(3):
                await writer.begin_transaction()
                await (await writer.send("t", b"late %d" % number, partition=0))
                await asyncio.sleep(15)
                with pytest.raises(TransactionTimedOutError if level == 2 else TransactionAbortableError):
                    await writer.commit_transaction()
                await writer.abort_transaction()
                async with writer.transaction():
                    await writer.send("t", b"%d" % number, partition=0)
        assert await shown(world) == [b"0", b"1", b"2"]

    simulate(scenario, level)


@pytest.mark.parametrize("level", [0, 1])
def test_a_batch_that_an_abort_gave_up_on_its_way_costs_one_epoch_and_no_more(
    level: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It may come late: into the next transaction, if that had the same epoch."""
    epochs, produce = list[int](), SERVED[PRODUCE].handler

    async def scenario(world: World) -> None:
        is_sent = asyncio.Event()

        def noting(request: Any, context: Any, node: Any) -> Any:
            epochs.append(read_header(request.topic_data[0].partition_data[0].records).producer_epoch)
            if len(epochs) == 1:
                is_sent.set()
                return asyncio.Event().wait()
            return produce(request, context, node)

        monkeypatch.setitem(SERVED, PRODUCE, replace(SERVED[PRODUCE], handler=noting))
        async with producer(world) as writer:
            await writer.init_transactions()
            await writer.begin_transaction()
            await writer.send("t", b"on its way", partition=0)
            await is_sent.wait()
            world.loop.call_later(0.1, world.network.break_connections, PORT)
            await writer.abort_transaction()
            for number in range(3):
                async with writer.transaction():
                    await writer.send("t", b"%d" % number, partition=0)
        assert await shown(world) == [b"0", b"1", b"2"]

    simulate(scenario, level)
    assert epochs == [0, 1, 1, 1]


@LEVELS
@pytest.mark.parametrize("aborted", ["when the first is told", "at once"])
def test_several_who_are_told_of_a_time_out_ask_once_what_it_was(
    aborted: str, level: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What only the second of them is told would come after the abort, and fail the next transaction."""
    handler = SERVED[INIT_PRODUCER_ID].handler
    asked = 0

    async def slower_each_time(*given: Any) -> Any:
        nonlocal asked
        asked += 1
        await asyncio.sleep(0.3 * asked)
        answer = handler(*given)
        return await answer if inspect.isawaitable(answer) else answer

    async def scenario(world: World) -> None:
        async with producer(world) as writer:
            await writer.init_transactions()
            await writer.begin_transaction()
            await (await writer.send("t", b"late", partition=0))
            await asyncio.sleep(15)
            with suppress(TransactionAbortableError):
                await (await writer.send("t", b"too late", partition=0))
            monkeypatch.setitem(SERVED, INIT_PRODUCER_ID, replace(SERVED[INIT_PRODUCER_ID], handler=slower_each_time))
            sending = [asyncio.create_task(writer.send("t", b"%d" % number, partition=0)) for number in range(3)]
            await asyncio.wait(
                sending, timeout=0.1 if aborted == "at once" else None, return_when=asyncio.FIRST_COMPLETED
            )
            aborting = asyncio.create_task(writer.abort_transaction())
            if aborted == "at once":
                await asyncio.sleep(0.01)
                with pytest.raises(TransactionAbortableError):
                    await writer.send("t", b"while it is aborted", partition=0)
            await aborting
            async with writer.transaction():
                await writer.send("t", b"again", partition=0)
                await asyncio.sleep(0.8)
            told = await asyncio.gather(*sending, return_exceptions=True)
            assert [type(error) for error in told] == [TransactionTimedOutError] * 3
        assert await shown(world) == [b"again"]

    simulate(scenario, level)
    assert asked == 1


def test_who_waits_to_be_told_of_a_time_out_is_told_of_the_end_of_the_producer(monkeypatch: pytest.MonkeyPatch) -> None:
    async def scenario(world: World) -> None:
        async with producer(world) as writer:
            await writer.init_transactions()
            await writer.begin_transaction()
            await (await writer.send("t", b"late", partition=0))
            await asyncio.sleep(15)
            with suppress(TransactionAbortableError):
                await (await writer.send("t", b"too late", partition=0))
            never = replace(SERVED[INIT_PRODUCER_ID], handler=lambda *_: asyncio.Event().wait())  # type: ignore[arg-type]
            monkeypatch.setitem(SERVED, INIT_PRODUCER_ID, never)
            sending = asyncio.create_task(writer.send("t", b"too late", partition=0))
            await asyncio.sleep(0.1)
            await writer.abandon()
            with pytest.raises(ClosedError):
                await sending

    simulate(scenario)


@LEVELS
@pytest.mark.parametrize("first", ["commit_transaction", "abort_transaction"])
def test_a_second_end_is_refused_while_one_is_under_way_and_the_next_transaction_is_not_ended_by_it(
    level: int, first: str
) -> None:
    async def scenario(world: World) -> None:
        async with producer(world) as writer:
            await writer.init_transactions()
            await writer.begin_transaction()
            await writer.send_and_wait("t", b"first", partition=0)
            with pytest.MonkeyPatch.context() as patch:
                ends = slowly(patch, EndTxnRequest, 0.5)
                ending = asyncio.ensure_future(getattr(writer, first)())
                await asyncio.sleep(0.1)
                for second in (writer.commit_transaction, writer.abort_transaction, writer.begin_transaction):
                    with pytest.raises(MisuseError):
                        await second()
                with pytest.raises(MisuseError):
                    await writer.send_offsets_to_transaction({AT: 1}, "group")
                await ending
            assert [end.committed for end in ends] == [first == "commit_transaction"]
            await writer.begin_transaction()
            await writer.send("t", b"aborted", partition=0)
            await writer.abort_transaction()
        assert await shown(world) == ([b"first"] if first == "commit_transaction" else [])

    simulate(scenario, level)


@LEVELS
def test_who_is_not_answered_is_told_to_commit_again_and_finds_out_by_that(level: int) -> None:
    async def scenario(world: World) -> None:
        short: dict[str, Any] = {"max_block_ms": 500, "transaction_timeout_ms": 60_000, "transactional_id": "id"}
        async with Producer(ADDRESS, runtime=world.runtime("writer"), **short) as writer:
            await writer.init_transactions()
            await writer.begin_transaction()
            await writer.send_and_wait("t", b"committed", partition=0)
            with pytest.MonkeyPatch.context() as patch:
                slowly(patch, EndTxnRequest, 60)
                with pytest.raises(OutcomeUnknownError, match=r"Call commit_transaction\(\) again to find out"):
                    await writer.commit_transaction()
            await writer.commit_transaction()
        assert await shown(world) == [b"committed"]

    simulate(scenario, level)


@LEVELS
def test_a_record_that_was_not_delivered_in_time_says_that_its_transaction_can_be_aborted(level: int) -> None:
    async def scenario(world: World) -> None:
        short: dict[str, Any] = {"delivery_timeout_ms": 500, "transactional_id": "id", "max_block_ms": 30_000}
        async with Producer(ADDRESS, runtime=world.runtime("writer"), **short) as writer:
            await writer.init_transactions()
            await writer.begin_transaction()
            await writer.send_and_wait("t", b"aborted", partition=0)
            world.kill()
            late = await writer.send("t", b"late", partition=0)
            with pytest.raises(TransactionAbortableError, match=r"delivery_timeout_ms.*abort it, then go on"):
                await late
            await world.start()
            await writer.abort_transaction()
            async with writer.transaction():
                await writer.send("t", b"good", partition=0)
        assert await shown(world) == [b"good"]

    simulate(scenario, level)


@LEVELS
def test_nothing_is_ended_while_positions_are_on_their_way(level: int) -> None:
    async def scenario(world: World) -> None:
        async with producer(world) as writer:
            await writer.init_transactions()
            await writer.begin_transaction()
            with pytest.MonkeyPatch.context() as patch:
                slowly(patch, TxnOffsetCommitRequest, 0.5)
                sending = asyncio.ensure_future(writer.send_offsets_to_transaction({AT: 1}, "group"))
                await asyncio.sleep(0.1)
                for end in (writer.commit_transaction, writer.abort_transaction):
                    with pytest.raises(MisuseError, match=r"while send_offsets_to_transaction\(\) is under way"):
                        await end()
                await sending
            await writer.commit_transaction()

    simulate(scenario, level)


@LEVELS
def test_taking_an_id_over_may_be_interrupted_and_asked_for_again(monkeypatch: pytest.MonkeyPatch, level: int) -> None:
    async def scenario(world: World) -> None:
        async with producer(world) as writer:
            with monkeypatch.context() as slow:
                slowly(slow, InitProducerIdRequest, 1)
                with pytest.raises(TimeoutError):
                    async with asyncio.timeout(0.1):
                        await writer.init_transactions()
            assert not writer.is_initialized
            await writer.init_transactions()
            async with writer.transaction():
                await writer.send("t", b"committed", partition=0)
        assert await shown(world) == [b"committed"]

    simulate(scenario, level)


@LEVELS
def test_an_abort_ends_when_the_answer_to_what_it_gives_up_is_lost(monkeypatch: pytest.MonkeyPatch, level: int) -> None:
    handler = SERVED[PRODUCE].handler
    asked: list[Any] = []

    async def scenario(world: World) -> None:
        def without_answer(request: Any, context: Any, node: Any) -> Any:
            asked.append(request)
            if len(asked) > 1:
                return handler(request, context, node)
            world.loop.call_later(1, world.network.break_connections, PORT)
            return asyncio.Event().wait()

        monkeypatch.setitem(SERVED, PRODUCE, replace(SERVED[PRODUCE], handler=without_answer))
        async with producer(world) as writer:
            await writer.init_transactions()
            await writer.begin_transaction()
            await writer.send("t", b"aborted", partition=0)
            await asyncio.sleep(0.5)
            async with asyncio.timeout(10):
                await writer.abort_transaction()
            async with writer.transaction():
                await writer.send("t", b"committed", partition=0)
        assert len(asked) == 2
        assert await shown(world) == [b"committed"]

    simulate(scenario, level)


def test_nothing_is_sent_in_a_transaction_while_its_commit_waits_for_its_records() -> None:
    """What came in then would be committed before it is known to be written."""

    async def scenario(world: World) -> None:
        async with producer(world) as writer:
            await writer.init_transactions()
            await writer.begin_transaction()
            await writer.send("t", b"first", partition=0)
            committing = asyncio.ensure_future(writer.commit_transaction())
            await asyncio.sleep(0)
            assert not committing.done(), "nothing is acknowledged yet"
            with pytest.raises(MisuseError):
                await writer.send("t", b"late", partition=0)
            await committing
        assert await shown(world) == [b"first"]

    simulate(scenario)
