"""What goes into a batch, what does not, and the memory for it."""

from __future__ import annotations

import asyncio
import gc
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from tests.client.test_producer import producer, shown, simulate

from fencepost.broker.network.registry import SERVED
from fencepost.client import (
    BrokerError,
    ClientError,
    DeliveryError,
    Producer,
    RecordTooLargeError,
    TopicPartition,
    TransactionAbortableError,
    connection,
)
from fencepost.client.batches import Batch
from fencepost.client.outcomes import MAYBE_WRITTEN
from fencepost.protocol.batch import HEADER_SIZE, read_header
from fencepost.protocol.codec import encode_request
from fencepost.protocol.compression import Compression
from fencepost.protocol.errors import ErrorCode
from fencepost.protocol.messages import ProduceRequest
from fencepost.simulation.world import ADDRESS, PORT, World

#: About what stands around a value in a batch.
AROUND = HEADER_SIZE + 10
PRODUCE = 0


def used(writer: Producer) -> int:
    assert writer._sender is not None
    return writer._sender._memory.used


def every_answer(monkeypatch: pytest.MonkeyPatch, change: Callable[[Any, Any], None]) -> None:
    """Change each answer to a Produce, given its request too."""
    handler = SERVED[PRODUCE].handler

    def changed(request: Any, context: Any, node: Any) -> Any:
        reply = handler(request, context, node)
        change(request, reply.response)  # type: ignore[union-attr]
        return reply

    monkeypatch.setitem(SERVED, PRODUCE, replace(SERVED[PRODUCE], handler=changed))


@settings(max_examples=40)
@given(
    sizes=st.lists(st.integers(0, 700), min_size=1, max_size=30),
    batch_bytes=st.integers(1, 2000),
    topic_takes=st.integers(200, 900),
    linger_ms=st.sampled_from([0, 5]),
)
def test_a_record_fails_for_its_own_size_only_and_order_is_kept(
    sizes: list[int], batch_bytes: int, topic_takes: int, linger_ms: int
) -> None:
    """Batches that the topic does not take are split until they are small enough, or a record is alone."""
    values = [b"%02d" % n + bytes(size) for n, size in enumerate(sizes)]

    async def scenario(world: World) -> None:
        runtime = world.runtime("writer")
        async with Producer(ADDRESS, runtime=runtime, batch_bytes=batch_bytes, linger_ms=linger_ms) as writer:
            told = [await writer.send("t", value, partition=0) for value in values]
            found = await asyncio.gather(*told, return_exceptions=True)
            refused = [value for value, end in zip(values, found, strict=True) if isinstance(end, BrokerError)]
            assert used(writer) == 0
        assert all(len(value) > topic_takes - AROUND for value in refused)
        assert all(len(value) <= topic_takes - HEADER_SIZE for value in set(values) - set(refused))
        assert await shown(world) == [value for value in values if value not in refused]

    simulate(scenario, **{"message.max.bytes": topic_takes})


@pytest.mark.parametrize("level", [1, 2])
def test_a_transaction_is_whole_whose_batches_were_split(level: int) -> None:
    values = [b"%03d" % n for n in range(300)]

    async def scenario(world: World) -> None:
        async with producer(world, linger_ms=5) as writer:
            await writer.init_transactions()
            async with writer.transaction():
                for value in values:
                    await writer.send("t", value, partition=0)
            async with writer.transaction():
                await writer.send("t", b"after", partition=0)
        assert await shown(world) == [*values, b"after"]

    simulate(scenario, level, **{"message.max.bytes": 400})


def test_a_batch_that_may_have_been_written_is_not_split(monkeypatch: pytest.MonkeyPatch) -> None:
    """As where max.message.bytes was lowered before it was sent again."""
    errors = [ErrorCode.REQUEST_TIMED_OUT, ErrorCode.MESSAGE_TOO_LARGE]

    def refuse(_: Any, response: Any) -> None:
        if errors:
            response.responses[0].partition_responses[0].error_code = errors.pop(0)

    every_answer(monkeypatch, refuse)

    async def scenario(world: World) -> None:
        async with Producer(ADDRESS, runtime=world.runtime("writer"), linger_ms=5) as writer:
            told = [await writer.send("t", b"%d" % n, partition=0) for n in range(3)]
            found = await asyncio.gather(*told, return_exceptions=True)
        assert all(isinstance(end, BrokerError) for end in found)
        assert await shown(world) == [b"0", b"1", b"2"]

    simulate(scenario)


