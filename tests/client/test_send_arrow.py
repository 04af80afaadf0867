"""Tables handed over as records: what a consumer's batches gave is written as it was, and told of together."""

from __future__ import annotations

import sys
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.client.test_group import take
from tests.client.test_producer import producer, shown, simulate

from fencepost.broker import running_broker
from fencepost.client import Consumer, ConsumerRecord, ManyMetadata, Producer, RecordMetadata, TopicPartition, blocking
from fencepost.client.errors import BrokerError, MisuseError, RecordTooLargeError
from fencepost.client.interceptors import ProducerRecord
from fencepost.protocol.partitioning import partition_for_key
from fencepost.simulation.world import ADDRESS, World

AT = TopicPartition("t", 0)
SOME = st.none() | st.binary(max_size=30)
HEADERS = st.lists(st.tuples(st.text(max_size=5), SOME), max_size=3)


def said(record: ConsumerRecord) -> tuple[Any, ...]:
    return record.partition, record.timestamp, record.key, record.value, [*map(tuple, record.headers)]


async def everything(world: World, topic: str, count: int) -> list[ConsumerRecord]:
    async with Consumer(topic, bootstrap_servers=ADDRESS, runtime=world.runtime(f"reader-{topic}")) as reader:
        return sorted(await take(reader, count, 5), key=lambda record: (record.partition, record.offset))


def headers_of_bytes(keys: list[bytes]) -> pa.Array:
    """One a row, whose key is said to be text, as a file of somebody else's may have it."""
    named = pa.StructArray.from_arrays([pa.array(keys).view(pa.string()), pa.array(keys)], ["key", "value"])
    return pa.ListArray.from_arrays(range(len(keys) + 1), named)


@settings(max_examples=12)
@given(
    given=st.lists(
        st.tuples(SOME, SOME, HEADERS, st.integers(0, 1_700_000_000_000), st.integers(0, 1)), min_size=1, max_size=40
    ),
    batch_bytes=st.sampled_from([1, 300, 256 * 1024]),
)
def test_batches_of_a_consumer_are_written_as_they_were_read(given: list[Any], batch_bytes: int) -> None:
    async def scenario(world: World) -> None:
        async with Producer(ADDRESS, runtime=world.runtime("writer"), batch_bytes=batch_bytes) as writer:
            for key, value, headers, time, number in given:
                await writer.send("t", value, key=key, headers=headers, timestamp=time, partition=number)
            await writer.send("u", b"", partition=0)
            await writer.send("u", b"", partition=1)
            async with Consumer("t", bootstrap_servers=ADDRESS, runtime=world.runtime("copier")) as copier:
                left = len(given)
                while left:
                    batch = await copier.poll_batch()
                    if batch is not None:
                        rows = batch.to_arrow(
                            "key", "value", "offset", "timestamp", "timestampType", "headers", "partition"
                        )
                        left -= rows.num_rows
                        found = await (await writer.send_arrow("u", rows))
                        assert found.records == rows.num_rows
                        assert set(found.offsets) == {TopicPartition("u", batch.at.partition)}
        copied = [record for record in await everything(world, "u", len(given) + 2) if record.offset]
        assert list(map(said, copied)) == list(map(said, await everything(world, "t", len(given))))

    simulate(scenario, **{"num.partitions": 2})


def test_columns_say_each_partition_and_time_and_what_they_do_not_say_is_as_for_send() -> None:
    keys = [None if n % 3 == 0 else b"%d" % n for n in range(60)]
    rows = pa.table(
        {
            "key": pa.array(keys, pa.binary()),
            "value": [b"%d" % n for n in range(60)],
            "partition": pa.array([n % 2 if n < 20 else None for n in range(60)]),
            "timestamp": pa.array([n if n < 40 else None for n in range(60)]),
        }
    )

    async def scenario(world: World) -> None:
        async with Producer(ADDRESS, runtime=world.runtime("writer")) as writer:
            before = world.runtime("clock").clock.now()
            await (await writer.send_arrow("t", rows))
        found = {int(record.value or b""): record for record in await everything(world, "t", 60)}
        assert sorted(found) == list(range(60))
        assert all(found[n].partition == n % 2 for n in range(20))
        keyed = [n for n in range(20, 60) if keys[n] is not None]
        assert all(found[n].partition == partition_for_key(keys[n] or b"", 2) for n in keyed)
        assert len({found[n].partition for n in range(20, 60) if keys[n] is None}) == 1
        assert all(found[n].timestamp == n if n < 40 else found[n].timestamp >= before for n in range(60))

    simulate(scenario)


def test_a_partition_and_a_time_may_be_said_for_all() -> None:
    async def scenario(world: World) -> None:
        rows = pa.table({"value": [b"1", b"2"], "headers": [[{"key": "h", "value": b""}], None]})
        async with Producer(ADDRESS, runtime=world.runtime("writer")) as writer:
            await writer.send_arrow("t", rows, partition=1, timestamp=5)
        assert [said(record)[:2] for record in await everything(world, "t", 2)] == [(1, 5)] * 2

    simulate(scenario)


