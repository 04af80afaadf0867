"""Batches of one partition hold what `poll` gives, as records and as Arrow columns, and take from the same queue."""

from __future__ import annotations

import asyncio
import random
import sys
from typing import Any

import pyarrow as pa
import pytest
from tests.client.test_consumer import AT, EMPTY, fill
from tests.client.test_group import SHORT_SESSIONS, member, take, write
from tests.client.test_producer import producer, simulate

from fencepost.broker import running_broker
from fencepost.client import Consumer, ConsumerRecord, OffsetAndMetadata, PartitionBatch, blocking
from fencepost.client.errors import ClosedError, MisuseError
from fencepost.simulation.world import ADDRESS, World

pytestmark = pytest.mark.usefixtures("each_twin")


def rows(table: pa.Table) -> list[tuple[Any, ...]]:
    """As `read` has them."""
    made = table.cast(pa.schema([*list(table.schema)[:3], pa.field("timestamp", pa.int64()), table.schema.field(4)]))
    return [
        (row["offset"], row["timestamp"] // 1000, row["key"], row["value"], [*map(tuple, headers_of(row))])
        for row in made.to_pylist()
    ]


def headers_of(row: Any) -> list[tuple[str, bytes | None]]:
    return [(header["key"], header["value"]) for header in row["headers"] or ()]


def read(record: ConsumerRecord) -> tuple[Any, ...]:
    return record.offset, record.timestamp, record.key, record.value, [*map(tuple, record.headers)]


async def written(world: World, chance: random.Random, with_aborted: bool) -> dict[int, list[bytes]]:
    """Transactions into two partitions, some of them aborted; the values of each that are to be read."""
    expected: dict[int, list[bytes]] = {0: [], 1: []}
    async with producer(world) as writer:
        await writer.init_transactions()
        for number in range(12):
            await writer.begin_transaction()
            commits = chance.random() < 0.6
            for partition in (0, 1):
                value = b"%d" % number
                headers = [("h", value)] if chance.random() < 0.3 else []
                await (await writer.send("t", value, partition=partition, key=b"k", headers=headers))
                if commits or with_aborted:
                    expected[partition].append(value)
            await (writer.commit_transaction() if commits else writer.abort_transaction())
    return expected


@pytest.mark.parametrize("isolation", ["read_committed", "read_uncommitted"])
@pytest.mark.parametrize("delivery", ["offset_order", "commit_order"])
@pytest.mark.parametrize("seed", range(3))
def test_whatever_way_records_are_taken_each_comes_once_and_aborted_ones_never(
    isolation: str, delivery: str, seed: int
) -> None:
    """And what is committed in between is where the next consumer begins."""
    if (isolation, delivery) == ("read_uncommitted", "commit_order"):
        pytest.skip("commit order is for committed records")
    chance = random.Random(f"batches {seed}")

    async def scenario(world: World) -> None:
        expected = await written(world, chance, with_aborted=isolation == "read_uncommitted")
        found: dict[int, list[bytes | None]] = {0: [], 1: []}
        how: dict[str, Any] = {"isolation_level": isolation, "delivery": delivery, "max_partition_fetch_bytes": 500}
        reader = member(world, "reader", **how)
        for turn in range(400):
            way = chance.choice(("poll", "iterate", "batch", "table", "anew", "back"))
            records: list[Any] = []
            if way == "anew" and turn < 200:
                await reader.commit()
                await reader.close()
                reader = member(world, f"reader-{turn}", **how)
            elif way == "poll":
                records = await reader.poll(100, max_records=chance.randint(1, 4))
            elif way == "iterate" and (record := reader._reading.one()) is not None:
                records = [record]
            elif way in ("batch", "table", "back") and (batch := await reader.poll_batch(100)) is not None:
                records = list(batch)
                assert rows(batch.to_arrow()) == [read(record) for record in records]
                assert batch.to_arrow("value", "topic").num_rows == len(records)
                if way == "back":
                    reader._fetcher.take_back()
                    records = []
                else:
                    assert reader.next_offsets()[batch.at].offset == (
                        batch.next_offset.offset
                        if isinstance(batch.next_offset, OffsetAndMetadata)
                        else batch.next_offset
                    )
            for record in records:
                found[record.partition].append(record.value)
        assert found == expected
        ends = await reader.end_offsets([AT, EMPTY])
        assert {at: reader.position(at) for at in ends} == ends, "behind what nobody is shown, too"
        await reader.close()
        reader = member(world, "last", **how)
        while set(reader.assignment()) != {AT, EMPTY}:
            await reader.poll_batch(100)
        for at in ends:
            reader.seek(at, ends[at] - 1)
        assert [await reader.poll_batch(100) for _ in range(4)] == [None] * 4 or isolation == "read_uncommitted"
        assert {at: reader.position(at) for at in ends} == ends
        await reader.close()

    simulate(scenario, **SHORT_SESSIONS)


def test_a_batch_is_one_partitions_in_turn_and_nothing_of_a_paused_one() -> None:
    async def scenario(world: World) -> None:
        await fill(world, 0, 1, count=20)
        async with Consumer("t", bootstrap_servers=ADDRESS, runtime=world.runtime("reader")) as reader:
            first = await anext(reader)
            other = EMPTY if first.partition == 0 else AT
            at = AT if other == EMPTY else EMPTY
            reader.pause([at])
            batch = await reader.poll_batch()
            assert batch is not None and batch.at == other
            assert batch.to_arrow("offset")["offset"].to_pylist() == list(range(20))
            assert await reader.poll_batch(100) is None
            reader.resume([at])
            rest = await reader.poll_batch()
            assert rest is not None and rest.at == at
            assert rest.to_arrow("offset", "timestampType").to_pylist() == [
                {"offset": offset, "timestampType": 0} for offset in range(1, 20)
            ]
            assert repr(rest) == f"<PartitionBatch of t-{at.partition} up to 20>"
            reader.seek(at, 18)
            assert [record.offset for record in await reader.poll()] == [18, 19]
            with pytest.raises(MisuseError, match=r"no column 'valeu'; there are key, value"):
                rest.to_arrow("valeu")

    simulate(scenario)


def test_a_batch_that_is_worked_on_is_not_committed_by_itself() -> None:
    async def scenario(world: World) -> None:
        await write(world, [b"0", b"1"])
        async with member(world, "reader", auto_commit=True, auto_commit_interval_ms=0) as reader:
            batch = None
            while batch is None:
                batch = await reader.poll_batch()
            await reader._commits.settled()
        async with member(world, "next", auto_commit=True, auto_commit_interval_ms=0) as reader:
            assert [record.offset for record in await take(reader, 2)] == [0, 1]
            assert await reader.poll_batch(200) is None
        async with member(world, "last") as reader:
            assert await take(reader, 1, 1) == []

    simulate(scenario, **SHORT_SESSIONS)


def test_batches_come_for_ever_until_it_is_closed() -> None:
    async def scenario(world: World) -> None:
        await fill(world, 0, count=3)
        reader = Consumer("t", bootstrap_servers=ADDRESS, runtime=world.runtime("reader"))
        values: list[bytes | None] = []

        async def read_on() -> None:
            async for batch in reader.batches():
                values.extend(record.value for record in batch)

        reading = asyncio.create_task(read_on())
        await asyncio.sleep(1)
        await reader.close()
        with pytest.raises(ClosedError):
            await reading
        assert values == [b"0", b"1", b"2"]

    simulate(scenario)


def test_without_pyarrow_it_is_said_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    batch = PartitionBatch(AT, 0, 0, [])
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    with pytest.raises(MisuseError, match=r"install fencepost\[arrow\]"):
        batch.to_arrow()


def test_the_blocking_one_has_batches_and_calls_back_in_the_callers_thread() -> None:
    with running_broker() as broker:
        servers = broker.bootstrap_servers
        with blocking.Producer(servers) as writer:
            for number in range(3):
                writer.send("t", b"%d" % number, partition=0).result()
        told: list[Any] = []
        with blocking.Consumer("t", bootstrap_servers=servers, group_id="g", auto_commit=False) as reader:
            batch = next(iter(reader.batches()))
            assert batch.to_arrow("value")["value"].to_pylist() == [b"0", b"1", b"2"]
            done = reader.commit_async(
                {batch.at: batch.next_offset},
                lambda offsets, error: told.append((offsets, error, reader.committed([batch.at]))),
            )
            stored = {batch.at: OffsetAndMetadata(3)}
            assert done.result(10) == stored
            assert told == []
            reader.commit()
            ((offsets, error, committed),) = told
            assert (offsets, error) == (stored, None)
            assert committed[batch.at].offset == 3


def test_what_is_fetched_is_not_looked_into_for_a_table(monkeypatch: pytest.MonkeyPatch) -> None:
    """No object is made for a record, where there is compiled code."""

    async def scenario(world: World) -> None:
        await fill(world, 0, count=50)
        async with Consumer("t", bootstrap_servers=ADDRESS, runtime=world.runtime("reader")) as reader:
            monkeypatch.setattr("fencepost.client.records.decode_as", None)
            batch = await reader.poll_batch()
            assert batch is not None
            assert batch.to_arrow("value")["value"].to_pylist() == [b"%d" % number for number in range(50)]

    simulate(scenario)