def test_no_batch_is_larger_than_batch_bytes_unless_one_record_is(monkeypatch: pytest.MonkeyPatch) -> None:
    sent: list[tuple[int, int]] = []

    def note(request: Any, _: Any) -> None:
        data = request.topic_data[0].partition_data[0].records
        sent.append((len(data), read_header(data).record_count))

    every_answer(monkeypatch, note)

    async def scenario(world: World) -> None:
        async with Producer(ADDRESS, runtime=world.runtime("writer"), batch_bytes=500, linger_ms=100) as writer:
            for size in (200, 150, 200, 600, 1, 2):
                await writer.send("t", bytes(size), partition=0)
        assert [count for _, count in sent] == [2, 1, 1, 2]
        assert [size > 500 for size, _ in sent] == [False, False, True, False]

    simulate(scenario)


def test_after_a_flush_that_was_given_up_batches_linger_again() -> None:
    async def scenario(world: World) -> None:
        async with Producer(ADDRESS, runtime=world.runtime("writer"), batch_bytes=500, linger_ms=60_000) as writer:
            await (await writer.send("t", b"first", partition=0))
            await writer.send("t", b"flushed", partition=0)
            flushing = asyncio.create_task(writer.flush())
            for _turn in range(3):
                await asyncio.sleep(0)
            flushing.cancel()
            await asyncio.wait([flushing])
            assert flushing.cancelled()
            await writer.flush()
            last = await writer.send("t", b"last", partition=0)
            await (await writer.send("t", bytes(600), partition=1))  # goes at once, and nothing with it
            await asyncio.sleep(55)
            assert not last.done()
            async with asyncio.timeout(6):
                await last

    simulate(scenario)


def test_a_full_batch_does_not_linger() -> None:
    async def scenario(world: World) -> None:
        async with Producer(ADDRESS, runtime=world.runtime("writer"), batch_bytes=500, linger_ms=60_000) as writer:
            first = await writer.send("t", bytes(300), partition=0)
            second = await writer.send("t", bytes(300), partition=0)
            async with asyncio.timeout(1):
                await first
            assert not second.done()

    simulate(scenario)


def test_a_record_beyond_the_largest_request_is_refused_at_once_and_nothing_else() -> None:
    async def scenario(world: World) -> None:
        async with producer(world, max_request_size=1000) as writer:
            await writer.init_transactions()
            async with writer.transaction():
                await writer.send("t", b"before", partition=0)
                with pytest.raises(RecordTooLargeError, match=r"3 bytes of key and 1000 .*max_request_size=1000"):
                    await writer.send("t", bytes(1000), key=b"key", partition=0)
                await writer.send("t", bytes(1000 - AROUND), partition=0)
            assert used(writer) == 0
        assert await shown(world) == [b"before", bytes(1000 - AROUND)]

    simulate(scenario)


NO_RECORDS: dict[str, dict[str, Any]] = {
    r"value is of type str: .*value\.encode\(\)": {"value": "text"},
    r"value is of type int: give bytes": {"value": 5},
    r"value is of type list": {"value": [1]},
    r"key is of type str: .*key\.encode\(\)": {"value": b"", "key": "text"},
    r"timestamp='now': it must be an int": {"value": b"", "timestamp": "now"},
    r"timestamp=-1: it must be from 0": {"value": b"", "timestamp": -1},
    r"timestamp=9223372036854775808: it must be from 0": {"value": b"", "timestamp": 1 << 63},
    r"headers=\[\(b'name', b''\)\]: give a list of pairs": {"value": b"", "headers": [(b"name", b"")]},
    r"headers=\[\('name', 'text'\)\]": {"value": b"", "headers": [("name", "text")]},
    r"headers=\{'name': b''\}": {"value": b"", "headers": {"name": b""}},
    r"headers=5": {"value": b"", "headers": 5},
}