@pytest.mark.parametrize(
    ("columns", "error"),
    [
        ({"value": [b"1", bytes(2000)]}, RecordTooLargeError),
        ({"value": [b"1", b"2"], "other": [1, 2]}, ValueError),
        ({"value": [b"1", b"2"], "key": [1, 2]}, TypeError),
        ({"value": [b"1", b"2"], "partition": [0, 2]}, BrokerError),
        ({"value": [b"1", b"2"], "timestamp": [0, -2]}, ValueError),
        ({"value": [b"1"] * 3000, "headers": headers_of_bytes([b"h"] * 2999 + [b"\xff"])}, ValueError),
    ],
)
def test_nothing_is_handed_over_of_what_has_a_row_that_is_refused(
    columns: dict[str, Any], error: type[Exception]
) -> None:
    async def scenario(world: World) -> None:
        async with producer(world, max_request_size=1000) as writer:
            await writer.init_transactions()
            async with writer.transaction():
                await writer.send("t", b"0", partition=0)
                with pytest.raises(error) as raised:
                    await writer.send_arrow("t", pa.table(columns))
                assert raised.value.__notes__ == ["0 records were handed over."]
                await writer.send_arrow("t", pa.table({"value": [b"3"]}), partition=0)
        assert await shown(world) == [b"0", b"3"]

    simulate(scenario)


def test_it_is_as_much_part_of_a_transaction_as_other_records_and_keeps_their_order() -> None:
    async def scenario(world: World) -> None:
        rows = pa.table({"value": [b"%d" % n for n in range(5000)], "timestamp": list(range(5000))})
        async with producer(world, buffer_bytes=20_000, batch_bytes=1000) as writer:
            await writer.init_transactions()
            with pytest.raises(MisuseError, match="begin_transaction"):
                await writer.send_arrow("t", rows)
            await writer.begin_transaction()
            await writer.send_arrow("t", rows, partition=0)
            await writer.abort_transaction()
            await writer.begin_transaction()
            await writer.send("t", b"before", partition=0)
            told = await writer.send_arrow("t", rows, partition=0)
            await writer.send("t", b"behind", partition=0)
            await writer.commit_transaction()
            assert (await told).records == 5000
        assert await shown(world) == [b"before", *(b"%d" % n for n in range(5000)), b"behind"]

    simulate(scenario)


def test_no_rows_are_done_at_once() -> None:
    async def scenario(world: World) -> None:
        async with Producer(ADDRESS, runtime=world.runtime("writer")) as writer:
            rows = pa.table({"value": pa.array([], pa.binary())})
            assert await (await writer.send_arrow("t", rows)) == ManyMetadata(0, {})

    simulate(scenario)


def test_the_users_function_chooses_partitions_that_no_column_says() -> None:
    async def scenario(world: World) -> None:
        async with Producer(
            ADDRESS, runtime=world.runtime("writer"), partitioner=lambda _topic, key, numbers: numbers[key == b"1"]
        ) as writer:
            rows = pa.table({"value": [b"0", b"1", b"2"], "key": [b"0", b"1", b"1"], "partition": [None, None, 0]})
            await writer.send_arrow("t", rows)
        assert [said(record)[0] for record in await everything(world, "t", 3)] == [0, 0, 1]

    simulate(scenario)


def test_interceptors_see_each_row_as_a_record() -> None:
    class Seen:
        def __init__(self) -> None:
            self.records: list[ProducerRecord] = []
            self.acknowledged: list[int] = []

        def on_send(self, record: ProducerRecord) -> ProducerRecord:
            self.records.append(record)
            return record

        def on_acknowledgement(self, metadata: RecordMetadata, error: Exception | None) -> None:
            assert error is None
            self.acknowledged.append(metadata.partition)

    async def scenario(world: World) -> None:
        seen = Seen()
        rows = pa.table(
            {"value": [b"1", b"2"], "headers": [[{"key": "h", "value": None}], None], "timestamp": [7, None]}
        )
        async with Producer(ADDRESS, runtime=world.runtime("writer"), interceptors=[seen]) as writer:
            await (await writer.send_arrow("t", rows, partition=1))
            await (await writer.send_arrow("t", pa.table({"value": [b"3"]})))
        assert seen.records == [
            ProducerRecord("t", b"1", None, 1, 7, [("h", None)]),
            ProducerRecord("t", b"2", None, 1, None, ()),
            ProducerRecord("t", b"3"),
        ]
        assert seen.acknowledged[:2] == [1, 1]
        assert len(seen.acknowledged) == 3

    simulate(scenario)


def test_who_has_no_pyarrow_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "fencepost.client.arrow_rows", None)

    async def scenario(world: World) -> None:
        async with Producer(ADDRESS, runtime=world.runtime("writer")) as writer:
            with pytest.raises(MisuseError, match=r"install fencepost\[arrow\]"):
                await writer.send_arrow("t", pa.table({"value": [b""]}))

    simulate(scenario)


def test_without_asyncio() -> None:
    with running_broker() as broker, blocking.Producer(broker.bootstrap_servers) as writer:
        first = writer.send("t", b"0", partition=0)
        found = writer.send_arrow("t", pa.table({"value": ["1", "2"]}), partition=0).result()
        assert first.result().offset == 0
        assert found == ManyMetadata(2, {AT: [range(1, 3)]})
        with pytest.raises(ValueError, match="column 'x'"):
            writer.send_arrow("t", pa.table({"value": ["1"], "x": [1]}))
