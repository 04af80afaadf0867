"""Many records in one call: as if they were sent one by one, and told of together."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from tests.client.test_producer import producer, shown, simulate
from tests.twins import need_compiled, python_alone

from fencepost.broker import running_broker
from fencepost.client import (
    Consumer,
    ConsumerRecord,
    ManyMetadata,
    Producer,
    RecordTooLargeError,
    TopicPartition,
    TransactionAbortableError,
    blocking,
)
from fencepost.client.bulk import AS_ANY, NOW, Chunk, chunks, filled, filled_each, measured
from fencepost.client.errors import BrokerError, ClosedError, MisuseError
from fencepost.protocol.compression import Compression
from fencepost.protocol.partitioning import partition_for_key
from fencepost.protocol.records import decode_batch
from fencepost.simulation.world import ADDRESS, World

SOME = st.one_of(st.none(), st.binary(max_size=300))
Pair = tuple[bytes | None, bytes | None]
PAIRS = st.lists(st.tuples(SOME, SOME), max_size=60)


@pytest.mark.parametrize("values", [0, 1, 15, 16, 17, 300])
@pytest.mark.parametrize("more", [-1, 1])
def test_keys_that_are_too_many_or_too_few_are_refused(values: int, more: int) -> None:
    """Wherever a chunk ends: whoever gave them has paired them wrongly."""
    keys = [b"key"] * max(values + more, 0)
    if len(keys) == values:
        return
    with pytest.raises(ValueError, match="there are not as many keys as values"):
        list(chunks([b"value"] * values, keys, 100, 1 << 20))


@pytest.mark.parametrize("how", ["compiled", "python"])
@settings(max_examples=40)
@given(pairs=PAIRS, batch_bytes=st.integers(1, 3000))
def test_every_record_is_in_one_batch_that_is_no_larger_than_it_may_be(
    how: str, pairs: list[Pair], batch_bytes: int
) -> None:
    keys, values = [key for key, _ in pairs], [value for _, value in pairs]
    largest = measured(keys, values, 1 << 20).largest
    if how == "compiled":
        need_compiled()
        built = list(filled(keys, values, largest, 5, Compression.NONE, batch_bytes))
    else:
        with python_alone():
            built = list(filled(keys, values, largest, 5, Compression.NONE, batch_bytes))
    records = [record for builder in built for record in decode_batch(builder.build())]
    assert [(record.key, record.value, record.timestamp) for record in records] == [(*pair, 5) for pair in pairs]
    assert all(builder.size <= batch_bytes or builder.count == 1 for builder in built)


@settings(max_examples=40)
@given(
    rows=st.lists(st.tuples(SOME, SOME, st.integers(0, 2), st.sampled_from([NOW, 0, 7]), st.booleans()), max_size=40),
    batch_bytes=st.integers(1, 2000),
)
def test_records_that_say_something_for_themselves_are_each_in_one_batch_of_their_partition(
    rows: list[Any], batch_bytes: int
) -> None:
    keys, values, numbers, times, named = zip(*rows, strict=True) if rows else ((), (), (), (), ())
    own = [(AS_ANY, time, [("h", b"1")] if has_headers else ()) for time, has_headers in zip(times, named, strict=True)]
    chunk = Chunk([*keys], [*values], 0, 0, own=own)
    built = list(filled_each(chunk, numbers, 5, Compression.NONE, batch_bytes))
    assert all(builder.size <= batch_bytes or builder.count == 1 for _, builder in built)
    for number in range(3):
        records = [record for at, builder in built if at == number for record in decode_batch(builder.build())]
        assert [(record.key, record.value, record.timestamp, bool(record.headers)) for record in records] == [
            (key, value, 5 if time == NOW else time, has_headers)
            for key, value, place, time, has_headers in rows
            if place == number
        ]


@settings(max_examples=40)
@given(pairs=PAIRS, chunk_bytes=st.integers(1, 5000), most=st.integers(32, 700), keyed=st.booleans())
def test_chunks_have_every_record_in_order_up_to_one_that_is_too_large(
    pairs: list[Pair], chunk_bytes: int, most: int, keyed: bool
) -> None:
    pairs = pairs if keyed else [(None, value) for _, value in pairs]
    found = list(chunks([value for _, value in pairs], [key for key, _ in pairs] if keyed else None, chunk_bytes, most))
    taken = [pair for chunk in found for pair in zip(chunk.keys, chunk.values, strict=True)]
    sizes = [32 + len(key or b"") + len(value or b"") for key, value in pairs]
    first = next((n for n, size in enumerate(sizes) if size > most), len(pairs))
    assert taken == pairs[:first]
    assert [chunk.refused for chunk in found if chunk.refused] == pairs[first : first + 1]
    assert sum(chunk.size for chunk in found) == sum(sizes[:first])
    assert all(chunk.largest >= 32 for chunk in found if chunk.values)


@pytest.mark.parametrize("transactional", [False, True])
@settings(max_examples=15)
@given(
    values=st.lists(st.binary(max_size=200), max_size=80),
    batch_bytes=st.sampled_from([1, 500, 256 * 1024]),
    buffer_bytes=st.sampled_from([1000, 1 << 25]),
    topic_takes=st.sampled_from([400, 1 << 20]),
)
@example(values=[bytes(50)] * 40, batch_bytes=256 * 1024, buffer_bytes=1 << 25, topic_takes=400)
def test_all_are_written_once_in_order_and_their_offsets_told(
    transactional: bool, values: list[bytes], batch_bytes: int, buffer_bytes: int, topic_takes: int
) -> None:
    async def scenario(world: World) -> None:
        options: dict[str, Any] = {"batch_bytes": batch_bytes, "buffer_bytes": buffer_bytes}
        runtime = world.runtime("writer")
        writer = producer(world, **options) if transactional else Producer(ADDRESS, runtime=runtime, **options)
        async with writer:
            if transactional:
                await writer.init_transactions()
                await writer.begin_transaction()
            await writer.send("t", b"before", partition=1)
            told = await writer.send_many("t", (value for value in values), partition=1)
            after = await writer.send("t", b"after", partition=1)
            if transactional:
                await writer.commit_transaction()
            found = await told
            assert (await after).offset == len(values) + 1
            assert found.records == len(values)
            offsets = [offset for each in found.offsets.get(TopicPartition("t", 1), ()) for offset in each]
            assert offsets == list(range(1, len(values) + 1))
            assert writer._sender is not None and writer._sender._memory.used == 0
        assert await shown(world) == [b"before", *values, b"after"]

    simulate(scenario, **{"message.max.bytes": topic_takes})


def test_keys_choose_their_partitions_and_those_without_go_together() -> None:
    keys = [None if n % 3 == 0 else b"%d" % n for n in range(100)]

    async def scenario(world: World) -> None:
        async with Producer(ADDRESS, runtime=world.runtime("writer")) as writer:
            found = await (await writer.send_many("t", [b"%d" % n for n in range(100)], keys=keys))
        counts = {at.partition: sum(map(len, ranges)) for at, ranges in found.offsets.items()}
        keyed = [sum(key is not None and partition_for_key(key, 2) == number for key in keys) for number in (0, 1)]
        assert sum(counts.values()) == 100
        assert sorted(counts[number] - keyed[number] for number in (0, 1)) == [0, 34]

    simulate(scenario)


@pytest.mark.parametrize("place", [0, 1, 15, 16, 17, 200])
@pytest.mark.parametrize(("bad", "error"), [("text", TypeError), (5, TypeError), (bytes(2000), RecordTooLargeError)])
def test_one_that_is_refused_is_named_and_those_before_it_are_written(place: int, bad: Any, error: Any) -> None:
    values = [b"%d" % n for n in range(place)]

    async def scenario(world: World) -> None:
        async with producer(world, max_request_size=1000) as writer:
            await writer.init_transactions()
            async with writer.transaction():
                with pytest.raises(error, match=f"^record {place}: ") as raised:
                    await writer.send_many("t", [*values, bad, b"behind"], partition=0)
                assert raised.value.__notes__ == [f"{place} records were handed over."]
        assert await shown(world) == values

    simulate(scenario)


@pytest.mark.parametrize("bad", [0, "", (), "text"])
def test_a_key_that_is_none_is_named_too(bad: Any) -> None:
    async def scenario(world: World) -> None:
        async with Producer(ADDRESS, runtime=world.runtime("writer")) as writer:
            with pytest.raises(TypeError, match=r"^record 1: the key is of type"):
                await writer.send_many("t", [b"1", b"2"], keys=[None, bad], partition=0)
        assert await shown(world) == [b"1"]

    simulate(scenario)


def test_each_record_has_the_time_that_was_said_be_it_0_or_else_that_of_the_writer() -> None:
    async def scenario(world: World) -> None:
        async with Producer(ADDRESS, runtime=world.runtime("writer")) as writer:
            before = writer._cluster.runtime.clock.now()
            for timestamp in (0, 5, None):
                await (await writer.send("t", b"one", partition=0, timestamp=timestamp))
                await (await writer.send_many("t", [b"many", b"many"], partition=0, timestamp=timestamp))
            after = writer._cluster.runtime.clock.now()
        async with Consumer(bootstrap_servers=ADDRESS, runtime=world.runtime("reader")) as reader:
            reader.assign([TopicPartition("t", 0)])
            found: list[ConsumerRecord] = []
            while len(found) < 9:
                found += await reader.poll(5000)
        assert [record.timestamp for record in found[:6]] == [0] * 3 + [5] * 3
        assert all(before <= record.timestamp <= after for record in found[6:])

    simulate(scenario)


def test_nothing_at_all_is_done_at_once() -> None:
    async def scenario(world: World) -> None:
        async with Producer(ADDRESS, runtime=world.runtime("writer")) as writer:
            assert await (await writer.send_many("t", [])) == ManyMetadata(0, {})

    simulate(scenario)


def test_not_as_many_keys_as_values_is_told() -> None:
    async def scenario(world: World) -> None:
        async with Producer(ADDRESS, runtime=world.runtime("writer")) as writer:
            with pytest.raises(ValueError, match="one key, or None"):
                await writer.send_many("t", [b"1", b"2"], keys=[b"k"])

    simulate(scenario)


def test_who_is_cancelled_is_told_how_many_went_in() -> None:
    """And just those are written."""

    async def scenario(world: World) -> None:
        async with Producer(ADDRESS, runtime=world.runtime("writer"), buffer_bytes=500, batch_bytes=100) as writer:
            await (await writer.send("t", b"first", partition=0))
            sending = asyncio.ensure_future(writer.send_many("t", [b"%d" % n for n in range(1000)], partition=0))
            await asyncio.sleep(0.01)
            sending.cancel()
            with pytest.raises(asyncio.CancelledError) as raised:
                await sending
            handed = int(raised.value.__notes__[0].split()[0])
            assert 0 < handed < 1000
        assert await shown(world) == [b"first", *(b"%d" % n for n in range(handed))]

    simulate(scenario)


def test_an_iterable_that_fails_leaves_what_it_gave_before() -> None:
    def values() -> Iterator[bytes]:
        yield from [b"x"] * 16
        raise ZeroDivisionError

    async def scenario(world: World) -> None:
        async with Producer(ADDRESS, runtime=world.runtime("writer")) as writer:
            with pytest.raises(ZeroDivisionError) as raised:
                await writer.send_many("t", values(), partition=0)
            assert raised.value.__notes__ == ["16 records were handed over."]
        assert await shown(world) == [b"x"] * 16

    simulate(scenario)


def test_what_cannot_be_sent_now_is_refused_as_by_send() -> None:
    async def scenario(world: World) -> None:
        async with producer(world) as writer:
            await writer.init_transactions()
            with pytest.raises(MisuseError, match="begin_transaction"):
                await writer.send_many("t", [b""])
            await writer.begin_transaction()
            with pytest.raises(BrokerError, match="no partition 7"):
                await writer.send_many("t", [b""], partition=7)
        with pytest.raises(ClosedError):
            await writer.send_many("t", [b""])

    simulate(scenario)


def test_the_result_raises_what_one_batch_failed_of() -> None:
    async def scenario(world: World) -> None:
        async with producer(world, max_request_size=3_000_000) as writer:
            await writer.init_transactions()
            await writer.begin_transaction()
            told = await writer.send_many("t", [b"small", bytes(2_000_000)], partition=0)
            await writer.flush()
            with pytest.raises(TransactionAbortableError, match="MESSAGE_TOO_LARGE"):
                await told
            await writer.abort_transaction()
        assert await shown(world) == []

    simulate(scenario)


def test_the_users_function_chooses_partitions_one_by_one_and_together() -> None:
    async def scenario(world: World) -> None:
        runtime = world.runtime("writer")
        async with Producer(
            ADDRESS, runtime=runtime, partitioner=lambda _topic, key, numbers: numbers[key == b"1"]
        ) as w:
            assert (await (await w.send("t", b"", key=b"0"))).partition == 0
            assert (await (await w.send("t", b"", key=b"1"))).partition == 1
            assert (await (await w.send("t", b"", key=b"1", partition=0))).partition == 0
            found = await (await w.send_many("t", [b"", b"", b""], keys=[b"1", None, b"1"]))
            assert {at.partition: sum(map(len, ranges)) for at, ranges in found.offsets.items()} == {1: 2, 0: 1}
        async with Producer(ADDRESS, runtime=runtime, partitioner=lambda *_: 9) as w:
            with pytest.raises(ValueError, match="partitioner returned 9"):
                await w.send("t", b"")

    simulate(scenario)


@given(
    sizes=st.lists(st.sampled_from([0, 1, 10, 1000, 50_000]), max_size=300),
    chunk_bytes=st.integers(100, 20_000),
    lazy=st.booleans(),
)
@example(sizes=[0] * 200 + [50_000] * 100, chunk_bytes=100, lazy=True)
@example(sizes=[0] * 200 + [50_000] * 100, chunk_bytes=20_000, lazy=True)
def test_no_more_is_taken_at_once_than_a_chunk_and_a_few_records_however_they_grow(
    sizes: list[int], chunk_bytes: int, lazy: bool
) -> None:
    taken: list[int] = []

    def coming() -> Iterator[bytes]:
        for size in sizes:
            taken.append(size)
            yield bytes(size)

    values = list(coming()) if not lazy else None
    taken.clear()
    given = 0
    for chunk in chunks(coming() if values is None else values, None, chunk_bytes, 1 << 20):
        own = sum(len(value or b"") for value in chunk.values)
        assert own <= 2 * chunk_bytes or len(chunk.values) == 1
        given += own
        assert sum(taken) - given <= chunk_bytes + 16 * 50_000
    assert given == sum(sizes)


def test_without_asyncio() -> None:
    with running_broker() as broker, blocking.Producer(broker.bootstrap_servers) as writer:
        found = writer.send_many("t", [b"1", b"2"], partition=0).result()
        assert found == ManyMetadata(2, {TopicPartition("t", 0): [range(2)]})