@pytest.mark.parametrize("where", [0, None], ids=["partition", "no partition"])
@pytest.mark.parametrize("said", NO_RECORDS)
def test_what_is_no_record_is_refused_and_leaves_nothing_behind(said: str, where: int | None) -> None:
    async def scenario(world: World) -> None:
        async with producer(world) as writer:
            await writer.init_transactions()
            for value in (None, b"first"):
                async with writer.transaction():
                    if value:
                        await writer.send("t", value, partition=0)
                    with pytest.raises((TypeError, ValueError), match=said):
                        await writer.send("t", partition=where, **NO_RECORDS[said])
            assert used(writer) == 0
        assert await shown(world) == [b"first"]

    simulate(scenario)


@pytest.mark.parametrize("transactional", [False, True])
def test_an_error_of_a_newer_broker_fails_the_batch_and_names_its_number(
    monkeypatch: pytest.MonkeyPatch, transactional: bool
) -> None:
    def unknown_error(_: Any, response: Any) -> None:
        response.responses[0].partition_responses[0].error_code = 999

    every_answer(monkeypatch, unknown_error)

    async def scenario(world: World) -> None:
        writer = producer(world) if transactional else Producer(ADDRESS, runtime=world.runtime("writer"))
        async with writer, asyncio.timeout(60):
            if transactional:
                await writer.init_transactions()
                await writer.begin_transaction()
            told = await writer.send("t", b"", partition=0)
            await writer.flush()
            with pytest.raises(TransactionAbortableError if transactional else BrokerError, match="error 999"):
                await told

    simulate(scenario)


@pytest.mark.parametrize("answered", [ErrorCode.KAFKA_STORAGE_ERROR, ErrorCode.NOT_ENOUGH_REPLICAS])
def test_a_record_whose_time_is_up_tells_what_came_last_and_whether_it_may_be_written(
    monkeypatch: pytest.MonkeyPatch, answered: ErrorCode
) -> None:
    def refuse(_: Any, response: Any) -> None:
        response.responses[0].partition_responses[0].error_code = answered

    every_answer(monkeypatch, refuse)
    written = "whether they were written is not known" if answered in MAYBE_WRITTEN else "they were not written"

    async def scenario(world: World) -> None:
        async with Producer(ADDRESS, runtime=world.runtime("writer"), delivery_timeout_ms=3000) as writer:
            with pytest.raises(DeliveryError, match=f"; last: {answered.name}.*: {written}"):
                await (await writer.send("t", b"", partition=0))

    simulate(scenario)


def test_a_record_that_was_never_sent_is_known_not_to_be_written() -> None:
    async def scenario(world: World) -> None:
        async with Producer(ADDRESS, runtime=world.runtime("writer"), delivery_timeout_ms=3000) as writer:
            await writer._placement.looked_up("t", 0)
            world.network.break_connections(PORT)
            world.kill()
            with pytest.raises(DeliveryError, match=r"no producer id.* cannot be reached: .*: they were not written"):
                await (await writer.send("t", b"", partition=0))
            await world.start()

    simulate(scenario)


def test_memory_is_used_until_the_answer_and_no_longer() -> None:
    """Also of a thousand batches: what each leaves would stop the producer one day."""

    async def scenario(world: World) -> None:
        async with Producer(ADDRESS, runtime=world.runtime("writer"), buffer_bytes=2000, batch_bytes=1) as writer:
            for _ in range(1000):
                told = await writer.send("t", b"x", partition=0)
                assert 0 < used(writer) < 2100
            await told
            assert used(writer) == 0

    simulate(scenario)


@given(times=st.lists(st.integers(0, (1 << 63) - 1), min_size=2, max_size=40))
@example(times=[1 << 62] * 10 + [0] + [1 << 62] * 10)
def test_halves_have_every_record_whatever_their_times(times: list[int]) -> None:
    """Times are encoded as differences to the first: a half with another first one may be larger than the whole."""

    async def scenario() -> None:
        batch = Batch(TopicPartition("t", 0), Compression.NONE, 0.0)
        futures = [asyncio.get_running_loop().create_future() for _ in times]
        for time, future in zip(times, futures, strict=True):
            batch.append(time, None, None, (), future)
        halves = batch.halves()
        assert [time for half in halves for time in half.times] == times
        assert [future for half in halves for future in half.futures] == futures
        assert all(half.builder.count == len(half.futures) < len(times) for half in halves)

    asyncio.run(scenario())


def test_the_batches_of_a_request_are_not_larger_together_than_a_request_may_be(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    sizes: list[list[int]] = []
    encode = encode_request

    def measured(message: Any, *rest: Any) -> bytes:
        if isinstance(message, ProduceRequest):
            sizes.append([len(part.records or b"") for topic in message.topic_data for part in topic.partition_data])
        return encode(message, *rest)

    monkeypatch.setattr(connection, "encode_request", measured)

    async def scenario(world: World) -> None:
        async with producer(world, max_request_size=1000, linger_ms=100) as writer:
            await writer.init_transactions()
            for size in (300, 700):
                async with writer.transaction():
                    for partition in range(2):
                        await writer.send("t", bytes(size), partition=partition)

    simulate(scenario)
    assert [len(each) for each in sizes] == [2, 1, 1]
    assert all(sum(each) <= 1000 for each in sizes)


@pytest.mark.parametrize("known", [True, False])
def test_a_sender_that_ends_when_it_was_to_look_something_up_leaves_nothing_undone(
    known: bool, recwarn: pytest.WarningsRecorder
) -> None:
    """Neither for the connection to a node that it knows, nor for the leader of a topic that it does not."""

    async def scenario(world: World) -> None:
        async with Producer(ADDRESS, runtime=world.runtime("writer")) as writer:
            await (await writer.send("t", b"1", partition=0))
            sender = writer._sender
            assert sender is not None
            world.network.break_connections(PORT)
            await asyncio.sleep(1)
            await writer.send("t", b"2", partition=0)
            if not known:
                writer._cluster.forget_topic("t")
            await asyncio.sleep(0)  # after the sender has looked what to do
            sender.close()

    simulate(scenario)
    gc.collect()
    assert [str(each.message) for each in recwarn if "never awaited" in str(each.message)] == []


@pytest.mark.parametrize("on_wire", [False, True])
def test_memory_of_what_an_abort_drops_is_given_back(on_wire: bool) -> None:
    async def scenario(world: World) -> None:
        async with producer(world, linger_ms=0 if on_wire else 60_000) as writer:
            await writer.init_transactions()
            for _ in range(3):
                await writer.begin_transaction()
                told = [await writer.send("t", bytes(100), partition=n % 2) for n in range(10)]
                await asyncio.sleep(0)
                assert used(writer) > 1000
                await writer.abort_transaction()
                await asyncio.gather(*told, return_exceptions=True)
                assert used(writer) == 0

    simulate(scenario)


def test_a_record_outlives_an_outage_that_is_shorter_than_its_time(monkeypatch: pytest.MonkeyPatch) -> None:
    """However often its batch was refused meanwhile."""
    refused = 0

    async def scenario(world: World) -> None:
        def refuse(_: Any, response: Any) -> None:
            nonlocal refused
            if world.loop.time() < begun + 60:
                refused += 1
                response.responses[0].partition_responses[0].error_code = ErrorCode.NOT_ENOUGH_REPLICAS

        begun = world.loop.time()
        async with Producer(ADDRESS, runtime=world.runtime("writer"), delivery_timeout_ms=120_000) as writer:
            every_answer(monkeypatch, refuse)
            await writer.send_and_wait("t", b"value", partition=0)
            assert 60 <= world.loop.time() - begun < 61
        assert refused > 60

    simulate(scenario)


def test_records_of_a_request_that_cannot_be_encoded_are_told() -> None:
    def refuse(message: Any, *how: Any) -> bytes:
        if isinstance(message, ProduceRequest):
            raise ValueError("no bytes for it")
        return encode_request(message, *how)

    async def scenario(world: World) -> None:
        writer = await Producer(ADDRESS, runtime=world.runtime("writer")).start()
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(connection, "encode_request", refuse)
            with pytest.raises(ClientError, match="no bytes for it"):
                await asyncio.wait_for(await writer.send("t", b"value", partition=0), 5)
            assert used(writer) == 0
        await writer.close()

    simulate(scenario)
